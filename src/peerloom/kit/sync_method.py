"""One way to synchronise the steps of a job: its choices, and what follows from them. Pure functions.

A schedule says when gradients travel, a topology which way, a codec as what; a period, how many batches each
rank trains on before; a staleness, how old their parameters may be; federated rounds, that each has data of
its own. BSP is the bulk-synchronous schedule, WFBP the wait-free one of Poseidon (Zhang et al., USENIX ATC
2017). To merge is MG-WFBP's way (Shi, Chu, Li, INFOCOM 2019), with a threshold that is given. To cut,
to send the first layers first, and to begin with those again is ByteScheduler's (Peng et al., SOSP 2019).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from peerloom.kit.averaged_parts import AveragedParts
from peerloom.kit.codec_choices import CODEC_FROM, POWER_SGD
from peerloom.kit.federated_rounds import FederatedRounds
from peerloom.kit.local_rounds import LocalRounds
from peerloom.kit.rank_groups import RankGroups
from peerloom.kit.robust_rules import OFF
from peerloom.kit.stale_steps import ASP, StaleSteps
from peerloom.kit.sync_sites import Sites, renamed, renamed_nodes, shown_sites

BSP, WFBP, MERGED, CUT = "bsp", "wfbp", "merged", "cut"
RING, DIRECT, SERVERS, DOUBLING, HIERARCHY = "ring", "direct", "ps", "doubling", "hierarchy"
NONE, FP16, BF16 = "none", "fp16", "bf16"
INT8, INT4, MXFP4, TWO_BIT, ONE_BIT, TOP_K = "int8", "int4", "mxfp4", "2bit", "1bit", "topk"
SPREAD_BYTES = (
    1 << 18
)  # from here on all servers own a part of what is sent at once: one alone would hold all up
KEY_BYTES = 1 << 20  # of a bucket for servers, where the schedule says no size: what is early travels early


@dataclass(frozen=True)
class SyncMethod:
    """One way to synchronise each step.

    `ratio` is the part of the values that topk sends, else 0; `low_rank` the RANK of powersgd, else 0;
    `codec_from` the bytes from which on a parameter has the codec, 0: all; `size_bytes` the BYTES of merged
    and cut, else 0; `servers` the K of ps, 0: all ranks; `server_nodes` those whose ranks alone are servers;
    `sites` the nodes of each site of a hierarchy. With `rounds` each rank makes a round of steps by
    itself, and what travels is what those have changed; with `federated`, which has `rounds` too, the
    clients' own data decide how many. With `stale` a step takes what gradients there are, also of older
    parameters.
    """

    schedule: str = WFBP
    topology: str = RING
    codec: str = NONE
    ratio: float = 0.0
    rounds: LocalRounds | None = None
    size_bytes: int = 0
    servers: int = 0
    federated: FederatedRounds | None = None
    sites: Sites = ()
    low_rank: int = 0
    codec_from: int = 0
    stale: StaleSteps | None = None
    server_nodes: tuple[str, ...] = ()

    @property
    def named_nodes(self) -> tuple[str, ...]:
        """The nodes that its topology names."""
        return (*self.server_nodes, *(node for site in self.sites for node in site))

    @property
    def is_exact(self) -> bool:
        """Nothing but the order of adding separates its steps from those of one process."""
        return self.codec == NONE and self.rounds is None and self.stale is None

    @property
    def batches(self) -> int:
        """Batches that are committed at once, but for an epoch's last; a federated round counts as one."""
        return self.rounds.period if self.rounds is not None and self.federated is None else 1

    @property
    def groups(self) -> RankGroups | None:
        """Who averages with whom within a round; None: nobody does."""
        return self.rounds.groups if self.rounds is not None else None

    @property
    def partial(self) -> AveragedParts | None:
        """Which values all average within a round; None: none."""
        return self.rounds.partial if self.rounds is not None else None

    @property
    def needs_mesh(self) -> bool:
        """Its messages go from worker to worker, not by a library's collective."""
        return self.topology != RING

    @property
    def has_feedback(self) -> bool:
        """What its codec leaves out in one step is added to the next one's gradients."""
        return self.is_decoded or self.codec == POWER_SGD

    @property
    def is_decoded(self) -> bool:
        """What its codec makes has to be decoded before it is added up, which a ring can't."""
        return self.codec in (INT8, INT4, MXFP4, TWO_BIT, ONE_BIT, TOP_K)

    def without_codec(self) -> "SyncMethod":
        """The same, with values as they are."""
        return replace(self, codec=NONE, ratio=0.0, low_rank=0, codec_from=0)

    def renamed(self, names: Mapping[str, str]) -> "SyncMethod":
        """The same, with another name for each node that has one."""
        server_nodes = renamed_nodes(self.server_nodes, names)
        return replace(self, server_nodes=server_nodes, sites=renamed(self.sites, names))

    def __str__(self) -> str:
        schedule = f"{self.schedule}:{self.size_bytes}" if self.size_bytes else self.schedule
        detail = shown_sites(self.sites) or "+".join(self.server_nodes) or (self.servers or "")
        topology = f"{self.topology}:{detail}" if detail else self.topology
        codec = f"{self.codec}:{self.ratio!r}" if self.codec == TOP_K else self.codec
        codec = f"{codec}:{self.low_rank}" if self.low_rank else codec
        codec = f"{codec},{CODEC_FROM}={self.codec_from}" if self.codec_from else codec
        if self.federated is not None:
            return f"{self.federated},topology={topology},codec={codec}"
        rounds = f",{self.rounds}" if self.rounds is not None else ""
        stale = f",{self.stale}" if self.stale is not None else ""
        return f"schedule={schedule},topology={topology},codec={codec}{rounds}{stale}"


PRESETS = {
    "wfbp-a2a": SyncMethod(),
    "bsp-a2a": SyncMethod(BSP),
    "wfbp-ps": SyncMethod(topology=SERVERS),
    "bsp-ps": SyncMethod(BSP, SERVERS),
    "mg-wfbp": SyncMethod(MERGED, size_bytes=1 << 20),
    "bytescheduler-ps": SyncMethod(CUT, SERVERS, size_bytes=1 << 19),
    "bytescheduler-a2a": SyncMethod(CUT, DIRECT, size_bytes=1 << 19),
    "local-sgd": SyncMethod(BSP, rounds=LocalRounds(16)),
    # In short trainings this did better than the 0.7 and 0.9 of DiLoCo's authors, who trained far longer.
    "diloco": SyncMethod(BSP, rounds=LocalRounds(32, rate=1.0, momentum=0.6)),
    "cocod-sgd": SyncMethod(BSP, rounds=LocalRounds(16, delay=1)),
    "diloco-eager": SyncMethod(BSP, rounds=LocalRounds(32, rate=1.0, momentum=0.6, delay=1)),
    # A hundredth of the bytes: decision 118 has what that costs, and what else was tried.
    "partial-averaging": SyncMethod(
        BSP, DIRECT, TWO_BIT, rounds=LocalRounds(1000, partial=AveragedParts(parts=7, every=1))
    ),
    ASP: SyncMethod(BSP, stale=StaleSteps(None)),
}


def why_not_nccl(method: SyncMethod, robust: str = OFF) -> str:
    """Why a job can't use NCCL; empty when it can."""
    if method.needs_mesh and robust == OFF:
        return "messages from worker to worker go by way of the processor, beside gloo and never over NCCL"
    return ""
