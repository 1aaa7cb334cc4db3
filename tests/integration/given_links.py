"""What probes find, given by a task.

Loopback has no links to speak of, and on a busy machine it may seem slow for a moment.
"""

from collections.abc import Callable

from peerloom.v1.trainer_pb2 import MeasuredLink
from peerloom.worker.measuring.link_probe import LinkProbe
from peerloom.worker.measuring.together_probe import TogetherProbe


def give_links(delay_s: float, bits_per_s: Callable[[int], tuple[float, float]]) -> None:
    """In this process ways to a rank have these rates, there and back, whatever they really carry."""

    def given(self: LinkProbe) -> list[MeasuredLink]:
        rates = {peer: bits_per_s(peer) for peer in range(self._rank + 1, self._ranks)}
        return [
            MeasuredLink(rank=peer, delay_s=delay_s, sent_bits_per_s=sent, received_bits_per_s=received)
            for peer, (sent, received) in rates.items()
        ]

    LinkProbe.run = given  # type: ignore[method-assign]  # a task can't hand links to its worker's probe
    TogetherProbe.run = lambda self: 0.0  # type: ignore[method-assign]  # a task can't keep its worker from probing
