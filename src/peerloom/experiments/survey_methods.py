"""The survey's seven methods, in the model's terms."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from peerloom.experiments.survey_hardware import (
    GPUS_A_MACHINE,
    INFINIBAND_BITS_PER_S,
    PCIE_BITS_PER_S,
    MachineServers,
    ring_of,
)
from peerloom.kit.sync_method import SERVERS
from peerloom.kit.sync_model.layer_times import LayerTimes
from peerloom.kit.sync_model.prediction import StepPrediction, predict
from peerloom.kit.sync_model.scheme import SyncScheme
from peerloom.kit.sync_model.sync_setting import SyncSetting

_ALL = 2**40
_MIB = 2**20
# Merging and cutting are tuned, each over these sizes.
SIZES = tuple(size * _MIB for size in (1, 4, 16, 64))
METHODS: dict[str, tuple[SyncScheme, ...]] = {
    "bsp-ps": (SyncScheme(topology=SERVERS, after_backward=True, merge_bytes=_ALL),),
    "bsp-a2a": (SyncScheme(after_backward=True, merge_bytes=_ALL),),
    "wfbp-ps": (SyncScheme(topology=SERVERS),),
    "wfbp-a2a": (SyncScheme(),),
    "mg-wfbp": tuple(SyncScheme(merge_bytes=size) for size in SIZES),
    "bytescheduler-ps": tuple(SyncScheme(topology=SERVERS, cut_bytes=size) for size in SIZES),
    "bytescheduler-a2a": tuple(SyncScheme(cut_bytes=size) for size in SIZES),
}


@dataclass(frozen=True)
class Links:
    """The rates inside a machine and between machines, in bits/s."""

    pcie_bits_per_s: float = PCIE_BITS_PER_S
    network_bits_per_s: float = INFINIBAND_BITS_PER_S


def predicted(
    method: str, layers: Sequence[LayerTimes], workers: int, contention: float, links: Links | None = None
) -> tuple[StepPrediction, SyncScheme]:
    """A step by the method, with the best of its sizes."""
    links = links or Links()
    # The slowest link of a ring decides; machines are in it only where there are several.
    between = links.network_bits_per_s if workers > GPUS_A_MACHINE else links.pcie_bits_per_s
    network = ring_of(workers, min(links.pcie_bits_per_s, between))
    best = None
    for scheme in METHODS[method]:
        is_served = scheme.topology == SERVERS
        shape = tuple(layers)
        if method == "wfbp-ps":
            shape = _partitioned(shape, max(1, workers // GPUS_A_MACHINE))
        servers = MachineServers(links.pcie_bits_per_s, links.network_bits_per_s)
        found = predict(
            scheme, SyncSetting(network, shape, contention=contention), servers if is_served else None
        )
        if best is None or found.step_s < best[0].step_s:
            best = found, scheme
    assert best is not None, "a method has at least one scheme"
    return best


def _partitioned(layers: Sequence[LayerTimes], servers: int) -> tuple[LayerTimes, ...]:
    """Each tensor in a part a server, as BytePS spreads them, complete when the tensor's pass is over."""
    parts: list[LayerTimes] = []
    for layer in layers:
        sizes = [layer.parameters // servers + (n < layer.parameters % servers) for n in range(servers)]
        idle = [LayerTimes(layer.name, size, 0.0, 0.0) for size in sizes[:-1]]
        # The backward pass comes to the last part first.
        parts += [*idle, replace(layer, parameters=sizes[-1])]
    return tuple(parts)
