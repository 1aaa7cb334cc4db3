"""What each way to an answer would take, from measured figures: pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass

from peerloom.client.types.inference import Estimate, Mode


@dataclass(frozen=True)
class Request:
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


def remote_s(request: Request, place: Place) -> float:
    """One round trip with the bytes both ways, the queue, and the computing."""
    transfer_s = (request.input_bytes + request.output_bytes) / place.bytes_per_s
    computing_s = request.samples * place.sample_s
    return place.ready_s + place.round_trip_s + transfer_s + place.queue_s + computing_s


def split_s(request: Request, stages: Sequence[StagePlace], micro_batches: int) -> float:
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


def local_s(request: Request, fetch_s: float, ready_s: float, sample_s: float) -> float:
    """Fetching the model, making it ready, and the computing."""
    return fetch_s + ready_s + request.samples * sample_s


def choose(estimates: Sequence[Estimate]) -> tuple[Mode, str]:
    """The way that takes least, and why; the first of equals. At least one has to be possible."""
    possible = [
        (each.seconds, place, each) for place, each in enumerate(estimates) if each.seconds is not None
    ]
    _, _, best = min(possible, key=lambda item: item[:2])
    others = [
        f"{each.mode} {each.seconds:.3g} s" if each.seconds is not None else f"{each.mode} not: {each.reason}"
        for each in estimates
        if each is not best
    ]
    return best.mode, f"{best.mode} takes {best.seconds:.3g} s ({best.reason}); {'; '.join(others)}"
