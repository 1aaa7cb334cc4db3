"""A soak's figures in the form of the other benchmarks, with their samples, bounds and verdicts."""

from collections.abc import Mapping

from benchmarks.chaos.jobs import Jobs
from benchmarks.intervals import EXACT
from benchmarks.measure import Measurement, measurement
from benchmarks.soak.growth import growth
from benchmarks.soak.questions import Heard
from benchmarks.soak.sampling import HELD, Sampler

# Whoever starts meets all others by and by: it has a connection to each in the end, and as many threads as
# its pools may have. Under faults that took up to ten minutes. A short run has less of it.
WARM_UP_S, WARM_UP_PART = 600.0, 0.3
BLOCK_S = 10.0
# A connection stays for five minutes after its last use: readings of descriptors that lie closer together
# are not independent of each other.
BLOCKS_S = {"memory": BLOCK_S, "descriptors": 300.0, "threads": BLOCK_S}
LATENCY_BLOCK_S = DISK_BLOCK_S = 60.0  # a job adds a checkpoint each second, and frees them at once
UNITS = {"memory": "MB", "descriptors": "descriptors", "threads": "threads"}
# An hour's growth of one process: what a year of it would take is what these are chosen by, and 8 hours tell.
BOUNDS = {"memory": 20.0, "descriptors": 5.0, "threads": 2.0}
DISK_BOUND_MB = 20.0  # of all agents together, or the trainer: a log of an hour
LATENCY_BOUND_MS = 20.0
WHOLE_MINUTES = 480.0


def summary(
    minutes: float,
    place: str,
    jobs: Jobs,
    questions: Heard,
    sampler: Sampler,
    struck: Mapping[str, int],
) -> list[Measurement]:
    """How long, how much was done, and by how much each thing has grown an hour."""
    length = "the whole 8 hours" if minutes >= WHOLE_MINUTES else "the longest that was run"
    counted = [
        _exact(f"time under faults {place} ({length})", "minutes", minutes),
        _exact("faults that struck", "faults", sum(struck.values())),
        _exact("jobs that ended", "jobs", jobs.count),
    ]
    for what in sorted(questions.took.keys() | questions.failed.keys()):
        failed, answered = questions.failed[what], len(questions.took.get(what, ()))
        share = 100 * failed / (failed + answered)
        counted.append(_exact(f"questions to {what} without answer within their patience", "%", share))
    warm_up_s = min(WARM_UP_S, 60 * minutes * WARM_UP_PART)
    return counted + _held(sampler, warm_up_s) + _disk(sampler, warm_up_s) + _latency(questions, warm_up_s)


def _exact(what: str, unit: str, value: float) -> Measurement:
    return measurement(what, unit, [value], statistic=EXACT)


def _held(sampler: Sampler, warm_up_s: float) -> list[Measurement]:
    found = [
        growth(
            f"{what} of the {kind}",
            UNITS[what],
            lives,
            BOUNDS[what],
            warm_up_s=warm_up_s,
            block_s=BLOCKS_S[what],
        )
        for what in HELD
        for kind, lives in sorted(sampler.lives(what).items())
    ]
    return [one for one in found if one is not None]


def _disk(sampler: Sampler, warm_up_s: float) -> list[Measurement]:
    found = [
        growth(
            f"disk of the {kind}",
            "MB",
            [readings],
            DISK_BOUND_MB,
            warm_up_s=warm_up_s,
            block_s=DISK_BLOCK_S,
        )
        for kind, readings in sorted(sampler.disk.items())
    ]
    return [one for one in found if one is not None]


def _latency(questions: Heard, warm_up_s: float) -> list[Measurement]:
    found = [
        growth(
            f"time of an answer of {what}",
            "ms",
            [readings],
            LATENCY_BOUND_MS,
            warm_up_s=warm_up_s,
            block_s=LATENCY_BLOCK_S,
        )
        for what, readings in sorted(questions.took.items())
    ]
    return [one for one in found if one is not None]
