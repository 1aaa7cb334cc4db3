"""A soak's figures in the form of the other benchmarks, with their samples, bounds and verdicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.chaos.jobs import Jobs
from benchmarks.intervals import EXACT
from benchmarks.measure import Measurement, measurement
from benchmarks.soak.growth import Reading, growth
from benchmarks.soak.questions import Heard
from benchmarks.soak.sampling import HELD, Sampler

# Whoever starts meets all others by and by, and keeps what it needs for each: under faults that took up to
# ten minutes. A short run has less of it.
WARM_UP_S, WARM_UP_PART = 600.0, 0.3


@dataclass(frozen=True)
class Bound:
    """How much of something may come in an hour, and the seconds whose readings are taken together."""

    unit: str
    most: float
    block_s: float


# An hour's growth of one process: what a year of it would take is what these are chosen by, and 8 hours tell.
# A job's pipes are there as long as it is: readings of descriptors that lie closer together than a minute are
# not independent of each other. Disk is that of all agents together, or the trainer's: a log of an hour;
# a job adds a checkpoint each second, and frees them at once.
BOUNDS = {
    "memory": Bound("MB", 20.0, 10.0),
    "descriptors": Bound("descriptors", 5.0, 60.0),
    "threads": Bound("threads", 2.0, 10.0),
    "disk": Bound("MB", 20.0, 60.0),
    "answers": Bound("ms", 20.0, 60.0),
}
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
    for kind, most in sorted(sampler.most_connections.items()):
        counted.append(_exact(f"most connections of the {kind} to one address at once", "connections", most))
    warm_up_s = min(WARM_UP_S, 60 * minutes * WARM_UP_PART)
    disk = {kind: [readings] for kind, readings in sampler.disk.items()}
    answers = {what: [readings] for what, readings in questions.took.items()}
    grown = [
        *(_growths(f"{what} of the", sampler.lives(what), BOUNDS[what], warm_up_s) for what in HELD),
        _growths("disk of the", disk, BOUNDS["disk"], warm_up_s),
        _growths("time of an answer of", answers, BOUNDS["answers"], warm_up_s),
    ]
    return counted + [one for each in grown for one in each]


def _exact(what: str, unit: str, value: float) -> Measurement:
    return measurement(what, unit, [value], statistic=EXACT)


def _growths(
    what: str, lives: Mapping[str, Sequence[Sequence[Reading]]], bound: Bound, warm_up_s: float
) -> list[Measurement]:
    """That of each service whose lives were long enough to tell."""
    found = [
        growth(f"{what} {name}", bound.unit, read, bound.most, warm_up_s=warm_up_s, block_s=bound.block_s)
        for name, read in sorted(lives.items())
    ]
    return [one for one in found if one is not None]
