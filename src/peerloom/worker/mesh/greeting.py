"""Short messages between all ranks while nothing else is on its way.

By the shortest trip that it has seen TCP's BBR reckons how much a connection may hold. Connections that were
made beside the training of the generation before have seen a full line only; and the first messages of the
training, which all send at once, would show them no better. So one direction may get less than its share for
ten seconds, after which BBR looks again.
"""

from collections.abc import Iterator

import torch

from peerloom.worker.group.waits import TensorFuture
from peerloom.worker.mesh.mesh import Mesh

TIMES = 3  # the first ones may wait behind what the generation before has left; the later ones acknowledge


def greetings(mesh: Mesh, rank: int, ranks: int) -> Iterator[TensorFuture]:
    """Each with all others, to be waited for before the next is asked for; all ranks do so as their first."""
    peers = [other for other in range(ranks) if other != rank]
    for _ in range(TIMES):
        outgoing = {peer: torch.zeros(1, dtype=torch.uint8) for peer in peers}
        incoming = {peer: torch.empty(1, dtype=torch.uint8) for peer in peers}
        yield mesh.begin(mesh.next_sequence(), outgoing, {0: incoming})
