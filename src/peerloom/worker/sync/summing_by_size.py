"""Buckets divided by the size of their parameters: what is small travels as it is, the rest by a codec."""

from dataclasses import dataclass

from torch import Tensor

from peerloom.kit.sync_method import SyncMethod
from peerloom.worker.sync.bucket_layout import Gradients, Layout
from peerloom.worker.sync.summing import Summing


class SummingBySize:
    """Gives `parts` each bucket once or twice: its small parameters and its large ones by themselves."""

    def __init__(self, parts: Summing, method: SyncMethod) -> None:
        self._parts = parts
        self._from_bytes = method.codec_from
        self._divided: list[_Division] = []

    def begin_loss(self, own: Tensor) -> None:
        self._parts.begin_loss(own)

    def begin(self, gradients: Tensor, layout: Layout) -> None:
        least = self._from_bytes / gradients.element_size()
        small = [place for place in layout.places if place[1].numel() < least]
        large = [place for place in layout.places if place[1].numel() >= least]
        if not small or not large:
            self._parts.begin(gradients, layout)
            return
        views = layout.by_parameter(gradients)
        for places in (small, large):
            layout = Layout.packed(places)
            division = _Division(views, layout, layout.flat(views))
            self._divided.append(division)
            self._parts.begin(division.flat, division.layout)

    def finish(self) -> float:
        loss = self._parts.finish()
        for division in self._divided:
            for parameter, sums in division.layout.by_parameter(division.flat).items():
                division.views[parameter].copy_(sums)
        self._divided.clear()
        return loss


@dataclass(frozen=True, eq=False)
class _Division:
    """Some of a bucket's parameters, copied from their `views` in it to a bucket of their own."""

    views: Gradients
    layout: Layout
    flat: Tensor
