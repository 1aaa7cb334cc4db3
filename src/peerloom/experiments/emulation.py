"""Devices whose computing is waited for: what a step of the thesis's workloads takes on them, and why.

The thesis prints no rate of its GPUs, but times of training on 2, 3 and 5 of them (Figures 7 and 8). A step
of n GPUs, each with its own batch, is read as compute + (n - 1) * k: a ring's messages and, on one shared
medium, its bytes grow with n - 1. Two printed times a workload give both unknowns; the compute of both
workloads gives a device's two: operations a second, and what a step takes whatever its batch is.
"""

import statistics
from dataclasses import dataclass, replace

from peerloom.experiments import thesis
from peerloom.experiments.workloads import WORKLOADS, Workload
from peerloom.worker.tasks.layer_shapes import SHAPES


@dataclass(frozen=True)
class Device:
    """What computes: `operations_per_s`, and `step_s` seconds that a step takes beside its samples."""

    name: str
    operations_per_s: float
    step_s: float

    def slower(self, factor: float) -> "Device":
        """The same with everything `factor` times as long (above 0)."""
        return replace(self, operations_per_s=self.operations_per_s / factor, step_s=self.step_s * factor)

    def sample_s(self, workload: str) -> float:
        """Seconds of both passes of one sample."""
        return operations(workload) / self.operations_per_s

    def compute_s(self, workload: str, samples: float) -> float:
        """Seconds of a step's computing with so many samples on this device."""
        return self.step_s + samples * self.sample_s(workload)


def operations(workload: str) -> int:
    """Of a sample, both passes."""
    return sum(shape.operations for shape in SHAPES[workload])


def parameters(workload: str) -> int:
    """Of the workload's network."""
    return sum(shape.parameters for shape in SHAPES[workload])


def training_steps(workload: Workload, batch: int, slowdown: float = 1.0) -> float:
    """Steps of the whole training, on one `slowdown`-th of its samples, with `batch` samples a step."""
    return workload.epochs * workload.train_samples / (slowdown * batch)


def thesis_step_s(workload: Workload) -> tuple[float, float]:
    """A step's compute on one of the thesis's GPUs, and what each further GPU adds to it, in seconds."""
    steps_s: dict[int, list[float]] = {}
    for reached, training_s in thesis.ROUNDS_OF_3[workload.task]:
        if reached != "none":
            gpus = sum(map(int, reached.split(" and ")))
            step_s = training_s / training_steps(workload, workload.batch * gpus)
            steps_s.setdefault(gpus, []).append(step_s)
    (few, few_s), (many, many_s) = sorted((gpus, statistics.fmean(each)) for gpus, each in steps_s.items())
    further_s = (many_s - few_s) / (many - few)
    return few_s - (few - 1) * further_s, further_s


def thesis_gpu() -> Device:
    """The device that takes, with each workload's own batch, what the thesis's printed times say."""
    one, other = WORKLOADS.values()
    one_s, other_s = thesis_step_s(one)[0], thesis_step_s(other)[0]
    work = one.batch * operations(one.task) - other.batch * operations(other.task)
    rate = work / (one_s - other_s)
    return Device("the thesis's GPU", rate, one_s - one.batch * operations(one.task) / rate)
