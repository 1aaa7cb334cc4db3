"""The direct exchange: each rank sends each other one its part of a tensor, in one round of messages.

Two of them make an all-reduce of the bytes of a ring: the first brings everybody's values for a part to its
owner, the second the owner's result to all.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from peerloom.worker.sync import Collectives, SyncTraffic, TensorFuture


@dataclass(frozen=True, eq=False)
class RowExchange:
    """A tensor that travels, and one of the same size for what comes: the rows of all ranks."""

    sent: torch.Tensor
    received: torch.Tensor
    device: torch.device  # where it came from, and is wanted
    done: TensorFuture


class DirectExchange:
    """Exchanges among all ranks of a group, whose bytes are added to `traffic`."""

    def __init__(self, collectives: Collectives, traffic: SyncTraffic) -> None:
        self._collectives = collectives
        self._traffic = traffic

    @property
    def rank(self) -> int:
        """Which of the parts is this rank's."""
        return dist.get_rank()

    @property
    def ranks(self) -> int:
        """How many parts there are."""
        return self._collectives.world_size

    def begin(self, sent: torch.Tensor) -> RowExchange:
        """Sends the n-th of equal parts of a flat tensor to rank n."""
        # Only NCCL's goes from GPU to GPU.
        at_hand = sent if dist.get_backend() == dist.Backend.NCCL else sent.cpu()
        received = torch.empty_like(at_hand)
        self._traffic.bytes += sent.numel() * sent.element_size()
        work = dist.all_to_all_single(received, at_hand, async_op=True)
        return RowExchange(at_hand, received, sent.device, self._collectives.follow(work))

    def begin_to_all(self, own: torch.Tensor) -> RowExchange:
        """Sends the same to each rank."""
        return self.begin(own.flatten().repeat(self.ranks))

    def rows(self, exchange: RowExchange) -> torch.Tensor:
        """What came, a row a rank. Raises what `Collectives.result` does."""
        self._collectives.result(exchange.done)
        return exchange.received.to(exchange.device).view(self.ranks, -1)
