"""When a script's processes start, end and start again, and what that costs it. Members are invented."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.services.trainer.generations import decision_types as g
from peerloom.services.trainer.generations.script_decisions import decide_script
from peerloom.services.trainer.jobs.script_runs import (
    FailedForGood,
    StartAgain,
    charged,
    describe_exit,
    judge_restart,
    noted_exit,
)
from peerloom.services.trainer.workers.decisions import Limits
from peerloom.services.trainer.workers.state import (
    Departure,
    Finished,
    Idle,
    Leaving,
    Lost,
    Phase,
    Starting,
    WorkerState,
    Working,
)
from peerloom.v1.common_pb2 import Script
from peerloom.v1.trainer_pb2 import Job, JobSpec, ScriptExit, ScriptRun, WorkerFinished

LIMITS = Limits(start_timeout_s=60, reconnect_timeout_s=15, agent_timeout_s=1, min_workers=1)
ENDED = Finished(WorkerFinished())
GONE, STOPPED = Lost(is_member=True), Idle(is_member=True)
EXIT = ScriptExit(rank=1, status=3, last_lines="Traceback\nValueError: no\n")


def workers(*phases: Phase) -> list[WorkerState]:
    """w0, w1, ... in these phases."""
    return [WorkerState(f"w{i}", phase) for i, phase in enumerate(phases)]


def decide(*phases: Phase, generation: int = 1, limits: Limits = LIMITS) -> g.Decision:
    """What is to be done now."""
    return decide_script(workers(*phases), generation, limits, 0.0)


def job(generation: int = 1, max_restarts: int = 3, run: ScriptRun | None = None) -> Job:
    """A job that is a script."""
    spec = JobSpec(task="train.py", script=Script(max_restarts=max_restarts))
    return Job(spec=spec, generation=generation, script_run=run)


def test_all_start_together_without_anything_to_hand_over() -> None:
    assert isinstance(decide(Idle(), Starting(heard_s=0.0), generation=0), g.Wait)
    decision = decide(Idle(), Idle(), generation=0)
    assert decision == g.Form(("w0", "w1"), 0, 0, "the script starts on 2 workers")


def test_it_has_ended_well_when_all_have_also_those_that_were_lost_since() -> None:
    lost_since = Lost(is_member=True, said=WorkerFinished())
    decision = decide(ENDED, lost_since)
    assert decision == g.Complete("w0", "the script ended with status 0 on 2 workers")


def test_who_is_lost_before_its_end_makes_all_start_again() -> None:
    decision = decide(ENDED, GONE)
    assert isinstance(decision, g.Form)
    assert decision.worker_ids == ("w0",)


def test_a_failure_ends_the_others_at_once_and_the_oldest_stays_rank_0() -> None:
    decision = decide(Working(), STOPPED)
    assert isinstance(decision, g.Abort)
    assert (decision.worker_ids, decision.is_polite) == (("w0",), False)
    assert isinstance(decide(Leaving(since_s=0.0), STOPPED), g.Wait)
    again = decide(Idle(), STOPPED, STOPPED)
    assert isinstance(again, g.Form)
    assert again.worker_ids == ("w1", "w2", "w0")
    assert again.reason == "the script starts again on 3 workers"


def test_a_newcomer_makes_all_start_again_unless_the_first_have_ended() -> None:
    joined = decide(Working(), Working(), Idle())
    assert isinstance(joined, g.Abort)
    assert joined.worker_ids == ("w0", "w1")
    assert isinstance(decide(Working(), ENDED, Idle()), g.Wait)


def test_a_script_that_is_ending_is_not_ended_for_a_node_that_wants_its_slot_back() -> None:
    pool = [replace(workers(Working())[0], departure=Departure()), WorkerState("w1", Working())]
    assert isinstance(decide_script(pool, 1, LIMITS, 0.0), g.Abort)
    pool = [*pool, WorkerState("w2", ENDED)]
    assert decide_script(pool, 1, LIMITS, 0.0) == g.Wait("the script is ending", None)


def test_when_all_are_lost_it_waits_for_others_but_not_before_it_began() -> None:
    assert isinstance(decide(GONE, GONE), g.Hold)
    assert isinstance(decide(Lost(), generation=0), g.Fail)


def test_fewer_than_the_fewest_wait() -> None:
    assert isinstance(decide(STOPPED, GONE, limits=replace(LIMITS, min_workers=2)), g.Hold)


@given(
    st.lists(st.sampled_from([Idle(), STOPPED, GONE, ENDED, Working(), Lost(), Starting(0.0)]), min_size=1)
)
def test_no_state_is_handed_over_and_none_is_formed_beside(phases: list[Phase]) -> None:
    decision = decide(*phases)
    if isinstance(decision, g.Form):
        assert (decision.newcomers, decision.beside, decision.first_step) == (0, False, 0)
    assert not isinstance(decision, g.Fail | g.Save | g.Enter)


def test_a_failure_beside_a_loss_is_none_of_the_script_s() -> None:
    run = ScriptRun(failures=3, generation=1, exit=EXIT)
    assert judge_restart(job(run=run), workers(STOPPED, GONE)) == StartAgain(False, "w1 was lost")


def test_a_failure_counts_until_the_restarts_are_used_up() -> None:
    run = noted_exit(ScriptRun(), 1, EXIT, "node-2")
    reason = "rank 1 on node-2 ended with status 3: ValueError: no"
    members = workers(STOPPED, STOPPED)
    assert judge_restart(job(run=run), members) == StartAgain(True, f"{reason}; restart 1 of at most 3")
    assert judge_restart(job(generation=2, run=charged(run)), members) == StartAgain(False, "")
    again = noted_exit(charged(run), 2, EXIT, "node-2")
    verdict = judge_restart(job(generation=2, max_restarts=1, run=again), members)
    assert verdict == FailedForGood(f"the script failed after 1 of 1 restarts: {reason}")
    never = judge_restart(job(max_restarts=0, run=run), members)
    assert never == FailedForGood(f"the script failed and max_restarts is 0: {reason}")


def test_the_first_failure_of_a_generation_is_the_one_that_is_told() -> None:
    run = noted_exit(ScriptRun(), 1, EXIT, "node-2")
    assert noted_exit(run, 1, ScriptExit(rank=0, status=1), "node-1") == run
    assert noted_exit(run, 2, ScriptExit(rank=0, status=1), "node-1").exit.node_name == "node-1"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (1, "rank 0 on node-1 ended with status 1"),
        (-11, "rank 0 on node-1 was killed by signal 11"),
        (-9, "rank 0 on node-1 was killed by signal 9, as the kernel does with who outgrows the memory"),
    ],
)
def test_an_end_is_told_in_words(status: int, words: str) -> None:
    assert describe_exit(ScriptExit(node_name="node-1", status=status)).startswith(words)
