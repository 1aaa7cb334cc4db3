"""The direct exchange: each rank sends each other one its part of a tensor, in one round of messages.

Two of them make an all-reduce of the bytes of a ring: the first brings everybody's values for a part to its
owner, the second the owner's result to all. Messages go by the mesh, and the second round begins by itself.
Over NCCL there is no mesh: there the library's own exchange goes from GPU to GPU.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from peerloom.worker.mesh.frames import Tag
from peerloom.worker.sync import Collectives, SyncTraffic, TensorFuture

# What an owner makes of all ranks' rows [n, b] for its part: its result [b], on the processor too.
Make = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, eq=False)
class RowExchange:
    """A tensor that travels, and one for what comes: a row a rank, or a row a part."""

    sent: torch.Tensor
    received: torch.Tensor
    device: torch.device  # where it came from, and is wanted
    done: TensorFuture


class DirectExchange:
    """Exchanges among all ranks of a group, whose bytes are added to `traffic`.

    With `members` it is among these ranks alone, of which this is one, by their places, and beside what all
    exchange meanwhile: as many exchanges have to begin in each such part of the group. Needs a mesh then.
    """

    def __init__(
        self, collectives: Collectives, traffic: SyncTraffic, members: Sequence[int] | None = None
    ) -> None:
        self._collectives = collectives
        self._traffic = traffic
        self._is_beside = members is not None
        self._members = range(collectives.world_size) if members is None else tuple(members)
        self.rank = self._members.index(collectives.rank)  # which of the parts is this rank's

    @property
    def ranks(self) -> int:
        """How many parts there are."""
        return len(self._members)

    @property
    def nodes(self) -> Sequence[str]:
        """The node of each rank."""
        return [self._collectives.node_ids[rank] for rank in self._members]

    def begin(self, sent: torch.Tensor) -> RowExchange:
        """Sends the n-th of equal parts of a flat tensor to rank n."""
        mesh = self._collectives.mesh
        if mesh is None:
            return self._begin_collective(sent)
        rows = sent.cpu().view(self.ranks, -1)
        received = torch.empty_like(rows)
        received[self.rank] = rows[self.rank]
        outgoing, incoming = self._of_others(rows), self._of_others(received)
        self._traffic.bytes += sum(row.nbytes for row in outgoing.values())
        done = mesh.begin(mesh.next_sequence(self._is_beside), outgoing, {0: incoming})
        return RowExchange(rows, received, sent.device, done)

    def begin_to_all(self, own: torch.Tensor) -> RowExchange:
        """Sends the same to each rank."""
        return self.begin(own.flatten().repeat(self.ranks))

    def begin_by_owners(
        self, sent: torch.Tensor, owners: Sequence[int], make: Make, urgency: int = 0
    ) -> RowExchange:
        """Sends row i of [m, b] to the rank `owners[i]`, and gets what that makes of all ranks' rows.

        `make` is called in any thread, once all rows of this rank's own part are there. Needs a mesh.
        """
        mesh, rank = self._collectives.mesh, self.rank
        assert mesh is not None, "the group was formed with a mesh"
        rows = sent.cpu().contiguous()
        results = torch.empty_like(rows)
        others = {i: self._members[owner] for i, owner in enumerate(owners) if owner != rank}
        outgoing = {owner: rows[i] for i, owner in others.items()}
        incoming = {1: {owner: results[i] for i, owner in others.items()}}
        self._traffic.bytes += sum(row.nbytes for row in outgoing.values())
        sequence, thens = mesh.next_sequence(self._is_beside), []
        if rank in owners:
            own, came = owners.index(rank), rows.new_empty(self.ranks, rows.shape[1])
            came[rank] = rows[own]
            incoming[0] = self._of_others(came)
            self._traffic.bytes += rows[own].nbytes * (self.ranks - 1)

            def give() -> None:
                results[own] = make(came)
                to_all = dict.fromkeys(incoming[0], results[own])
                mesh.send(Tag(sequence, 1), to_all, urgency)

            thens = [give]

        done = mesh.begin(sequence, outgoing, incoming, thens, urgency)
        return RowExchange(rows, results, sent.device, done)

    def rows(self, exchange: RowExchange) -> torch.Tensor:
        """What came, a row a rank or a part. Raises what `Collectives.result` does."""
        self._collectives.result(exchange.done)
        return exchange.received.to(exchange.device)

    def _of_others(self, rows: torch.Tensor) -> dict[int, torch.Tensor]:
        return {rank: rows[i] for i, rank in enumerate(self._members) if i != self.rank}

    def _begin_collective(self, sent: torch.Tensor) -> RowExchange:
        received = torch.empty_like(sent)
        self._traffic.bytes += sent.nbytes
        work = dist.all_to_all_single(received, sent, async_op=True)
        rows = received.view(self.ranks, -1)
        return RowExchange(sent, rows, sent.device, self._collectives.follow(work))
