"""What each route would take now, for "auto": the cost model on the figures of this client."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from peerloom.client.types.inference import RouteEstimate
from peerloom.errors import PeerloomError
from peerloom.inference.client.costs import InferenceBatch, Place, StagePlace, local_s, remote_s, split_s
from peerloom.inference.client.local import LocalRoute
from peerloom.inference.client.recent_times import RecentTimes
from peerloom.inference.client.replica import Replica
from peerloom.inference.client.replicas import FRESH_S, SAME_S, Replicas
from peerloom.inference.client.split import layer_costs, stage_nodes
from peerloom.inference.cut import cut
from peerloom.kit.clock import Clock
from peerloom.kit.quantity_texts import shown_bytes, shown_s
from peerloom.v1.inference_pb2 import ModelDescription

Array = npt.NDArray[Any]
Estimates = tuple[tuple[RouteEstimate, ...], str]  # of each route, and the node that a remote call would ask
HOLDS_S = 0.25  # estimating takes a part of what a small model does, and the figures may be 2 s old anyway
QUICK_S = 0.005  # figures that took longer to find hold longer in proportion: a slow client has other work
_COMPARED = 4  # candidates that "auto" looks at
_REMEMBERED = 64
NOBODY = "no node is alive that takes work"


@dataclass(frozen=True)
class _Found:
    """Estimates, when they were begun, and how long they took."""

    estimates: Estimates
    at_s: float
    took_s: float


def holds_s(took_s: float) -> float:
    """How long figures that took `took_s` to find hold: fifty times as long, within 0.25 and 2 s."""
    return max(HOLDS_S, min(FRESH_S, HOLDS_S * took_s / QUICK_S))


class Estimator:
    """The cost model's figures for one client. Belongs to one event loop."""

    def __init__(
        self,
        replicas: Replicas,
        local: LocalRoute,
        split_times: Callable[[str, int], RecentTimes],
        clock: Clock,
    ) -> None:
        self._replicas, self._local, self._clock = replicas, local, clock
        self._split_times = split_times
        self._memory: dict[tuple[object, ...], _Found] = {}

    async def estimate(self, description: ModelDescription, batch: Array, micro_batches: int) -> Estimates:
        """What each route would take for such a batch; they hold for 0.25 s, up to 2 s on a slow client."""
        key, now_s = (description.digest, len(batch), batch.nbytes, micro_batches), self._clock.monotonic_s()
        found = self._memory.pop(key, None)
        if found is None or now_s - found.at_s >= holds_s(found.took_s):
            estimates = await self._estimate(description, batch, micro_batches)
            found = _Found(estimates, now_s, self._clock.monotonic_s() - now_s)
        self._memory[key] = found  # the one used last stands last
        while len(self._memory) > _REMEMBERED:
            del self._memory[next(iter(self._memory))]
        return found.estimates

    def without_nodes(self, digest: str, samples: int, error: PeerloomError) -> Estimates:
        """What is left when no node can even describe the model."""
        remote = RouteEstimate("remote", None, error.message)
        if reason := self._local.why_not():
            return (remote, RouteEstimate("local", None, reason)), ""
        local_s = self._local.times(digest).predict_s(samples)
        return (remote, RouteEstimate("local", local_s, "no node answers")), ""

    async def _estimate(self, description: ModelDescription, batch: Array, micro_batches: int) -> Estimates:
        digest = description.digest
        samples, guess_s = len(batch), sum(layer.seconds_per_sample for layer in description.layers)
        model_bytes = sum(layer.parameter_bytes for layer in description.layers)
        known = await self._replicas.known(digest)
        for_stages = known[:_COMPARED]
        # A model that is too large for one node may be cut.
        for_whole = [one for one in known if one.lent_bytes is None or one.lent_bytes >= model_bytes]
        replicas = list(dict.fromkeys([*for_whole[:_COMPARED], *for_stages]))
        self._replicas.look(replicas)
        # Most of what a request takes beyond the round trip is the same at any node: ours, and gRPC's.
        told_s = [replica.beyond_s for replica in replicas if replica.beyond_s is not None]
        beyond_s = statistics.median(told_s) if told_s else 0.0
        places = [replica.place(digest, samples, guess_s, beyond_s) for replica in replicas]
        request = InferenceBatch(
            samples, batch.nbytes, samples * description.layers[-1].output_bytes_per_sample
        )
        fastest_s = max((place.bytes_per_s for place in places), default=1.25e7)
        wholes = [
            replace(place, ready_s=place.ready_s + replica.load_s(digest, model_bytes))
            for replica, place in zip(replicas, places, strict=True)
            if replica in for_whole
        ]
        no_place = f"no node lends the {model_bytes:,} bytes that the whole model takes" if known else NOBODY
        remote, first = _remote(request, wholes, no_place)
        by_name = {place.name: place for place in places}
        split, ready_s = _split(request, description, for_stages, by_name, micro_batches)
        estimates = (
            remote,
            self._of_local(description, samples, guess_s, model_bytes, fastest_s),
            self._as_measured(split, ready_s, digest, samples, micro_batches),
        )
        return estimates, first

    def _of_local(
        self, model: ModelDescription, samples: int, guess_s: float, model_bytes: int, bytes_per_s: float
    ) -> RouteEstimate:
        digest = model.digest
        if reason := self._local.why_not(model.task):
            return RouteEstimate("local", None, reason)
        fetch_s, ready_s = self._local.ready_s(digest, model_bytes, bytes_per_s)
        sample_s = self._local.times(digest, guess_s).predict_s(samples) / samples
        seconds = local_s(InferenceBatch(samples, 0, 0), fetch_s, ready_s, sample_s)
        computing = f"computing {shown_s(samples * sample_s)}"
        reason = f"fetching {shown_s(fetch_s)}, making ready {shown_s(ready_s)}, {computing}"
        return RouteEstimate("local", seconds, reason)

    def _as_measured(
        self, split: RouteEstimate, ready_s: float, digest: str, samples: int, micro_batches: int
    ) -> RouteEstimate:
        # What each micro-batch costs at both of its ends no formula knows.
        times = self._split_times(digest, micro_batches)
        measured_s = times.median_s(samples, self._clock.monotonic_s())
        if split.seconds is None or measured_s is None:
            return split
        reason = f"{split.reason}; it took {shown_s(measured_s)}"
        return replace(split, seconds=ready_s + measured_s, reason=reason)


