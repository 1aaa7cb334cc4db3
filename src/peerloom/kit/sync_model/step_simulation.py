"""Steps run as discrete events: passes layer by layer, and the buckets' messages as soon as they may."""

from collections import defaultdict
from dataclasses import dataclass, field

from peerloom.kit.sync_model.buckets import GradientBucket
from peerloom.kit.sync_model.event_queue import EventQueue, Interval, LinkQueue, Processor, Then
from peerloom.kit.sync_model.layer_times import LayerTimes
from peerloom.kit.sync_model.message_rounds import MessageRound


@dataclass(frozen=True)
class CodecWork:
    """Encoding or decoding on the ranks' processors."""

    name: str
    seconds: float


@dataclass(frozen=True)
class BucketPlan:
    """What becomes of a bucket, stage by stage; that of `held_from` waits for the backward pass."""

    bucket: GradientBucket
    stages: tuple[MessageRound | CodecWork, ...]
    held_from: int

    def name(self, stage: int) -> str:
        """What a stage does, and to which layers."""
        first, last = self.bucket.first_layer, self.bucket.last_layer
        return f"{self.stages[stage].name} {first}" + (f" to {last}" if last > first else "")


@dataclass(frozen=True)
class StepPlan:
    """What a step consists of.

    A forward pass waits for the step before: with `waits_by_layer` each layer for its own sums, and then the
    first layers' buckets go first on all links; else the first layer for all. Of the library's collectives
    `library_threads` run at once.
    """

    layers: tuple[LayerTimes, ...]
    buckets: tuple[BucketPlan, ...]
    links: tuple[str, ...]
    waits_by_layer: bool
    library_threads: int = 1


@dataclass
class StepState:
    """How far a step is: what isn't summed yet, by layer and in all, and since when its passes are over."""

    missing: list[int]
    unsummed: int
    held: list[tuple[int, int]] = field(default_factory=list)  # buckets, by number, and their next stage
    backward_end_s: float | None = None
    end_s: float | None = None

    @classmethod
    def of(cls, plan: StepPlan) -> "StepState":
        """A step that hasn't begun."""
        missing = [0] * len(plan.layers)
        for one in plan.buckets:
            for layer in range(one.bucket.first_layer, one.bucket.last_layer + 1):
                missing[layer] += 1
        return cls(missing, len(plan.buckets))


@dataclass(frozen=True)
class SimulatedSteps:
    """When each step's backward pass was over, when each step's last sum was there, and all that happened."""

    backward_end_s: tuple[float, ...]
    end_s: tuple[float, ...]
    log: tuple[Interval, ...]


def simulate(plan: StepPlan, steps: int, contention: float = 0.0) -> SimulatedSteps:
    """So many steps, one after the other.

    `contention` is the part of the processor's speed that is lost while links are busy, from 0 to below 1.
    """
    return _Simulation(plan, steps, contention).run()


class _Simulation:
    def __init__(self, plan: StepPlan, steps: int, contention: float) -> None:
        self._plan = plan
        self._events = EventQueue()
        self._log: list[Interval] = []
        self._processor = Processor(self._events, self._log, contention)
        used = self._processor.links_used
        self._links = [LinkQueue(name, self._events, self._log, used) for name in plan.links]
        threads = plan.library_threads
        self._library = LinkQueue("collectives", self._events, self._log, used, at_once=threads)
        self._steps = [StepState.of(plan) for _ in range(steps)]
        forward, backward = range(len(plan.layers)), reversed(range(len(plan.layers)))
        passes = [(True, layer) for layer in forward] + [(False, layer) for layer in backward]
        self._passes = [(step, *one) for step in range(steps) for one in passes]
        self._next_pass = 0
        self._is_computing = False
        self._complete_with: dict[int, list[int]] = defaultdict(
            list
        )  # buckets, by number, by their first layer
        for number, one in enumerate(plan.buckets):
            self._complete_with[one.bucket.first_layer].append(number)

    def run(self) -> SimulatedSteps:
        self._advance()
        self._events.run()
        backward_end_s = tuple(step.backward_end_s or 0.0 for step in self._steps)
        return SimulatedSteps(
            backward_end_s, tuple(step.end_s or 0.0 for step in self._steps), tuple(self._log)
        )

    def _advance(self) -> None:
        """Begins the next layer's pass, if the sums that it needs are there."""
        if self._is_computing or self._next_pass == len(self._passes):
            return
        step, is_forward, number = self._passes[self._next_pass]
        if is_forward and step and not self._may_begin(self._steps[step - 1], number):
            return
        self._next_pass += 1
        self._is_computing = True
        layer = self._plan.layers[number]
        seconds, what = (layer.forward_s, "forward") if is_forward else (layer.backward_s, "backward")
        self._processor.compute(seconds, f"{what} {number}", lambda: self._computed(step, is_forward, number))

    def _may_begin(self, before: StepState, layer: int) -> bool:
        return (before.missing[layer] if self._plan.waits_by_layer else before.unsummed) == 0

    def _computed(self, step: int, is_forward: bool, layer: int) -> None:
        self._is_computing = False
        if not is_forward:
            for number in self._complete_with.get(layer, ()):
                self._continue(step, number, 0)
            if layer == 0:
                self._backward_ended(step)
        self._advance()

    def _backward_ended(self, step: int) -> None:
        state = self._steps[step]
        state.backward_end_s = self._events.now_s
        for number, stage in state.held:
            self._continue(step, number, stage)
        self._end_if_summed(state)

    def _continue(self, step: int, number: int, stage: int) -> None:
        """The bucket's next stage, unless it has to wait."""
        plan, state = self._plan.buckets[number], self._steps[step]
        if stage == len(plan.stages):
            self._summed(state, plan.bucket)
            return
        if stage >= plan.held_from and state.backward_end_s is None:
            state.held.append((number, stage))
            return
        work, what = plan.stages[stage], plan.name(stage)
        if isinstance(work, CodecWork):
            self._processor.compute(
                work.seconds, what, lambda: self._continue(step, number, stage + 1), urgent=True
            )
        else:
            urgency = (step, plan.bucket.first_layer) if self._plan.waits_by_layer else ()
            self._send(work, what, urgency, lambda: self._continue(step, number, stage + 1))

    def _send(self, messages: MessageRound, what: str, urgency: tuple[int, ...], arrived: Then) -> None:
        left = len(messages.busy) + bool(messages.library_s)

        def gone() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self._events.after(messages.delay_s, arrived)

        if not left:
            arrived()
        for link, busy_s in messages.busy:
            self._links[link].serve(urgency, busy_s, what, gone)
        if messages.library_s:
            self._library.serve(urgency, messages.library_s, what, gone)

    def _summed(self, state: StepState, bucket: GradientBucket) -> None:
        for layer in range(bucket.first_layer, bucket.last_layer + 1):
            state.missing[layer] -= 1
        state.unsummed -= 1
        self._end_if_summed(state)
        self._advance()

    def _end_if_summed(self, state: StepState) -> None:
        if state.unsummed == 0 and state.backward_end_s is not None:
            state.end_s = self._events.now_s
