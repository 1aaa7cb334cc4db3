"""What each rank tells the others of their links, and what all make of it. Pure."""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from peerloom.worker.measuring.together_probe import FASTEST_BITS_PER_S
from peerloom.worker.mesh.pacing import LinkRates

_HEAD = struct.Struct("!?Id")
_LINK = struct.Struct("!dd")
MOST_UNTIL_NEXT = (1 << 32) - 1


@dataclass(frozen=True)
class RateNews:
    """One rank's word: whether links should be measured, and after how many steps or rounds they are again.

    `together_bits_per_s` is what came to it while all asked all, 0: not measured; `links` what it knows of
    each rank's.
    """

    wants_measuring: bool
    until_next: int
    together_bits_per_s: float
    links: Sequence[LinkRates]

    def packed(self) -> bytes:
        """As a message."""
        links = (_LINK.pack(link.up_bits_per_s, link.down_bits_per_s) for link in self.links)
        return _HEAD.pack(self.wants_measuring, self.until_next, self.together_bits_per_s) + b"".join(links)


def parsed(content: bytes) -> RateNews:
    """What a rank has told; what can't be a rate counts as not known."""
    wants, until_next, together = _HEAD.unpack_from(content)
    links = [LinkRates(_rate(up), _rate(down)) for up, down in _LINK.iter_unpack(content[_HEAD.size :])]
    return RateNews(wants, max(1, until_next), _rate(together), links)


def agreed(told: Sequence[RateNews]) -> list[LinkRates]:
    """What each rank's link carries, by all that was told, in the order of ranks.

    As much as any way shows. While all asked all it brought what came, and sent what each other one got.
    """
    together = [news.together_bits_per_s for news in told]
    return [
        LinkRates(
            max(
                *(news.links[rank].up_bits_per_s for news in told),
                min(together[:rank] + together[rank + 1 :]),
            ),
            max(*(news.links[rank].down_bits_per_s for news in told), together[rank]),
        )
        for rank in range(len(told))
    ]


def _rate(told: float) -> float:
    return min(told, FASTEST_BITS_PER_S) if math.isfinite(told) and told > 0 else 0.0
