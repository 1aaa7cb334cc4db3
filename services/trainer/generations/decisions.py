"""When to form, break or end a generation: pure functions of who is there.

`decide` is asked after every change. Workers lost in an earlier generation aren't shown to it. What a
worker's phases are, `workers.state` tells.
"""

from collections.abc import Sequence
from dataclasses import replace

from peerloom.kit.quantity_texts import doing, plural
from peerloom.services.trainer.generations.decision_types import (
    Abort,
    Complete,
    Decision,
    Dismiss,
    Enter,
    Fail,
    Form,
    GiveUpOn,
    Hold,
    Save,
    Silence,
    Wait,
)
from peerloom.services.trainer.workers.decisions import (
    OBSERVED,
    Limits,
    away_deadline,
    has_passed,
    next_deadline,
)
from peerloom.services.trainer.workers.state import (
    Finished,
    Idle,
    Leaving,
    Lost,
    Silent,
    Starting,
    WorkerState,
    Working,
)
from peerloom.v1.trainer_pb2 import Job

SAVE_LIMIT_S = 10.0  # to store the state of one who has to go; then it is asked again
# What kills all workers before each first checkpoint is the job's own fault, more likely than its nodes'.
MOST_BEGUN_ANEW = 3


def decide(
    workers: Sequence[WorkerState],
    generation: int,
    limits: Limits,
    now_s: float,
    checkpoint_step: int | None = None,
    committed_step: int = 0,
    begun_anew: int = 0,
    lacked_room: bool = False,
) -> Decision:
    """What to do next, and why; asked again until it says Wait, Hold, Complete or Fail.

    `generation` is the newest one, 0 before the first;
    `checkpoint_step` is how far the newest durable checkpoint goes, None when there is none;
    `committed_step` is the last step that was ever reported;
    `begun_anew` is how often the job began anew, as all who had its state were lost before a checkpoint;
    `lacked_room`: what all of the newest generation were lost for is that their slots can't do the job.
    """
    overdue = [w for w in workers if has_passed(away_deadline(w, limits), now_s)]
    if overdue:
        return GiveUpOn(_ids(overdue), "nothing was heard of it for too long")
    quiet = [w for w in workers if has_passed(w.contact.quiet_at_s, now_s) and isinstance(w.phase, OBSERVED)]
    if quiet:
        return Silence(_ids(quiet), "it shows no sign of life")
    void = [w for w in workers if isinstance(w.phase, Idle) and w.is_void]
    if void:
        return Dismiss(_ids(void), "others make the steps again that its state has")
    until_s = next_deadline(workers, limits, now_s)
    alive = [w for w in workers if not isinstance(w.phase, Lost)]
    if any(isinstance(w.phase, Working) for w in alive):
        return _while_working(workers, limits, until_s, now_s)
    if any(isinstance(w.phase, Leaving) for w in alive):
        return Wait("workers are leaving the generation", until_s)
    departing = _all_depart(alive, checkpoint_step, now_s)
    if departing is not None:
        return departing
    # A member of a generation may be without the state: the one who was to hand it over has died.
    least_step = max(min(committed_step, 1), checkpoint_step or 0) if generation else 0
    again = _again(checkpoint_step, begun_anew, lacked_room and not alive)
    return _between_generations(alive, generation, limits, until_s, least_step, again)


def decide_training(job: Job, workers: Sequence[WorkerState], limits: Limits, now_s: float) -> Decision:
    """As `decide`, of a job that has the whole model in each worker."""
    checkpoint = int(job.checkpoint.step) if job.HasField("checkpoint") else None
    done, anew = int(job.progress.step), int(job.begun_anew)
    unfit = [worker.unfit for worker in job.workers if worker.generation == job.generation]
    lacked_room = bool(unfit) and all(unfit)
    return decide(workers, job.generation, limits, now_s, checkpoint, done, anew, lacked_room)


def _while_working(
    workers: Sequence[WorkerState], limits: Limits, until_s: float | None, now_s: float
) -> Decision:
    working = [w for w in workers if isinstance(w.phase, Working)]
    missing = [w for w in workers if w.is_member and isinstance(w.phase, Lost | Idle | Silent)]
    if missing:
        how = "fell silent" if any(isinstance(w.phase, Silent) for w in missing) else "left the generation"
        return Abort(_ids(working), f"{missing[0].worker_id} {how}")
    if any(w.meeting for w in working):
        return _while_meeting(working, until_s, now_s)
    if any(w.is_due(now_s) for w in working):
        if any(w.is_ready and not w.is_departing for w in working):
            return Abort(_ids(working), "a node wants its slots back", is_polite=True)
        if all(w.is_departing and w.step for w in working):
            return Abort(_ids(working), "nobody stays, so the state is stored", is_polite=True)
    idle = [w for w in workers if isinstance(w.phase, Idle)]
    if any(w.is_departing for w in idle):
        return Dismiss(_ids([w for w in idle if w.is_departing]), "its node asked it to leave")
    newcomers = [w for w in idle if not w.is_departing]
    room = limits.max_workers - sum(not w.is_departing for w in working)
    if newcomers and room <= 0:
        # E.g. one that had fallen silent is back, and its place is taken.
        return Dismiss(_ids(newcomers), "the job has all the workers it can use")
    if newcomers and not limits.meets_beside:
        return Abort(_ids(working), "a worker joins", is_polite=True)
    # Whoever still gets the state is not disturbed, and at the end of the training nobody is needed.
    if (
        newcomers
        and all(w.is_ready for w in working)
        and not any(isinstance(w.phase, Finished) for w in workers)
    ):
        # Those who want to go hand over now, unless nobody else has the state.
        staying = [w for w in working if not w.is_departing]
        meeting = [*(staying or working), *newcomers[:room]]
        reason = f"a worker joins: {len(meeting)} workers meet"
        return replace(_form(meeting), newcomers=len(newcomers[:room]), reason=reason, beside=True)
    return Wait("the generation works", until_s)


