"""What the sum of a stage's gradients takes, once its backward passes are over."""

from collections.abc import Sequence

from peerloom.kit.codec_sizes import VALUE_BYTES
from peerloom.kit.plan_model.plan_setting import PlanNetwork, PlanSetting
from peerloom.kit.sync_model.bucket_stages import bucket_plan
from peerloom.kit.sync_model.bucket_topologies import topologies_of
from peerloom.kit.sync_model.buckets import GradientBucket
from peerloom.kit.sync_model.layer_times import LayerTimes
from peerloom.kit.sync_model.step_simulation import CodecWork
from peerloom.kit.sync_model.sync_setting import SyncSetting

_EXCHANGES = 2  # parts to who adds them up, and the sums back


class StageSums:
    """The sums of a setting's stages, each reckoned once."""

    def __init__(self, setting: PlanSetting) -> None:
        self._setting = setting
        self._shared: dict[tuple[int, ...], float] = {}
        self._turns: dict[tuple[tuple[int, ...], int], float] = {}

    def shared_s(self, slots: tuple[int, ...], parameters: int) -> float:
        """Of slots that have all of the model: in one message's rounds, by the setting's `sync`."""
        if len(slots) == 1 or not parameters:
            return 0.0
        if slots not in self._shared:
            setting = self._setting
            sync_setting = SyncSetting(setting.network.among(slots), (LayerTimes("stage", 0, 0.0, 0.0),))
            # Half the bytes a value are half the values of single precision.
            bucket = GradientBucket(0, 0, max(1, round(parameters * setting.value_bytes / 4)))
            sizes = [VALUE_BYTES * bucket.values]
            (topology,) = topologies_of(setting.sync, sync_setting.network, sizes)
            self._shared[slots] = sum(
                one.seconds if isinstance(one, CodecWork) else one.alone_s
                for one in bucket_plan(setting.sync, sync_setting, topology, bucket).stages
            )
        return self._shared[slots]

    def turns_s(self, slots: tuple[int, ...], parameters: int) -> float:
        """Of slots that take turns in a stage, as `exchanged_s` has it."""
        if len(slots) == 1 or not parameters:
            return 0.0
        key = slots, parameters
        if key not in self._turns:
            size_bytes = parameters * self._setting.value_bytes
            self._turns[key] = exchanged_s(self._setting.network, slots, size_bytes)
        return self._turns[key]


def exchanged_s(network: PlanNetwork, slots: Sequence[int], size_bytes: float) -> float:
    """Each of n slots gives each other one a part in n, and then what it has added up of its own part.

    Both times the slot that is busiest with it counts, and the farthest way. A vector of a number a parameter
    goes the same way before, for which only the ways count: it says who has a gradient of which.
    """
    part_bits = 8 * size_bytes / len(slots)
    busiest_s, farthest_s = 0.0, 0.0
    for one in slots:
        others = [other for other in slots if other != one]
        sends_s = sum(part_bits / network.bits_per_s[one][other] for other in others)
        gets_s = sum(part_bits / network.bits_per_s[other][one] for other in others)
        busiest_s = max(busiest_s, sends_s, gets_s)
        farthest_s = max(farthest_s, *(network.delay_s[one][other] for other in others))
    return _EXCHANGES * (busiest_s + 2 * farthest_s)
