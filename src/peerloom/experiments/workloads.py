"""The thesis's two workloads."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Workload:
    """A built-in task with the thesis's settings; `batch` is one worker's, as DDP scripts count it."""

    task: str
    title: str
    batch: int
    epochs: int
    train_samples: int
    test_samples: int


WORKLOADS: Mapping[str, Workload] = MappingProxyType(
    {
        one.task: one
        for one in (
            Workload("mnist", "MNIST network, batch 32, 3 epochs", 32, 3, 60_000, 10_000),
            Workload("cifar10", "CIFAR-10 network, batch 4, 1 epoch", 4, 1, 50_000, 10_000),
        )
    }
)
