"""What becomes of a script whose processes failed: pure functions with their reasons."""

from collections.abc import Sequence
from dataclasses import dataclass

from peerloom.services.trainer.workers.state import Lost, WorkerState
from peerloom.v1.trainer_pb2 import Job, ScriptExit, ScriptRun


@dataclass(frozen=True)
class StartAgain:
    """The script is started again; `is_charged`: it counts as one of its restarts. "" for nothing to tell."""

    is_charged: bool
    reason: str


@dataclass(frozen=True)
class FailedForGood:
    """The script has failed too often."""

    reason: str


def judge_restart(job: Job, workers: Sequence[WorkerState]) -> StartAgain | FailedForGood:
    """What it costs a script to be started again after the newest generation, which is over.

    Processes fail when another worker is lost, so a failure beside a loss is none of the script's.
    """
    run, most = job.script_run, job.spec.script.max_restarts
    lost = [w for w in workers if w.is_member and isinstance(w.phase, Lost) and w.phase.said is None]
    if lost:
        return StartAgain(is_charged=False, reason=f"{lost[0].worker_id} was lost")
    if not job.generation or run.generation != job.generation:
        return StartAgain(is_charged=False, reason="")
    how = describe_exit(run.exit)
    if run.failures >= most:
        tries = f"after {run.failures} of {most} restarts" if most else "and max_restarts is 0"
        return FailedForGood(f"the script failed {tries}: {how}")
    return StartAgain(is_charged=True, reason=f"{how}; restart {run.failures + 1} of at most {most}")


def charged(run: ScriptRun) -> ScriptRun:
    """The run, after the script was started again because of its own failure."""
    return ScriptRun(failures=run.failures + 1, generation=run.generation, exit=run.exit)


def describe_exit(exit_: ScriptExit) -> str:
    """E.g. "rank 1 on node-2 ended with status 3: ValueError: no such file"."""
    last = exit_.last_lines.rstrip().rpartition("\n")[2].strip()
    how = f"was killed by signal {-exit_.status}" if exit_.status < 0 else f"ended with status {exit_.status}"
    if exit_.status == -9:
        how += ", as the kernel does with who outgrows the memory that the node's owner lends"
    return f"rank {exit_.rank} on {exit_.node_name} {how}{f': {last}' if last else ''}"


def noted_exit(run: ScriptRun, generation: int, exit_: ScriptExit, node_name: str) -> ScriptRun:
    """The run, with a process that failed in this generation: the first one is kept, others fail with it."""
    if run.generation == generation:
        return run
    noted = ScriptRun(failures=run.failures, generation=generation, exit=exit_)
    noted.exit.node_name = node_name
    return noted
