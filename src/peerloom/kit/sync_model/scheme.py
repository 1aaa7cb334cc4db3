"""A way to synchronise as the model describes it: four choices, any of which fit together."""

from dataclasses import dataclass, replace

from peerloom.errors import InvalidArgumentError
from peerloom.kit.averaged_parts import AveragedParts
from peerloom.kit.codec_choices import POWER_SGD
from peerloom.kit.codec_sizes import (
    VALUE_BYTES,
    encoded_bytes,
    is_worth_encoding,
    is_worth_factoring,
    square_side,
)
from peerloom.kit.rank_groups import RankGroups
from peerloom.kit.sync_method import (
    BSP,
    CUT,
    DIRECT,
    DOUBLING,
    HIERARCHY,
    KEY_BYTES,
    NONE,
    RING,
    SERVERS,
    SyncMethod,
)
from peerloom.kit.sync_sites import Sites

TOPOLOGIES = (RING, DIRECT, SERVERS, DOUBLING, HIERARCHY)
DDP_BUCKET_BYTES, DDP_FIRST_BUCKET_BYTES = 25 * 2**20, 2**20  # torch's own


@dataclass(frozen=True)
class SyncScheme:
    """Which gradients leave together, when, which way and as what.

    A layer's gradient leaves by itself, or with others once they have `merge_bytes` together
    (`first_merge_bytes` for the first such bucket; 0: `merge_bytes`). With `cut_bytes` what leaves together
    is cut into pieces of these at most, the first layers' go before others, and the next forward pass waits
    layer by layer for all pieces (ByteScheduler: Peng et al., SOSP 2019). `after_backward`: nothing leaves
    before the backward pass is over. `owners` of topology ps sum a part each; 0: each rank, or each of the
    network's servers where there are such, or with `server_nodes` each rank on these. `period` is the steps
    from one exchange to the next; beyond 1 it is of parameters, after the last, and with `is_delayed` the
    next period's steps are computed meanwhile. `groups` average their parameters within a period, as they
    are, or all average parts of them (`partial`), by the codec. `low_rank` is the RANK of powersgd; layers of
    fewer than `codec_from` bytes travel as they are. `sites` are those of topology hierarchy, and of groups.
    Raises InvalidArgumentError.
    """

    topology: str = RING
    after_backward: bool = False
    merge_bytes: int = 0
    first_merge_bytes: int = 0
    cut_bytes: int = 0
    owners: int = 0
    codec: str = NONE
    ratio: float = 0.0
    period: int = 1
    sites: Sites = ()
    low_rank: int = 0
    codec_from: int = 0
    server_nodes: tuple[str, ...] = ()
    is_delayed: bool = False
    groups: RankGroups | None = None
    partial: AveragedParts | None = None

    def __post_init__(self) -> None:
        if self.topology not in TOPOLOGIES:
            raise InvalidArgumentError.of_field("topology", self.topology, f"one of {', '.join(TOPOLOGIES)}")
        for field in ("merge_bytes", "first_merge_bytes", "cut_bytes", "owners"):
            if getattr(self, field) < 0:
                raise InvalidArgumentError.of_field(field, getattr(self, field), "at least 0")
        if self.period < 1:
            raise InvalidArgumentError.of_field("period", self.period, "at least 1 step")
        if self.cut_bytes and self.after_backward:
            raise InvalidArgumentError.of_field("cut_bytes", self.cut_bytes, "0 with after_backward")

    @property
    def waits_by_layer(self) -> bool:
        """Whether a layer's next forward pass waits for its own sum only, where the model allows it.

        With powersgd the second factors of all layers travel together.
        """
        return bool(self.cut_bytes) and self.period == 1 and self.codec != POWER_SGD

    def message_bytes(self, values: int) -> int:
        """The length of a message of so many single-precision values."""
        return encoded_bytes(self._wire, values) if self.encodes(values) else values * VALUE_BYTES

    def encodes(self, values: int) -> bool:
        """Whether a message of so many values is worth encoding; of powersgd it has factors already."""
        return self.codec not in (NONE, POWER_SGD) and is_worth_encoding(self._wire, values)

    def factor_values(self, parameters: int) -> int:
        """What each of a layer's two factors has; 0: it travels as it is. It counts as one square matrix."""
        side = square_side(parameters)
        if self.codec != POWER_SGD or self.is_small(parameters):
            return 0
        return side * self.low_rank if is_worth_factoring(self._wire, side, side) else 0

    def is_small(self, parameters: int) -> bool:
        """Whether a layer of so many parameters travels as it is, for its size."""
        return parameters * VALUE_BYTES < self.codec_from

    def without_codec(self) -> "SyncScheme":
        """The same, with values as they are."""
        return replace(self, codec=NONE, ratio=0.0, low_rank=0, codec_from=0)

    @property
    def _wire(self) -> SyncMethod:
        return SyncMethod(
            codec=self.codec, ratio=self.ratio, low_rank=self.low_rank, codec_from=self.codec_from
        )


def scheme_of(method: SyncMethod) -> SyncScheme:
    """What a job's method does, in the model's terms: torch DDP cuts the buckets, by sizes that are given."""
    key_bytes = KEY_BYTES if method.topology == SERVERS else 0
    given_bytes = method.size_bytes or key_bytes
    return SyncScheme(
        topology=method.topology,
        after_backward=method.schedule == BSP,
        merge_bytes=given_bytes or DDP_BUCKET_BYTES,
        first_merge_bytes=given_bytes or DDP_FIRST_BUCKET_BYTES,
        cut_bytes=method.size_bytes if method.schedule == CUT else 0,
        owners=method.servers,
        codec=method.codec,
        ratio=method.ratio,
        period=method.batches,
        sites=method.sites,
        low_rank=method.low_rank,
        codec_from=method.codec_from,
        server_nodes=method.server_nodes,
        is_delayed=method.rounds is not None and method.rounds.delay > 0,
        groups=method.groups,
        partial=method.partial,
    )
