"""What can be set for an experiment, checked."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from peerloom.errors import InvalidArgumentError, NotFoundError
from peerloom.experiments import thesis
from peerloom.experiments.workloads import WORKLOADS

NODE_LIMIT = 64
WORKER_LIMIT = 64
ROUND_LIMIT = 10_000
MAX_REPEATS = 100_000
MAX_SLOWDOWN = 1000

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """The settings of all experiments; each uses those that concern it.

    `data` maps a workload's name to the folder of its official files; a workload without one gets generated
    data, `scale` (above 0, at most 1) times as many training samples as the official set has. `slots` has one
    entry a node; `rounds` None is the experiment's own number; `workers` is the most that `scaling` tries,
    `systems` how many fresh ones `selection` asks for each budget, `repeats` how often it repeats that in the
    simulator (0: not); `over` is the address of a system that runs, whose nodes and network `scaling` takes
    (empty: one of its own on loopback). `networks` are those of ns-3 that the experiments with emulated
    compute run over, and `slowdown`, 1 at least, how many times slower than the thesis's their devices are.
    Raises InvalidArgumentError or NotFoundError.
    """

    data: dict[str, Path]
    workloads: tuple[str, ...] = tuple(WORKLOADS)
    scale: float = 0.05
    seed: int = 0
    rounds: int | None = None
    budgets: tuple[int, ...] = thesis.BUDGETS
    workers: int = 8
    slots: tuple[int, ...] = thesis.slots_of_nodes()
    policy: str = ""
    systems: int = 1
    repeats: int = 1000
    over: str = ""
    networks: tuple[str, ...] = ("csma-200M", "csma-100M", "wan-100M-1ms")
    slowdown: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.scale <= 1:
            raise InvalidArgumentError.of_field("scale", self.scale, "above 0 and at most 1")
        if not 1 <= self.slowdown <= MAX_SLOWDOWN:
            raise InvalidArgumentError.of_field("slowdown", self.slowdown, f"from 1 to {MAX_SLOWDOWN:,}")
        if not self.networks or len(set(self.networks)) < len(self.networks):
            raise InvalidArgumentError.of_field("networks", ",".join(self.networks), "one or more, each once")
        _check_range("workers", self.workers, 1, WORKER_LIMIT)
        _check_range("systems", self.systems, 1, 1000)
        _check_range("repeats", self.repeats, 0, MAX_REPEATS)
        _check_range("seed", self.seed, 0, 2**63 - 1)
        if self.rounds is not None:
            _check_range("rounds", self.rounds, 1, ROUND_LIMIT)
        self._check_nodes()
        self._check_data()

    def _check_nodes(self) -> None:
        _check_range("the number of nodes", len(self.slots), 2, NODE_LIMIT)
        for count in self.slots:
            _check_range("slots of a node", count, 0, 1024)
        if not any(self.slots):
            raise InvalidArgumentError.of_field(
                "slots of all nodes", 0, "at least 1: there would be no compute to reach"
            )
        if not self.budgets:
            raise InvalidArgumentError.of_field("budgets", "", "at least one number")
        for budget in self.budgets:
            # The node that asks doesn't ask itself.
            _check_range("budget", budget, 1, len(self.slots) - 1)

    def _check_data(self) -> None:
        if not self.workloads:
            raise InvalidArgumentError.of_field("workloads", "", f"one or more of {', '.join(WORKLOADS)}")
        for name in (*self.workloads, *self.data):
            if name not in WORKLOADS:
                raise NotFoundError.of_name("workload", name, WORKLOADS)
        for name, folder in self.data.items():
            if not folder.expanduser().is_dir():
                what = "is a file, not a folder" if folder.exists() else "doesn't exist"
                raise NotFoundError(
                    f"The folder {folder}, given for {name}, {what}. Name the one with its official files, "
                    "or leave it out: the data are generated then, for timing only.",
                    reason="DATA_FOLDER_NOT_FOUND",
                    metadata={"folder": str(folder)},
                )


def _check_range(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidArgumentError.of_field(field, value, f"from {low:,} to {high:,}")
