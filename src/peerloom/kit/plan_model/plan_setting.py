"""What a plan is made for: layers, slots, the links between them, and a batch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from peerloom.errors import InvalidArgumentError
from peerloom.kit.plan_model.model_layers import MOST_PLANNED_LAYERS, ModelLayer
from peerloom.kit.sync_model.access_links import AccessLink, SyncNetwork
from peerloom.kit.sync_model.scheme import SyncScheme

MOST_PLANNED_SLOTS = 64
STATE_BYTES = 16.0  # of a parameter: itself, its gradient, and two moments, as below by default
SAME_HOST_BITS_PER_S = 80e9  # by shared memory: so fast that nothing waits for it


@dataclass(frozen=True)
class PlanSlot:
    """A slot that could take a stage.

    `speed` is 1 for the one that the layers' seconds are of; `memory_bytes` are for parameters, gradients,
    the optimiser and activations. It breaks off once in `interruption_s` on the average (infinite: never).
    Raises InvalidArgumentError.
    """

    name: str
    speed: float
    memory_bytes: float
    interruption_s: float = math.inf

    def __post_init__(self) -> None:
        if not 0 < self.speed < math.inf:
            raise InvalidArgumentError.of_field(f"speed of {self.name}", self.speed, "above 0")
        if not self.memory_bytes >= 0:
            raise InvalidArgumentError.of_field(
                f"memory of {self.name}", self.memory_bytes, "at least 0 bytes"
            )
        if not self.interruption_s > 0:
            raise InvalidArgumentError.of_field(
                f"time to an interruption of {self.name}", self.interruption_s, "above 0 s"
            )


@dataclass(frozen=True)
class PlanNetwork:
    """What one message gets from slot i to slot j: `bits_per_s[i][j]`, above 0, and `delay_s[i][j]`, one way.

    Raises InvalidArgumentError.
    """

    bits_per_s: tuple[tuple[float, ...], ...]
    delay_s: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        count = len(self.bits_per_s)
        for name, table in (("bits_per_s", self.bits_per_s), ("delay_s", self.delay_s)):
            if [len(row) for row in table] != [count] * count:
                raise InvalidArgumentError.of_field(name, len(table), "a row and a column a slot")
        for i in range(count):
            for j in range(count):
                if i != j and not 0 < self.bits_per_s[i][j] < math.inf:
                    raise InvalidArgumentError.of_field(
                        f"the rate from slot {i} to {j}", self.bits_per_s[i][j], "above 0 bits/s"
                    )
                if not 0 <= self.delay_s[i][j] < math.inf:
                    raise InvalidArgumentError.of_field(
                        f"the delay from slot {i} to {j}", self.delay_s[i][j], "at least 0 s"
                    )

    @classmethod
    def of_access(
        cls, links: Sequence[AccessLink], delays_s: Sequence[float], hosts: Sequence[str] = ()
    ) -> "PlanNetwork":
        """Each slot behind its link; between two the slower rate counts, and both delays.

        Slots of one host (`hosts` names each slot's; none: each has its own) have shared memory between them.
        """
        count = len(links)
        own = list(hosts) or [str(number) for number in range(count)]
        together = [[own[i] == own[j] for j in range(count)] for i in range(count)]
        rates = [[min(one.up_bits_per_s, other.down_bits_per_s) for other in links] for one in links]
        return cls(
            tuple(
                tuple(SAME_HOST_BITS_PER_S if together[i][j] else rates[i][j] for j in range(count))
                for i in range(count)
            ),
            tuple(
                tuple(0.0 if together[i][j] else delays_s[i] + delays_s[j] for j in range(count))
                for i in range(count)
            ),
        )

    @classmethod
    def even(cls, slots: int, bits_per_s: float, delay_s: float = 0.0) -> "PlanNetwork":
        """The same from each to each."""
        return cls.of_access([AccessLink(bits_per_s, bits_per_s)] * slots, [delay_s / 2] * slots)

    def among(self, slots: Sequence[int]) -> SyncNetwork:
        """These slots as the ranks of a sum: each one's link as slow as its slowest way to another."""
        links = tuple(
            AccessLink(
                min((self.bits_per_s[i][j] for j in slots if j != i), default=SAME_HOST_BITS_PER_S),
                min((self.bits_per_s[j][i] for j in slots if j != i), default=SAME_HOST_BITS_PER_S),
            )
            for i in slots
        )
        return SyncNetwork(links, tuple(tuple(self.delay_s[i][j] for j in slots) for i in slots))


@dataclass(frozen=True)
class PlanSetting:
    """Layers to be placed on slots, and a batch of so many samples a step.

    `value_bytes` has each parameter, and as many its gradient; `optimiser_bytes` its moments. A pass of a
    micro-batch costs `pass_overhead_s` besides its samples. A stage on several slots sums its gradients
    by `sync`. After an interruption all wait `regroup_s`; a stage whose only slot broke off goes on from a
    copy of its state that is made every `snapshot_s`. Raises InvalidArgumentError.
    """

    layers: tuple[ModelLayer, ...]
    slots: tuple[PlanSlot, ...]
    network: PlanNetwork
    batch: int
    value_bytes: float = 4.0
    optimiser_bytes: float = 8.0
    pass_overhead_s: float = 0.0
    regroup_s: float = 1.0
    snapshot_s: float = 60.0
    sync: SyncScheme = field(default_factory=SyncScheme)

    def __post_init__(self) -> None:
        if not 1 <= len(self.slots) <= MOST_PLANNED_SLOTS:
            raise InvalidArgumentError.of_field("slots", len(self.slots), f"from 1 to {MOST_PLANNED_SLOTS}")
        if not 1 <= len(self.layers) <= MOST_PLANNED_LAYERS:
            raise InvalidArgumentError.of_field(
                "layers", len(self.layers), f"from 1 to {MOST_PLANNED_LAYERS}"
            )
        if len(self.network.bits_per_s) != len(self.slots):
            limit = f"one for each of the {len(self.slots)} slots"
            raise InvalidArgumentError.of_field("rows of the network", len(self.network.bits_per_s), limit)
        if self.batch < 1:
            raise InvalidArgumentError.of_field("batch", self.batch, "at least 1 sample")
        for name in ("value_bytes", "optimiser_bytes", "pass_overhead_s", "regroup_s", "snapshot_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidArgumentError.of_field(name, getattr(self, name), "at least 0")
        if not any(layer.forward_s + layer.backward_s for layer in self.layers):
            raise InvalidArgumentError("No layer takes any time: say how long one takes, or its operations.")
        if self.sync.period > 1:
            raise InvalidArgumentError.of_field("period", self.sync.period, "1: a stage's slots stay alike")

    @property
    def state_bytes(self) -> float:
        """What a parameter takes in memory: itself, its gradient, and what the optimiser keeps of it."""
        return 2 * self.value_bytes + self.optimiser_bytes
