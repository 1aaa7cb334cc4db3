"""What a worker has measured that outlives a generation."""

from collections.abc import Sequence

from peerloom.v1.trainer_pb2 import MeasuredCodec, MeasuredLayer, MeasuredLink
from peerloom.worker.mesh.pacing import LinkRates

LASTING_S = 300.0  # others may use a link too, and then not any more: rates are measured again after that


class NodeMeasures:
    """This node's codecs, layers by sample, and ways to other nodes, and what all their links carry."""

    def __init__(self) -> None:
        self.codecs: list[MeasuredCodec] | None = None
        self.together_bits_per_s = 0.0  # what came while all asked all
        self._ways: dict[str, MeasuredLink] = {}  # by the other one's node
        self._rates: dict[str, tuple[float, LinkRates]] = {}  # when they were measured, and by node what
        self._layers: list[MeasuredLayer] = []
        self._samples = 0.0

    @property
    def has_layers(self) -> bool:
        """Whether they were ever timed."""
        return bool(self._layers)

    def note_ways(self, links: Sequence[MeasuredLink], nodes: Sequence[str]) -> None:
        """They were measured to ranks on these nodes."""
        self._ways = {nodes[link.rank]: link for link in links}

    def ways(self, nodes: Sequence[str], rank: int) -> list[MeasuredLink]:
        """The known ones from `rank` to others on these nodes."""
        found = []
        for other, node in enumerate(nodes):
            if other != rank and node in self._ways:
                found.append(MeasuredLink())
                found[-1].CopyFrom(self._ways[node])
                found[-1].rank = other
        return found

    def note_rates(self, nodes: Sequence[str], links: Sequence[LinkRates], now_s: float) -> None:
        """All have agreed on what the link of each rank's node carries; `now_s` is of a monotonic clock."""
        self._rates.update(
            {node: (now_s, link) for node, link in zip(nodes, links, strict=True) if link.is_known}
        )

    def rates(self, nodes: Sequence[str], now_s: float) -> list[LinkRates]:
        """What is known of each node's link, and not for too long."""
        never = (-LASTING_S, LinkRates())
        known = [self._rates.get(node, never) for node in nodes]
        return [link if at_s > now_s - LASTING_S else LinkRates() for at_s, link in known]

    def note_layers(self, layers: list[MeasuredLayer], samples: float) -> None:
        """They were timed in steps with so many samples of this worker's."""
        self._layers, self._samples = layers, samples

    def layers(self, samples: float) -> list[MeasuredLayer]:
        """What they would take with so many samples."""
        scale = samples / self._samples if self._samples else 1.0
        return [
            MeasuredLayer(
                parameters=one.parameters, forward_s=one.forward_s * scale, backward_s=one.backward_s * scale
            )
            for one in self._layers
        ]
