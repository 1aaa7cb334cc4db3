"""Settings whose predictions a hand can compute: a megabyte takes a second."""

from peerloom.kit.sync_model.access_links import SyncNetwork
from peerloom.kit.sync_model.layer_times import LayerTimes
from peerloom.kit.sync_model.prediction import StepPrediction, predict
from peerloom.kit.sync_model.scheme import SyncScheme
from peerloom.kit.sync_model.sync_setting import SyncSetting

ALL = 2**40
MEGABYTE = 250_000  # values
BSP = SyncScheme(after_backward=True, merge_bytes=ALL)


def network(ranks: int = 4, delay_s: float = 0.0, servers: int = 0) -> SyncNetwork:
    """8 Mbit/s, so that a megabyte takes a second."""
    return SyncNetwork.uniform(ranks, 8e6, delay_s, servers=servers)


def layers(*megabytes: float, forward_s: float = 0.0, backward_s: float = 0.0) -> tuple[LayerTimes, ...]:
    return tuple(LayerTimes("", int(size * MEGABYTE), forward_s, backward_s) for size in megabytes)


def step(scheme: SyncScheme, net: SyncNetwork, *megabytes: float, backward_s: float = 0.0) -> StepPrediction:
    return predict(scheme, SyncSetting(net, layers(*megabytes, backward_s=backward_s)))
