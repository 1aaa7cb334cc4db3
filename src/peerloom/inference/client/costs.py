"""What each route to an answer would take, from measured figures: pure functions, and what they measure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from peerloom.client.types.inference import Mode, RouteEstimate
from peerloom.errors import ResourceExhaustedError, UnavailableError
from peerloom.kit.quantity_texts import shown_s


@dataclass(frozen=True)
class InferenceBatch:
    """A batch: how many samples, and the bytes that go and come."""

    samples: int
    input_bytes: int
    output_bytes: int


@dataclass(frozen=True)
class Place:
    """A node as measured: round trip in seconds, bytes a second, what waits there, seconds until it is ready.

    `sample_s` is what one sample takes it in a batch of its own.
    """

    name: str
    round_trip_s: float
    bytes_per_s: float
    sample_s: float
    queue_s: float = 0.0
    ready_s: float = 0.0


@dataclass(frozen=True)
class StagePlace:
    """A stage on a node: its seconds for a sample, and the bytes of a sample's activations that leave it."""

    place: Place
    sample_s: float
    output_bytes: int


def remote_s(request: InferenceBatch, place: Place) -> float:
    """One round trip with the bytes both ways, the queue, and the computing."""
    transfer_s = (request.input_bytes + request.output_bytes) / place.bytes_per_s
    computing_s = request.samples * place.sample_s
    return place.ready_s + place.round_trip_s + transfer_s + place.queue_s + computing_s


def split_s(request: InferenceBatch, stages: Sequence[StagePlace], micro_batches: int) -> float:
    """Filling the pipeline with one micro-batch, then the slowest step for each of the others."""
    count = max(1, min(micro_batches, request.samples))
    samples = request.samples / count
    steps_s = [request.input_bytes / count / stages[0].place.bytes_per_s]
    for stage in stages:
        steps_s += [samples * stage.sample_s, samples * stage.output_bytes / stage.place.bytes_per_s]
    hops_s = sum(stage.place.round_trip_s / 2 for stage in stages) + stages[0].place.round_trip_s / 2
    ready_s = max(stage.place.ready_s for stage in stages)
    queue_s = max(stage.place.queue_s for stage in stages)
    return ready_s + queue_s + hops_s + sum(steps_s) + (count - 1) * max(steps_s)


def local_s(request: InferenceBatch, fetch_s: float, ready_s: float, sample_s: float) -> float:
    """Fetching the model, making it ready, and the computing."""
    return fetch_s + ready_s + request.samples * sample_s


def choose(estimates: Sequence[RouteEstimate]) -> tuple[Mode, str]:
    """The route that takes least, and why; the first of equals. Raises UnavailableError if there is none."""
    possible = [
        (each.seconds, place, each) for place, each in enumerate(estimates) if each.seconds is not None
    ]
    if not possible:
        raise no_way(estimates)
    seconds, _, best = min(possible, key=lambda item: item[:2])
    others = [
        f"{each.mode} {shown_s(each.seconds)}"
        if each.seconds is not None
        else f"{each.mode} not: {each.reason}"
        for each in estimates
        if each is not best
    ]
    return best.mode, f"{best.mode} takes {shown_s(seconds)} ({best.reason}); {'; '.join(others)}"


def after_refusal(
    estimates: Sequence[RouteEstimate], error: ResourceExhaustedError
) -> tuple[RouteEstimate, ...]:
    """The routes that are left where no node could hold the whole model; how much each lends wasn't known.

    Raises the error again if it is another, or no route is left.
    """
    is_left = any(each.seconds is not None for each in estimates if each.mode != "remote")
    if error.reason != "MODEL_TOO_LARGE" or not is_left:
        raise error
    return tuple(
        RouteEstimate("remote", None, error.message) if each.mode == "remote" else each for each in estimates
    )


def no_way(estimates: Sequence[RouteEstimate]) -> UnavailableError:
    """Says of each route why it can't be taken."""
    reasons = "; ".join(f"{each.mode} not: {each.reason}" for each in estimates)
    return UnavailableError(f"No way leads to an answer now. {reasons}", reason="NO_WAY_TO_ANSWER")


class BatchTimes:
    """Seconds by batch size, a moving mean in each power of two; `guess_s` is for one sample before any."""

    def __init__(self, guess_s: float) -> None:
        self._guess_s = guess_s
        self._seen: dict[int, tuple[float, float]] = {}  # power of two: (mean samples, mean seconds)

    def note(self, samples: int, seconds: float) -> None:
        """Adds a batch."""
        power = int(math.log2(samples))
        old_samples, old_s = self._seen.get(power, (float(samples), seconds))
        self._seen[power] = (
            old_samples + 0.3 * (samples - old_samples),
            old_s + 0.3 * (seconds - old_s),
        )

    def predict_s(self, samples: int) -> float:
        """What a batch of `samples`, at least 1, would take.

        Between known sizes in a straight line; below the smallest no less than a proportional part and no
        more than the smallest; above the largest in proportion.
        """
        if not self._seen:
            return self._guess_s * samples
        known = sorted(self._seen.values())
        above = next((pair for pair in known if pair[0] >= samples), None)
        below = next((pair for pair in reversed(known) if pair[0] <= samples), None)
        if above is None and below is not None:
            return below[1] * samples / below[0]
        assert above is not None
        if below is None:
            return max(above[1] * samples / above[0], min(above[1], self._guess_s * samples))
        if above[0] == below[0]:
            return above[1]
        part = (samples - below[0]) / (above[0] - below[0])
        return below[1] + part * (above[1] - below[1])
