"""How many bytes of gradients wait for one another: as many as make the predicted step the shortest.

More of them save start-ups, and less hides behind the backward pass (MG-WFBP: Shi et al., INFOCOM 2019, which
groups layers one by one; here one number of bytes is sought, as all ways to exchange can keep to that).
"""

from collections.abc import Sequence
from dataclasses import replace

from peerloom.kit.codec_sizes import VALUE_BYTES
from peerloom.kit.sync_method import MERGED, NONE, SyncMethod
from peerloom.kit.sync_model.prediction import predict
from peerloom.kit.sync_model.scheme import scheme_of
from peerloom.kit.sync_model.sync_setting import SyncSetting

MERGE_BYTES = tuple(1 << power for power in range(16, 26))


def merged_at_best(methods: Sequence[SyncMethod], setting: SyncSetting) -> tuple[SyncMethod, ...]:
    """These methods, and those of schedule merged with the BYTES that are predicted to be the best there.

    They are those without a codec, which a codec's methods have, too; of equals the most. A model of fewer
    bytes than the fewest has nothing to merge, and no such method is left.
    """
    size_bytes = VALUE_BYTES * sum(layer.parameters for layer in setting.layers)
    offered = [each for each in MERGE_BYTES if each < size_bytes]
    best: dict[SyncMethod, int] = {}
    found = []
    for method in methods:
        if method.schedule != MERGED:
            found.append(method)
        elif offered:
            plain = replace(method, size_bytes=offered[0], codec=NONE, ratio=0.0, low_rank=0)
            if plain not in best:
                best[plain] = _best_bytes(plain, setting, offered)
            found.append(replace(method, size_bytes=best[plain]))
    return tuple(found)


def _best_bytes(method: SyncMethod, setting: SyncSetting, offered: Sequence[int]) -> int:
    def step_s(size_bytes: int) -> float:
        return predict(scheme_of(replace(method, size_bytes=size_bytes)), setting).step_s

    return min(reversed(offered), key=step_s)
