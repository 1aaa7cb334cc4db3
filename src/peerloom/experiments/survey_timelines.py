"""A small model's step by several methods, event by event, to be looked at."""

from typing import Any

from peerloom.kit.sync_method import SERVERS
from peerloom.kit.sync_model.access_links import SyncNetwork
from peerloom.kit.sync_model.layer_times import layers_of_work
from peerloom.kit.sync_model.prediction import predict
from peerloom.kit.sync_model.scheme import SyncScheme
from peerloom.kit.sync_model.sync_setting import SyncSetting

WORKERS, BITS_PER_S, DELAY_S, COMPUTE_S = 4, 1e9, 0.002, 0.3
# As in most models the last layers are the largest.
PARAMETERS = (300_000, 300_000, 1_000_000, 1_000_000, 2_500_000, 2_500_000)
SCHEMES = {
    "bsp-a2a": SyncScheme(after_backward=True, merge_bytes=2**40),
    "wfbp-a2a": SyncScheme(),
    "mg-wfbp": SyncScheme(merge_bytes=8_000_000),
    "bytescheduler-ps": SyncScheme(topology=SERVERS, cut_bytes=2_000_000),
}


def small_timelines() -> dict[str, Any]:
    """What a rank's processor and link do in one step of 4 equal workers over 1 Gbit/s, 2 ms apart."""
    layers = layers_of_work("layer", PARAMETERS, [1.0] * len(PARAMETERS), COMPUTE_S)
    setting = SyncSetting(SyncNetwork.uniform(WORKERS, BITS_PER_S, DELAY_S), layers)
    return {name: _timeline(scheme, setting) for name, scheme in SCHEMES.items()}


def _timeline(scheme: SyncScheme, setting: SyncSetting) -> dict[str, Any]:
    found = predict(scheme, setting)
    intervals = [
        {
            "resource": one.resource,
            "what": one.what,
            "start_s": round(one.start_s, 5),
            "end_s": round(one.end_s, 5),
        }
        for one in found.timeline
    ]
    return {"step_s": round(found.step_s, 5), "intervals": intervals}
