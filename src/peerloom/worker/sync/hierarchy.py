"""Sums by site: inside each site first, then between the sites' leaders, and back inside.

The leader of a site adds up what its members have, as it is. The leaders exchange their sums as ranks do with
`direct`: each owns a part, which it sums and encodes. All decode those bytes, which the leaders pass on. So
only leaders encode, and what that leaves out is theirs; what a member had kept before goes into its sum.
"""

from functools import partial

import torch
from torch.nn.functional import pad

from peerloom.kit.logs import get_logger
from peerloom.kit.sync_method import CUT, SyncMethod
from peerloom.kit.sync_sites import leaders_of
from peerloom.worker.mesh.frames import Tag
from peerloom.worker.sync import Collectives, SyncTraffic, TensorFuture
from peerloom.worker.sync.bucket_layout import Layout
from peerloom.worker.sync.bucket_pieces import piece_bounds
from peerloom.worker.sync.codecs import Codec, codec_of
from peerloom.worker.sync.codecs.casting import wide
from peerloom.worker.sync.coming_sum import ComingSum, take_all
from peerloom.worker.sync.direct import DirectExchange, RowExchange
from peerloom.worker.sync.residuals import Residuals
from peerloom.worker.sync.summing import method_for

_UP, _PUSH, _PULL, _DOWN = range(4)  # phases of an exchange
_log = get_logger()


class HierarchySumming:
    """Sums by the sites of the ranks' nodes; the losses, a number each, go to all at once."""

    def __init__(
        self, collectives: Collectives, traffic: SyncTraffic, method: SyncMethod, residuals: Residuals
    ) -> None:
        self._collectives = collectives
        self._traffic = traffic
        self._method = method
        self._residuals = residuals
        self._leaders = leaders_of(method.sites, collectives.node_ids)
        self._exchange = DirectExchange(collectives, traffic)
        self._losses: RowExchange | None = None
        self._under_way: list[ComingSum] = []
        named = {node for site in method.sites for node in site}
        absent = sorted(named.difference(collectives.node_ids))
        _log.info("sites_found", leaders=self._leaders, rank=collectives.rank, absent=absent)

    def begin_loss(self, own: torch.Tensor) -> None:
        self._losses = self._exchange.begin_to_all(own)

    def begin(self, gradients: torch.Tensor, layout: Layout) -> ComingSum:
        values = wide(gradients)
        if self._method.has_feedback:
            values = values + self._residuals.of(layout)
        method = method_for(self._method, layout, gradients.element_size())
        pieces: list[SiteSum] = []
        urgency = len(self._under_way) if self._method.schedule == CUT else 0  # the first layers come last
        count = len(set(self._leaders))
        for start, end in piece_bounds(self._method, len(values), gradients.element_size()):
            codec = codec_of(method, -(-(end - start) // count), gradients.dtype)
            piece = SiteSum(self._collectives, self._leaders, values[start:end].cpu(), codec, urgency)
            self._traffic.bytes += piece.sent_bytes
            pieces.append(piece)
        done = [piece.done for piece in pieces]
        self._under_way.append(
            coming := ComingSum(layout, done, partial(self._put, gradients, layout, pieces))
        )
        return coming

    def finish(self) -> float:
        take_all(self._under_way)
        assert self._losses is not None, "a step begins with its loss"
        return float(self._exchange.rows(self._losses).sum())

    def _put(self, gradients: torch.Tensor, layout: Layout, pieces: list["SiteSum"]) -> None:
        for piece in pieces:
            self._collectives.result(piece.done)
        gradients.copy_(torch.cat([piece.total() for piece in pieces]))
        if self._method.has_feedback:
            left_out = torch.cat([piece.left_out for piece in pieces])
            self._residuals.set_aside(layout, left_out.to(gradients.device))


class SiteSum:
    """One exchange of this rank's values [d], on the processor; `leaders` as `leaders_of` gives them.

    Once `done` is complete with a tensor there is a `total`, and `left_out` [d] is what this rank's codec
    left out: zeros of a member's.
    """

    def __init__(
        self,
        collectives: Collectives,
        leaders: tuple[int, ...],
        own: torch.Tensor,
        codec: Codec,
        urgency: int,
    ) -> None:
        assert collectives.mesh is not None, "the group was formed with a mesh"
        self.left_out = torch.zeros_like(own)
        self._mesh, self._codec, self._urgency, self._own = collectives.mesh, codec, urgency, own
        self._leaders = sorted(set(leaders))
        self._length = -(-len(own) // len(self._leaders))
        self._rank, self._leader = collectives.rank, leaders[collectives.rank]
        blank = codec.encode(own.new_zeros(len(self._leaders), self._length))
        self._results = torch.empty_like(blank)
        self._sequence = self._mesh.next_sequence()
        if self._leader != self._rank:
            self.sent_bytes = own.nbytes
            incoming = {_DOWN: {self._leader: self._results}}
            self.done: TensorFuture = self._mesh.begin(
                self._sequence, {self._leader: own}, incoming, (), urgency
            )
            return
        self._members = [rank for rank, leader in enumerate(leaders) if leader == self._rank != rank]
        self._others = {rank: place for place, rank in enumerate(self._leaders) if rank != self._rank}
        self._place = self._leaders.index(self._rank)
        part_bytes = blank[0].nbytes
        self.sent_bytes = 2 * len(self._others) * part_bytes + len(self._members) * blank.nbytes
        self._came = own.new_empty(len(self._members), len(own))
        self._parts = torch.empty_like(blank)  # everybody's of this leader's part
        incoming = {
            _UP: {rank: self._came[place] for place, rank in enumerate(self._members)},
            _PUSH: {rank: self._parts[place] for rank, place in self._others.items()},
            _PULL: {rank: self._results[place] for rank, place in self._others.items()},
        }
        thens = [self._push, self._pull, self._give_back]
        self.done = self._mesh.begin(self._sequence, {}, incoming, thens, urgency)

    def total(self) -> torch.Tensor:
        """The sum [d], decoded from the same bytes on all ranks."""
        return self._codec.decode(self._results, self._length).flatten()[: len(self._own)]

    def _push(self) -> None:
        """The site's sum is there: each leader gets its part of it."""
        values = torch.cat([self._own[None], self._came]).sum(0)
        rows = pad(values, (0, -len(values) % len(self._leaders))).view(len(self._leaders), -1)
        encoded = self._codec.encode(rows)
        left_out = rows - self._codec.decode(encoded, self._length)
        self.left_out = left_out.flatten()[: len(values)]
        self._parts[self._place] = encoded[self._place]
        self._send(_PUSH, {rank: encoded[place] for rank, place in self._others.items()})

    def _pull(self) -> None:
        """All sites' sums of the own part are there: all leaders get what they come to."""
        total = self._codec.decode(self._parts, self._length).sum(0, keepdim=True)
        result = self._codec.encode(total)
        own = self.left_out[self._place * self._length :][: self._length]
        own += (total - self._codec.decode(result, self._length))[0][: len(own)]
        self._results[self._place] = result[0]
        self._send(_PULL, dict.fromkeys(self._others, result[0]))

    def _give_back(self) -> None:
        self._send(_DOWN, dict.fromkeys(self._members, self._results))

    def _send(self, phase: int, outgoing: dict[int, torch.Tensor]) -> None:
        self._mesh.send(Tag(self._sequence, phase), outgoing, self._urgency)
