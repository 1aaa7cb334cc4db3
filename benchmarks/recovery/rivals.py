"""The same faults under torchrun elastic and torchft, on the same machine in the same run.

What doesn't come back within 60 s, or can't be installed, is told in the measurement's name, in the rival's
own words. torchft-nightly is measured in turn with ours at its best limits, which a sweep with a few kills
each finds: first the limit of collectives, then, at the best of those, that of joining. Both sides are told
by their means, as a kill costs torchft either of its limits.
"""

import signal
from functools import partial

from benchmarks.measure import Goal, Measurement, measurement
from benchmarks.recovery.rival_faults import Open, Recoveries, recoveries
from benchmarks.recovery.rival_jobs import NIGHTLY, STABLE, torchft, torchrun
from benchmarks.recovery.running_job import running_job
from benchmarks.recovery.series import recovery_times, signal_worker
from benchmarks.recovery.torchft_limits import EXAMPLE, Limits, Times, best_of, sweep
from benchmarks.words import SWEEP

KILL, STOP = signal.SIGKILL, signal.SIGSTOP
FEW: tuple[tuple[str, Open, signal.Signals], ...] = (
    ("torchrun elastic --max-restarts=3", partial(torchrun, False), KILL),
    ("torchrun elastic, its store unshared", partial(torchrun, True), KILL),
    (f"torchft-nightly as in its example ({EXAMPLE})", partial(torchft, NIGHTLY, EXAMPLE), KILL),
    ("torchft-nightly as in its example", partial(torchft, NIGHTLY, EXAMPLE), STOP),
    ("torchft 0.2.0 as in its example", partial(torchft, STABLE, EXAMPLE), KILL),
)


def run(quick: bool) -> list[Measurement]:
    few, blocks, faults = (1, 1, 1) if quick else (3, 4, 5)
    measured = []
    for name, opened, number in FEW[1::2] if quick else FEW:
        measured += _told(f"{name}, {number.name}", recoveries(opened, number, few), few)

    def measure(limits: Limits) -> Times:
        found = recoveries(partial(torchft, NIGHTLY, limits), KILL, few)
        measured.extend(_told(f"{SWEEP}torchft-nightly, {limits}, SIGKILL", found, few))
        return found.times

    best = best_of(sweep(measure, quick))
    return [*measured, _in_turn(best, blocks, faults)]


def _told(name: str, found: Recoveries, count: int) -> list[Measurement]:
    print(f"   {name}: {', '.join(f'{one:.3f} s' for one in found.times)}{found.end}", flush=True)
    what = f"{name}: faults it came back from, of {count}{found.end}"
    survived = measurement(what, "faults", [len(found.times)])
    return [
        survived,
        *([measurement(f"{name}: to the next step", "s", found.times)] if found.times else []),
    ]


def _in_turn(limits: Limits, blocks: int, faults: int) -> Measurement:
    """Blocks of so many kills: ours, the rival's, ours, the rival's."""
    ours, theirs = list[float](), Recoveries()
    for _ in range(blocks):
        with running_job() as running:
            ours += recovery_times(running, faults, signal_worker(KILL))
        found = recoveries(partial(torchft, NIGHTLY, limits), KILL, faults)
        theirs = Recoveries(theirs.times + found.times, theirs.end + found.end)
    return measurement(
        "from SIGKILL of a worker to the survivors' next committed step, in turn with torchft-nightly",
        "s",
        ours,
        statistic="mean",
        goal=Goal(0.1, at_least=False),
        rival=f"torchft-nightly at its best limits ({limits}){theirs.end}",
        rival_samples=theirs.times,
    )