def _while_meeting(working: Sequence[WorkerState], until_s: float | None, now_s: float) -> Decision:
    meetings = [w.meeting for w in working if w.meeting]
    if all(meeting.has_met for meeting in meetings):
        return Enter(f"{len(meetings)} workers have met")
    if any(has_passed(meeting.by_s, now_s) for meeting in meetings):
        return Abort(_ids(working), "the workers of the next generation can't meet")
    return Wait("the next generation meets", until_s)


def _all_depart(alive: Sequence[WorkerState], checkpoint_step: int | None, now_s: float) -> Decision | None:
    """What to do when all who are there have to go and nobody comes: the state is stored before they do."""
    present = [w for w in alive if isinstance(w.phase, Idle | Finished)]
    holder = max(present, key=lambda w: w.step, default=None)
    if holder is None or not holder.step or any(w.has_model for w in present):
        return None
    if not all(w.is_due(now_s) for w in present):
        return None
    if checkpoint_step is not None and checkpoint_step >= holder.step:
        return Dismiss(_ids(present), f"its state is kept in the checkpoint of step {checkpoint_step}")
    asked_s = holder.departure.save_asked_s if holder.departure else None
    if asked_s is not None and now_s < asked_s + SAVE_LIMIT_S:
        return Hold("waiting for the state to be stored", asked_s + SAVE_LIMIT_S)
    return Save(holder.worker_id, "its node wants it to leave, and nobody else has its state")


def _between_generations(
    alive: Sequence[WorkerState],
    generation: int,
    limits: Limits,
    until_s: float | None,
    least_step: int,
    again: Form | Fail,
) -> Decision:
    worked = [w for w in alive if w.is_member]
    holder = next((w for w in worked if w.has_model), None)
    if holder is not None and all(isinstance(w.phase, Finished) for w in worked):
        return Complete(holder.worker_id, "all workers have finished")
    if generation == 0 and any(isinstance(w.phase, Starting) for w in alive):
        return Wait("workers are starting", until_s)
    present = [w for w in alive if isinstance(w.phase, Idle | Finished)]
    newest = max((w.step for w in present), default=0)
    if newest < least_step:
        return _without_state(alive, present, limits, until_s, again)
    if not alive:
        return again if isinstance(again, Fail) else Fail("no worker is left")
    staying = [w for w in present if not w.is_departing]
    if len(staying) < len(present) and any(w.step == newest for w in staying):
        departing = [w for w in present if w.is_departing]
        return Dismiss(_ids(departing), "its node asked it to leave")
    # Here whoever wants to go holds the newest state alone: it hands that to a newcomer first.
    wanted = max(1, limits.min_workers)
    if len(present) < wanted:
        return Hold(
            f"waiting for nodes: {len(present)} of at least {plural(wanted, 'worker')} are there", until_s
        )
    if len(staying) > limits.max_workers:
        spare = sorted(staying, key=lambda w: (-w.step, not w.is_member))[limits.max_workers :]
        return Dismiss(_ids(spare), "the job has all the workers it can use")
    return _form(present)


def _again(checkpoint_step: int | None, begun_anew: int, lacks_room: bool) -> Form | Fail:
    """How to go on where nobody has the state, whoever will be there."""
    if checkpoint_step is not None:
        how = f"go on from the checkpoint of step {checkpoint_step}"
        return Form((), checkpoint_step, 0, how, from_checkpoint=True)
    if lacks_room:  # its user has to know: no node that it was tried on can hold it
        return Fail(
            "none of its nodes can do this job; where they lack memory, lend more (--memory-limit-bytes), or "
            "divide the model among workers (--plan auto); where their disks are full, make room"
        )
    if begun_anew < MOST_BEGUN_ANEW:
        return Form((), 0, 0, "begin anew: all who had the state are lost, and there is no checkpoint yet")
    tried = f"it began anew {begun_anew} times already"
    return Fail(f"nobody is left who has the state, and there is no checkpoint: {tried}")


def _without_state(
    alive: Sequence[WorkerState],
    present: Sequence[WorkerState],
    limits: Limits,
    until_s: float | None,
    again: Form | Fail,
) -> Decision:
    if any(isinstance(w.phase, Silent) for w in alive):
        return Hold("waiting for a silent worker, which alone has the state", until_s)
    if isinstance(again, Fail):
        return again
    wanted = max(1, limits.min_workers)
    if any(isinstance(w.phase, Starting) for w in alive) or len(present) < wanted:
        return Hold(f"waiting for at least {plural(wanted, 'worker')}, to {again.reason}", until_s)
    return replace(again, worker_ids=_ids(present), reason=doing(len(present), "worker", again.reason))


def _form(ready: Sequence[WorkerState]) -> Form:
    # The most advanced first: it becomes rank 0, so no state travels if all are equal. Of equally advanced
    # ones a member's state counts: who was left behind may have made its last step in an older generation,
    # with other shares, so that its parameters differ in their last digits.
    ranked = sorted(ready, key=lambda w: (-w.step, not w.is_member))
    newest = ranked[0].step
    return Form(
        worker_ids=_ids(ranked),
        first_step=newest,
        newcomers=sum(w.step < newest or bool(newest and not w.is_member) for w in ranked[1:]),
        reason=doing(len(ranked), "worker", f"go on from step {newest}"),
    )


def _ids(workers: Sequence[WorkerState]) -> tuple[str, ...]:
    return tuple(w.worker_id for w in workers)
