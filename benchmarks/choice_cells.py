"""The cells in which auto chooses: networks, numbers of workers, and models that suit them."""

import random
from dataclasses import dataclass

SMALL_PARAMETERS = 10_000  # one bucket, whatever the schedule is: only topologies differ
LARGE_PARAMETERS = 10_000_000
BYTES, MOST_STEP_MS = 4, 1500
# The same in each cell, to be held against a choice.
RING, DIRECT, SERVERS = (
    f"schedule=wfbp,topology={topology},codec=none" for topology in ("ring", "direct", "ps")
)
ALWAYS = (RING, DIRECT, SERVERS)


@dataclass(frozen=True)
class ChoiceModel:
    """Equal layers, and how long a batch is computed."""

    name: str
    parameters: int
    layers: int
    compute_ms: float


@dataclass(frozen=True)
class ChoiceNetwork:
    """Links (rate in Mbit/s, delay in ms, one way to the middle), which hosts of `slots` take in turn."""

    name: str
    links: tuple[tuple[float, float], ...]
    slots: int = 1


@dataclass(frozen=True)
class ChoiceCell:
    """A model on so many workers over a network."""

    network: ChoiceNetwork
    workers: int
    model: ChoiceModel

    @property
    def title(self) -> str:
        return f"{self.model.name}, {self.workers} workers, {self.network.name}"

    @property
    def of_hosts(self) -> tuple[tuple[float, float], ...]:
        """Each host's link, in Mbit/s and ms."""
        hosts = self.workers // self.network.slots
        return tuple(self.network.links[host % len(self.network.links)] for host in range(hosts))

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        """The same as a testbed's plan says it."""
        return tuple((f"{rate:g}Mbps", f"{1000 * delay_ms:g}us") for rate, delay_ms in self.of_hosts)

    @property
    def bound_ms(self) -> float:
        """No step is much shorter: computing or an exchange's bytes by the slowest link, and two trips."""
        hosts = len(self.of_hosts)
        sent_bits = 8 * 2 * (hosts - 1) / hosts * BYTES * self.model.parameters
        slowest = min(rate for rate, _ in self.network.links)
        trip_ms = 2 * max(delay for _, delay in self.network.links)
        return max(self.model.compute_ms, sent_bits / slowest / 1e3) + 2 * trip_ms


WIDE = ChoiceModel("wide layers (600,000, 20 ms)", 600_000, 2, 20)
MODELS = (
    ChoiceModel("digits (6,000 parameters, 2 ms)", 6_000, 2, 2),
    ChoiceModel("convolutions (100,000, 30 ms)", 100_000, 4, 30),
    WIDE,
    ChoiceModel("transformer (1.4 million, 130 ms)", 1_400_000, 12, 130),
    ChoiceModel("transformer (10 million, 900 ms)", LARGE_PARAMETERS, 24, 900),
)
NETWORKS = (
    ChoiceNetwork("1 Gbit/s, 0.05 ms", ((1000, 0.05),)),
    *(
        ChoiceNetwork(f"{rate} Mbit/s, {delay} ms", ((rate, delay),))
        for rate in (5, 50, 500)
        for delay in (1, 20, 80)
    ),
    ChoiceNetwork("200, 50, 20 Mbit/s, 1, 10, 40 ms", ((200, 1), (50, 10), (20, 40))),
    ChoiceNetwork("100 and 10 Mbit/s, 1 and 5 ms", ((100, 1), (100, 1), (100, 1), (10, 5))),
    ChoiceNetwork("two a host, 50 Mbit/s, 1 ms", ((50, 1),), slots=2),
    ChoiceNetwork("two a host, 50 Mbit/s, 20 ms", ((50, 20),), slots=2),
)
WORKERS = (2, 4, 8)
CELLS = tuple(
    cell
    for network in NETWORKS
    for workers in WORKERS
    for model in MODELS
    if workers > 2 * (network.slots - 1) and (workers == 4 or model is not WIDE)
    # Eight that move 40 MB a step each keep the cores of a small machine busy: they would measure these.
    if workers <= 4 or model.parameters < LARGE_PARAMETERS
    if (cell := ChoiceCell(network, workers, model)).bound_ms <= MOST_STEP_MS
)


def by_chance() -> list[ChoiceCell]:
    """All cells in an order that is the same each time; those of large models came later, and are first."""
    of_large = [cell for cell in CELLS if cell.model.parameters >= LARGE_PARAMETERS]
    others = [cell for cell in CELLS if cell not in of_large]
    for cells in (of_large, others):
        random.Random(1).shuffle(cells)
    return of_large + others


def ways_of(cell: ChoiceCell) -> tuple[str, ...]:
    """The exact methods that differ there."""
    ways: tuple[str, ...] = ALWAYS if cell.workers == 2 else (*ALWAYS, "topology=doubling")
    if cell.network.slots > 1:
        ways += ("topology=hierarchy",)
    if cell.model.parameters <= SMALL_PARAMETERS:
        return ways
    return (
        *ways,
        "bsp-a2a",
        "schedule=merged:262144",
        "schedule=bsp,topology=direct",
        "schedule=cut:131072,topology=direct",
        "schedule=cut:524288,topology=direct",
        "schedule=cut:131072,topology=ps",
    )
