"""How soon a pipeline goes on after a stage's worker was killed, and what the shadows cost that make it so.

Run by `make bench-pipeline-recovery`. Three stages of a model of 25 million parameters, and a spare worker,
on loopback. Parameters, activations, gradients, optimiser, shadows and traffic are real; computing is
emulated (the task "emulated"): it is waited for, since two cores can't compute for three nodes at once. Each
kill is SIGKILL of one stage after the other; what a watching user sees is timed, from the signal to the next
committed step: a whole step is a part of that, so the steps before each kill are told too. The cost is the
step with shadows beside the step without, in turn.

A step has 4 micro-batches: with more the real arithmetic of gradients, which two cores share, outweighs all
that is emulated.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.committed import stamp_s
from benchmarks.emulated_job import job_ms
from benchmarks.measure import Goal, Measurement, measurement
from benchmarks.recovery.running_job import process_of
from benchmarks.recovery.series import told
from peerloom import Client, Embedded, GenerationFormed, Job, JobHandle, StepCommitted

STAGES, PARAMETERS, LAYERS, BATCH, COMPUTE_MS = 3, 25_000_000, 12, 48, 600
PLAN = "pipeline=4:8,micro_batches=4"
KILLS, QUICK_KILLS, ROUNDS, QUICK_ROUNDS, STEPS, WARM_UP = 50, 3, 5, 1, 20, 4
STEPS_BETWEEN = 4  # until the replacement's spare is there, and each shadow again
RECOVERY_GOAL_S, COST_GOAL = 1.0, 1.15


def run(quick: bool) -> list[Measurement]:
    """Kills first, then the cost."""
    with _system() as client:
        times, lost_steps, steps_s = _kills(client, QUICK_KILLS if quick else KILLS)
        found = told("from SIGKILL of a stage's worker to the next step", times, None, RECOVERY_GOAL_S)
        found.append(measurement("a step before a kill", "s", steps_s))
        goal = Goal(0, at_least=False)
        found.append(
            measurement("steps made again after a kill", "", lost_steps, statistic="mean", goal=goal)
        )
        return [*found, _cost(client, QUICK_ROUNDS if quick else ROUNDS, 6 if quick else STEPS)]


def profile(quick: bool) -> str:
    """None: the job's events say how long each generation took to form."""
    return ""


@contextmanager
def _system() -> Iterator[Client]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Embedded(Path(folder) / "state", slots=(1,) * (STAGES + 1), log_level="error") as system,
        Client(system.address) as client,
    ):
        yield client


def _arguments(steps: int) -> dict[str, str]:
    return {
        "parameters": str(PARAMETERS),
        "layers": str(LAYERS),
        "sample_ms": str(COMPUTE_MS / BATCH),
        "samples": str(BATCH * steps),
    }


def _kills(client: Client, count: int) -> tuple[list[float], list[float], list[float]]:
    """Seconds to the next step after each kill, how many steps it made again, and the last step before it."""
    job = client.train(
        "emulated",
        epochs=10_000,
        arguments=_arguments(50),
        requests=STAGES + 1,
        max_workers=STAGES + 1,
        batch_size=BATCH,
        plan=PLAN,
    )
    times: list[float] = []
    lost_steps: list[float] = []
    steps_s: list[float] = []
    killed_s, newest, quiet, generation = 0.0, 0, 0, 0
    for event in job.watch():
        if isinstance(event, GenerationFormed) and killed_s:
            lost_steps.append(newest - event.first_step if newest > event.first_step else 0)
            newest, generation = min(newest, event.first_step), event.generation
        elif isinstance(event, StepCommitted):
            if killed_s and event.generation == generation:
                times.append(stamp_s(event) - killed_s)
                print(f"   {len(times)} of {count}: {1000 * times[-1]:.0f} ms", flush=True)
                killed_s, quiet = 0.0, -1
            newest, quiet = event.step, quiet + 1
            if len(times) == count:
                break
            if not killed_s and quiet >= STEPS_BETWEEN and _is_whole(job.status()):
                killed_s, generation = _kill(job, len(times) % STAGES), 0
                steps_s.append(event.step_s)
    job.cancel()
    return times, lost_steps, steps_s


def _is_whole(job: Job) -> bool:
    living = [worker for worker in job.workers if not worker.ended]
    kept = [worker.shadow for worker in living if worker.shadow is not None and not worker.shadow.why_not]
    return len(living) == STAGES + 1 and len(kept) == STAGES


def _kill(job: JobHandle, stage: int) -> float:
    living = [w for w in job.status().workers if not w.ended and w.shadow is not None]
    process = process_of(next(worker.id for worker in living if worker.rank == stage))
    begin_s = time.time()
    process.kill()
    return begin_s


def _cost(client: Client, rounds: int, steps: int) -> Measurement:
    taken: dict[str, list[float]] = {PLAN: [], f"{PLAN},shadow=off": []}
    for _ in range(rounds):
        for plan, samples in taken.items():
            settings = {"requests": STAGES, "batch_size": BATCH, "plan": plan}
            asked = {"settings": settings, "arguments": _arguments(WARM_UP + steps), "warm_up": WARM_UP}
            samples.append(job_ms(client, asked))
    with_shadows, without = taken.values()
    goal = Goal(COST_GOAL, at_least=False, of_ratio=True)
    name = f"a step of {STAGES} stages with shadows, {PARAMETERS / 1e6:.0f} million parameters, loopback"
    return measurement(name, "ms", with_shadows, goal=goal, rival="shadow=off", rival_samples=without)
