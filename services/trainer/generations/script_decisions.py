"""What a script's generations differ in from a training's: pure functions of who is there.

A script has no step boundary: whoever joins, or is lost, makes all its processes end and start again, as
torchrun does. Its state is what it has written, so nobody is without it who can be given that.
"""

from collections.abc import Sequence
from dataclasses import replace

from peerloom.kit.quantity_texts import plural
from peerloom.services.trainer.generations.decision_types import (
    Abort,
    Complete,
    Decision,
    Fail,
    Form,
    Hold,
    Wait,
)
from peerloom.services.trainer.generations.decisions import decide
from peerloom.services.trainer.workers.decisions import Limits, next_deadline
from peerloom.services.trainer.workers.state import Finished, Idle, Lost, WorkerState


def decide_script(workers: Sequence[WorkerState], generation: int, limits: Limits, now_s: float) -> Decision:
    """As `decide`, for a script, which begins anew each time with what it has written."""
    members = [w for w in workers if w.is_member]
    if members and all(_has_ended_well(w) for w in members):
        ended_on = plural(len(members), "worker")
        return Complete(members[0].worker_id, f"the script ended with status 0 on {ended_on}")
    is_ending = any(isinstance(w.phase, Finished) for w in members)
    # Whoever comes while the first processes have ended already would only make them start again.
    shown = [w for w in workers if w.is_member or not (is_ending and isinstance(w.phase, Idle))]
    limits = replace(limits, meets_beside=False)
    match decide(shown, generation, limits, now_s):
        case Fail() if generation:
            return Hold("waiting for nodes: no worker is left", next_deadline(workers, limits, now_s))
        case Abort(is_polite=True) if is_ending:
            return Wait("the script is ending", next_deadline(workers, limits, now_s))
        case Form() as form:
            starts_on = plural(len(form.worker_ids), "worker")
            how = f"the script starts {'again ' if generation else ''}on {starts_on}"
            return replace(form, reason=how, newcomers=0)
        case decision:
            return decision


def _has_ended_well(worker: WorkerState) -> bool:
    return isinstance(worker.phase, Finished | Lost) and worker.phase.said is not None
