"""Buckets divided by the size of their parameters: what is small travels as it is, the rest by a codec."""

from torch import Tensor

from peerloom.kit.sync_method import SyncMethod
from peerloom.worker.sync.bucket_layout import Layout
from peerloom.worker.sync.coming_sum import ComingSum, take_all
from peerloom.worker.sync.summing import Summing


class SummingBySize:
    """Gives `parts` each bucket once or twice: its small parameters and its large ones by themselves."""

    def __init__(self, parts: Summing, method: SyncMethod) -> None:
        self._parts = parts
        self._from_bytes = method.codec_from
        self._divided: list[ComingSum] = []

    def begin_loss(self, own: Tensor) -> None:
        self._parts.begin_loss(own)

    def begin(self, gradients: Tensor, layout: Layout) -> ComingSum:
        least = self._from_bytes / gradients.element_size()
        small = [place for place in layout.places if place[1].numel() < least]
        large = [place for place in layout.places if place[1].numel() >= least]
        if not small or not large:
            return self._parts.begin(gradients, layout)
        views = layout.by_parameter(gradients)
        packed = [Layout.packed(places) for places in (small, large)]
        copied = [one.flat(views) for one in packed]  # buckets of their own
        parts = [self._parts.begin(flat, one) for flat, one in zip(copied, packed, strict=True)]

        def put() -> None:
            for part, one, flat in zip(parts, packed, copied, strict=True):
                part.take()
                for parameter, sums in one.by_parameter(flat).items():
                    views[parameter].copy_(sums)

        self._divided.append(coming := ComingSum(layout, [done for part in parts for done in part.done], put))
        return coming

    def finish(self) -> float:
        take_all(self._divided)
        return self._parts.finish()
