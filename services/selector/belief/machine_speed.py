"""How fast machines are, from jobs that can't be compared: a job's workers beside each other. Pure.

A worker's speed in a training depends on the model as much as on the machine: a small one keeps none busy.
What a job does tell is who was faster than whom, and by how much. So its speeds are put on the scale of what
is known of its workers:

    machine speed = speed in the job * scale
    scale = geometric median of (machine speed so far / speed in the job), over the workers measured before

Where none was measured before, the scale is the lower median of (own benchmark / speed in the job): who
overstates its machine gains nothing by it, unless most of the job's workers do. Whoever is alone in a job
was compared with nobody, so that its speed tells nothing.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from peerloom.kit.limits import MAX_SPEED_GFLOPS


class WorkerSpeed(NamedTuple):
    """A worker of a job: its speed there and what was known of it before, all in 1e9 operations a second.

    `said_gflops` is its machine's own benchmark, `machine_gflops` the mean of its earlier machine speeds; 0:
    not known.
    """

    speed_gflops: float
    said_gflops: float
    machine_gflops: float


def machine_speeds(workers: Sequence[WorkerSpeed]) -> list[float]:
    """The machine speed of each worker of one job, in 1e9 operations a second; 0: the job doesn't tell it."""
    told = [one for one in workers if one.speed_gflops > 0]
    scale = _scale(told) if len(told) > 1 else 0.0
    return [min(one.speed_gflops * scale, MAX_SPEED_GFLOPS) for one in workers]


def _scale(told: Sequence[WorkerSpeed]) -> float:
    known = [math.log(one.machine_gflops / one.speed_gflops) for one in told if one.machine_gflops > 0]
    if known:
        # The mean of two middle logarithms: a lower median would drift down with the noise of each job.
        return math.exp(statistics.median(known))
    said = [one.said_gflops / one.speed_gflops for one in told if one.said_gflops > 0]
    return statistics.median_low(said) if said else 0.0
