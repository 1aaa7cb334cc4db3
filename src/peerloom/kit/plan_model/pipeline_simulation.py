"""A step of a pipeline, event by event: what each stage's workers compute and send, and when."""

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from heapq import heappop, heappush
from itertools import accumulate
from typing import NamedTuple

from peerloom.kit.plan_model.pipeline_order import PassKind, PipelinePass
from peerloom.kit.plan_model.stage_costs import Boundary, StageCost
from peerloom.kit.stage_ranks import StageRanks


class TimedPass(NamedTuple):
    """A pass and its seconds since the step began; `worker` is which of its stage's, from 0."""

    stage: int
    worker: int
    micro_batch: int
    kind: PassKind
    start_s: float
    end_s: float


class TimedSum(NamedTuple):
    """When a stage's gradients are summed, in seconds since the step began; no time in a stage of one."""

    start_s: float
    end_s: float


class WorkerOrder(NamedTuple):
    """A worker's place, and its passes one after the other."""

    stage: int
    turn: int
    passes: tuple[PipelinePass, ...]


class SimulatedPipeline(NamedTuple):
    """A step's seconds, each stage's sum, and by worker the order of its passes and when each is made."""

    step_s: float
    sums: tuple[TimedSum, ...]
    orders: tuple[WorkerOrder, ...]
    spans_s: list[list[tuple[float, float]]]

    @property
    def passes(self) -> tuple[TimedPass, ...]:
        """All, in the order of each worker."""
        return tuple(
            TimedPass(stage, turn, one.micro_batch, one.kind, *span)
            for (stage, turn, passes), spans in zip(self.orders, self.spans_s, strict=True)
            for one, span in zip(passes, spans, strict=True)
        )


def simulate_pipeline(
    stages: Sequence[StageCost], boundaries: Sequence[Boundary], micro_batches: int, order: str
) -> SimulatedPipeline:
    """Workers compute while they send and receive; messages at once share a worker's link.

    A pass begins when its worker is free and the micro-batch's activations, or their gradients, have arrived.
    From one worker to another one message goes after the other, in the order in which they are made. A worker
    who sends to several, or hears from several, gives each as much of its time: a message is as many times
    slower as there are at its busier end. A stage sums its gradients once its workers have made their passes
    and their messages have left.
    """
    return _Simulation(stages, boundaries, micro_batches, order).run()


@lru_cache(2048)
def _orders_of(order: str, widths: tuple[int, ...], micro_batches: int) -> tuple[WorkerOrder, ...]:
    ranks = StageRanks(widths)
    return tuple(
        WorkerOrder(
            ranks.stage_of(rank), ranks.turn_of(rank), tuple(ranks.passes_of(order, rank, micro_batches))
        )
        for rank in range(ranks.workers)
    )


class _Message(NamedTuple):
    """What goes to a stage: a micro-batch's activations, or the gradients of what it made of them."""

    stage: int
    micro_batch: int
    kind: PassKind
    taken_s: float
    delay_s: float


class _Way:
    """Messages from one worker to another: the first one travels, and has `left_s` of its time to go."""

    __slots__ = ("left_s", "queue", "receiver", "sender", "since_s", "slowness", "version")

    def __init__(self, sender: int, receiver: int) -> None:
        self.sender, self.receiver = sender, receiver
        self.queue: deque[_Message] = deque()
        self.left_s = self.since_s = 0.0
        self.slowness = 1
        self.version = 0  # of what is known of the first message's end