def _split(
    request: InferenceBatch,
    description: ModelDescription,
    replicas: Sequence[Replica],
    places: Mapping[str, Place],
    micro_batches: int,
) -> tuple[RouteEstimate, float]:
    """For the best cut over these nodes, and the seconds until all its stages are ready."""
    if len(description.layers) < 2 or len(replicas) < 2:
        return RouteEstimate("split", None, "it takes two layers and two nodes"), 0.0
    try:
        plan, reason = cut(layer_costs(description), stage_nodes(replicas))
    except PeerloomError as error:
        return RouteEstimate("split", None, error.message), 0.0
    by_name = {replica.node.name: replica for replica in replicas}
    # What the model takes as a whole is measured better than the layers one by one.
    whole_s = sum(layer.seconds_per_sample for layer in description.layers) or 1.0
    model_bytes = sum(layer.parameter_bytes for layer in description.layers)
    stages = []
    for stage in plan:
        place = places[stage.node]
        load_s = by_name[stage.node].load_s(description.digest, model_bytes, (stage.first, stage.end))
        stages.append(
            StagePlace(
                replace(place, ready_s=place.ready_s + load_s),
                place.sample_s * stage.seconds / whole_s,
                description.layers[stage.end - 1].output_bytes_per_sample,
            )
        )
    seconds = split_s(request, stages, micro_batches)
    return RouteEstimate("split", seconds, reason), max(stage.place.ready_s for stage in stages)


def _remote(request: InferenceBatch, places: Sequence[Place], no_place: str) -> tuple[RouteEstimate, str]:
    """For the best node, and its name; of those that are equal within a millisecond the first.

    `no_place` says why there are no places, if there are none.
    """
    if not places:
        return RouteEstimate("remote", None, no_place), ""
    best = min(places, key=lambda place: round(remote_s(request, place) / SAME_S))
    computing_s = request.samples * best.sample_s
    moved_bytes = request.input_bytes + request.output_bytes
    reason = (
        f"on {best.name}: way {shown_s(best.round_trip_s)}, {moved_bytes:,} bytes at "
        f"{shown_bytes(best.bytes_per_s)}/s, queue {shown_s(best.queue_s)}, computing {shown_s(computing_s)}"
    )
    return RouteEstimate("remote", remote_s(request, best), reason), best.name
