"""Where a step is to be predicted: the network, the model's layers, and how fast codecs are there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import fsum
from types import MappingProxyType

from peerloom.errors import InvalidArgumentError
from peerloom.kit.codec_choices import POWER_SGD
from peerloom.kit.sync_method import BF16, FP16, INT4, INT8, MXFP4, ONE_BIT, TOP_K, TWO_BIT
from peerloom.kit.sync_model.access_links import SyncNetwork
from peerloom.kit.sync_model.layer_times import LayerTimes


@dataclass(frozen=True)
class CodecSpeed:
    """Seconds a value to encode, and to decode; of powersgd for each of its ranks."""

    encode_s: float
    decode_s: float


# One core of a server's processor; a node measures its own.
USUAL_CODEC_SPEEDS: Mapping[str, CodecSpeed] = MappingProxyType(
    {
        FP16: CodecSpeed(0.3e-9, 0.2e-9),
        BF16: CodecSpeed(0.2e-9, 0.2e-9),
        INT8: CodecSpeed(8.4e-9, 0.8e-9),
        INT4: CodecSpeed(6.2e-9, 1.8e-9),
        MXFP4: CodecSpeed(6.2e-9, 1.8e-9),
        TWO_BIT: CodecSpeed(13e-9, 4.3e-9),
        ONE_BIT: CodecSpeed(8.6e-9, 4.7e-9),
        TOP_K: CodecSpeed(11e-9, 0.4e-9),
        POWER_SGD: CodecSpeed(0.7e-9, 0.3e-9),
    }
)


@dataclass(frozen=True)
class SyncSetting:
    """Where a step is made: the network, the layers from the first to the last, and the codecs' speeds.

    `by_topology` has the network as probes of a topology's own collective found it, where that is known: a
    library's exchange may use a link worse than its ring does. `contention` is the part of its speed that
    computing loses while links are busy, from 0 on and below 1. Where ranks differ `speeds` has them, whose
    mean is 1: the layers' times are of shares that fit them. Without `waits_by_layer` a forward pass begins
    when all sums are there, whatever the scheme: as where gradients are clipped. Raises InvalidArgumentError.
    """

    network: SyncNetwork
    layers: tuple[LayerTimes, ...]
    codec_speeds: Mapping[str, CodecSpeed] = field(default_factory=lambda: USUAL_CODEC_SPEEDS)
    by_topology: Mapping[str, SyncNetwork] = field(default_factory=dict)
    contention: float = 0.0
    speeds: tuple[float, ...] = ()
    waits_by_layer: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.contention < 1:
            raise InvalidArgumentError.of_field("contention", self.contention, "from 0 on and below 1")
        if not self.layers:
            raise InvalidArgumentError.of_field("layers", 0, "at least 1")
        if self.speeds and len(self.speeds) != self.network.ranks:
            limit = f"one for each of {self.network.ranks} ranks"
            raise InvalidArgumentError.of_field("speeds", len(self.speeds), limit)
        for topology, network in self.by_topology.items():
            if network.ranks != self.network.ranks:
                limit = f"the {self.network.ranks} of the network"
                raise InvalidArgumentError.of_field(f"ranks of {topology}", network.ranks, limit)

    @property
    def compute_s(self) -> float:
        """A step of one rank by itself."""
        return fsum(layer.forward_s + layer.backward_s for layer in self.layers)

    def share_s(self, rank: int) -> float:
        """What a rank takes for an equal share of the batch."""
        return self.compute_s / self.speeds[rank] if self.speeds else self.compute_s

    def network_of(self, topology: str) -> SyncNetwork:
        """The network as this topology meets it."""
        return self.by_topology.get(topology, self.network)