class _Simulation:
    def __init__(
        self, stages: Sequence[StageCost], boundaries: Sequence[Boundary], micro_batches: int, order: str
    ) -> None:
        widths = tuple(len(stage.forward_s) for stage in stages)
        self._stages, self._boundaries, self._widths = stages, boundaries, widths
        self._last = len(stages) - 1
        self._firsts = (0, *accumulate(widths))
        self._orders = _orders_of(order, widths, micro_batches)
        self._backward_s = [one.pass_back_s(order) for one in stages]
        count = len(self._orders)
        self._done, self._is_busy, self._began_s = [0] * count, [False] * count, [0.0] * count
        self._spans_s: list[list[tuple[float, float]]] = [[] for _ in range(count)]
        self._ended_s = [0.0] * count  # passes, and messages
        # Micro-batches whose activations a stage has got, and gradients.
        self._forward_there: list[set[int]] = [set() for _ in stages]
        self._back_there: list[set[int]] = [set() for _ in stages]
        self._ways: dict[tuple[int, int], _Way] = {}
        self._sending: list[list[_Way]] = [[] for _ in range(count)]
        self._hearing: list[list[_Way]] = [[] for _ in range(count)]
        # When, a number for order, and a pass's worker; or a way, or a message that is there.
        self._events: list[tuple[float, int, int, _Way | _Message | None]] = []
        self._number = 0

    def run(self) -> SimulatedPipeline:
        for rank in range(len(self._orders)):
            self._begin(rank, 0.0)
        while self._events:
            now_s, _, which, what = heappop(self._events)
            if what is None:
                self._end(which, now_s)
            elif isinstance(what, _Message):
                there = self._forward_there if what.kind is PassKind.FORWARD else self._back_there
                there[what.stage].add(what.micro_batch)
                self._begin(self._rank_of(what.stage, what.micro_batch), now_s)
            elif which == what.version:
                self._leave(what, now_s)
        starts_s = [
            max(self._ended_s[first:end]) for first, end in zip(self._firsts, self._firsts[1:], strict=False)
        ]
        sums = tuple(
            TimedSum(start_s, start_s + cost.sum_s)
            for start_s, cost in zip(starts_s, self._stages, strict=True)
        )
        return SimulatedPipeline(max(one.end_s for one in sums), sums, self._orders, self._spans_s)

    def _begin(self, rank: int, now_s: float) -> None:
        """The worker's next pass, if it is free and what it needs is there."""
        stage, turn, passes = self._orders[rank]
        if self._is_busy[rank] or self._done[rank] == len(passes):
            return
        _, number, kind = passes[self._done[rank]]
        takes_s = self._backward_s[stage][turn]
        if kind is PassKind.FORWARD:
            takes_s = self._stages[stage].forward_s[turn]
            if stage and number not in self._forward_there[stage]:
                return
        elif kind is PassKind.BACKWARD and stage < self._last and number not in self._back_there[stage]:
            return
        self._is_busy[rank], self._began_s[rank] = True, now_s
        self._at(now_s + takes_s, rank, None)

    def _end(self, rank: int, now_s: float) -> None:
        stage, _, passes = self._orders[rank]
        _, number, kind = passes[self._done[rank]]
        self._spans_s[rank].append((self._began_s[rank], now_s))
        self._ended_s[rank] = now_s
        self._is_busy[rank] = False
        self._done[rank] += 1
        if kind is PassKind.FORWARD and stage < self._last:
            on = self._boundaries[stage]
            way = on[number % len(on)]
            self._send(rank, _Message(stage + 1, number, kind, way.there_s, way.there_delay_s), now_s)
        elif kind is PassKind.BACKWARD and stage:
            before = self._boundaries[stage - 1]
            way = before[number % len(before)]
            self._send(rank, _Message(stage - 1, number, kind, way.back_s, way.back_delay_s), now_s)
        self._begin(rank, now_s)

    def _send(self, rank: int, message: _Message, now_s: float) -> None:
        pair = rank, self._rank_of(message.stage, message.micro_batch)
        way = self._ways.get(pair)
        if way is None:
            way = self._ways[pair] = _Way(*pair)
        way.queue.append(message)
        if len(way.queue) == 1:
            self._sending[way.sender].append(way)
            self._hearing[way.receiver].append(way)
            self._travel(way, now_s)
            self._share(way, now_s)

    def _travel(self, way: _Way, now_s: float) -> None:
        """The first of the queue begins."""
        self._go_on(way, way.queue[0].taken_s, self._slowness(way), now_s)

    def _leave(self, way: _Way, now_s: float) -> None:
        """All of the first message has left."""
        message = way.queue.popleft()
        self._ended_s[way.sender] = now_s
        self._at(now_s + message.delay_s, 0, message)
        if way.queue:
            self._travel(way, now_s)
        else:
            self._sending[way.sender].remove(way)
            self._hearing[way.receiver].remove(way)
            self._share(way, now_s)

    def _share(self, changed: _Way, now_s: float) -> None:
        """Those that travel beside one that has begun or ended become slower or faster."""
        for way in (*self._sending[changed.sender], *self._hearing[changed.receiver]):
            if (slowness := self._slowness(way)) != way.slowness:
                left_s = max(0.0, way.left_s - (now_s - way.since_s) / way.slowness)
                self._go_on(way, left_s, slowness, now_s)

    def _go_on(self, way: _Way, left_s: float, slowness: int, now_s: float) -> None:
        way.left_s, way.slowness, way.since_s, way.version = left_s, slowness, now_s, way.version + 1
        self._at(now_s + left_s * slowness, way.version, way)

    def _slowness(self, way: _Way) -> int:
        return max(len(self._sending[way.sender]), len(self._hearing[way.receiver]))

    def _rank_of(self, stage: int, micro_batch: int) -> int:
        return self._firsts[stage] + micro_batch % self._widths[stage]

    def _at(self, when_s: float, which: int, what: "_Way | _Message | None") -> None:
        self._number += 1
        heappush(self._events, (when_s, self._number, which, what))
