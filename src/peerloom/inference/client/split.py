"""Inference by stages: the cut is placed on nodes, micro-batches overlap, lost stages are replaced."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from peerloom.errors import DeadlineError, NotFoundError, PeerloomError, UnavailableError
from peerloom.inference.client.answer_evidence import AnswerEvidence
from peerloom.inference.client.idle_pipelines import IdlePipelines
from peerloom.inference.client.pipeline import Pipeline
from peerloom.inference.client.recent_times import RecentTimes
from peerloom.inference.client.replica import Replica, ReplicaNode
from peerloom.inference.client.replicas import Replicas, first_of
from peerloom.inference.client.stage import Placement
from peerloom.inference.cut import LayerCost, StageNode, cut
from peerloom.kit.checks import check_range
from peerloom.kit.clock import Clock
from peerloom.kit.tensors import LIMIT_BYTES, check_finite
from peerloom.v1.inference_pb2 import ModelDescription

Array = npt.NDArray[Any]
MOST_STAGES = 4  # where the user doesn't say: more stages add a hop each and rarely speed
_UNKNOWN_BYTES = 2 * 1024**3
_UNABLE_LIMIT = 8  # nodes that can't load their part, until it is the model's fault


@dataclass(frozen=True, eq=False)
class SplitAnswer:
    """Outputs, the nodes of the stages, what the last stage computed, lost stages, and why it was cut so."""

    outputs: Array
    served_by: tuple[ReplicaNode, ...]
    model_s: float
    replaced: int
    reason: str


class SplitRoute:
    """Places stages and runs them."""

    def __init__(self, replicas: Replicas, evidence: AnswerEvidence, clock: Clock) -> None:
        self._replicas, self._evidence, self._clock = replicas, evidence, clock
        self._idle = IdlePipelines()
        self._times: dict[tuple[str, int], RecentTimes] = {}

    def times(self, digest: str, micro_batches: int) -> RecentTimes:
        """What answers of as many stages as are best took, from their first micro-batch on."""
        return self._times.setdefault((digest, micro_batches), RecentTimes())

    async def infer(
        self, model: ModelDescription, inputs: Array, timeout_s: float, stages: int, micro_batches: int
    ) -> SplitAnswer:
        """All outputs, in order. Raises a PeerloomError."""
        check_range("inputs' length", len(inputs), 1, 65536)
        check_finite(inputs)
        deadline_s = self._clock.monotonic_s() + timeout_s
        placements, reason = await self._placements(model, stages)
        parts = micro(inputs, model, micro_batches)
        started_s = self._clock.monotonic_s()
        pipeline = self._idle.take(model.digest, placements) or self._opened(model, placements)
        try:
            window = 2 * len(pipeline.nodes) + 2
            outputs, model_s = await self._drive(pipeline, parts, window, deadline_s, timeout_s)
        except BaseException:
            self._idle.end(pipeline)
            raise
        self._idle.keep(pipeline)
        if not stages:
            now_s = self._clock.monotonic_s()
            self.times(model.digest, micro_batches).note(len(inputs), now_s - started_s, now_s)
        served_by = tuple(placement.replica.node for placement in pipeline.placements)
        return SplitAnswer(np.concatenate(outputs), served_by, model_s, pipeline.replaced, reason)

    async def _drive(
        self, pipeline: Pipeline, parts: Sequence[Array], window: int, deadline_s: float, timeout_s: float
    ) -> tuple[list[Array], float]:
        outputs: list[Array] = []
        model_s = 0.0
        for part in parts[:window]:
            pipeline.feed(part)
        for index in range(len(parts)):
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise DeadlineError(f"{index} of {len(parts)} micro-batches came within {timeout_s:g} s.")
            output, compute_s = await pipeline.next(left_s)
            outputs.append(output)
            model_s += compute_s
            if index + window < len(parts):
                pipeline.feed(parts[index + window])
        return outputs, model_s

    async def close(self) -> None:
        """Closes the sessions that are still open."""
        await self._idle.close()

    async def place(self, model: ModelDescription, stages: int, *, incremental: bool) -> tuple[Pipeline, str]:
        """A pipeline over the best nodes, not opened yet, and why it is cut so. Raises a PeerloomError."""
        placements, reason = await self._placements(model, stages)
        return self._pipeline(model, placements, incremental=incremental), reason

    def _opened(self, model: ModelDescription, placements: Sequence[Placement]) -> Pipeline:
        pipeline = self._pipeline(model, placements, incremental=False)
        pipeline.open()
        return pipeline

    def _pipeline(
        self, model: ModelDescription, placements: Sequence[Placement], *, incremental: bool
    ) -> Pipeline:
        async def replace(part: tuple[int, int], excluded: Sequence[str]) -> Placement:
            return await self._replace(model, part, excluded, placements)

        return Pipeline(model.digest, placements, replace, self._clock, incremental=incremental)

    async def _placements(self, model: ModelDescription, stages: int) -> tuple[list[Placement], str]:
        """Stages on nodes that have loaded them; a node that can't is left out, and the cut made anew."""
        wanted = stages or min(MOST_STAGES, len(model.layers))
        unable: list[str] = []
        while True:
            replicas = await self._meet(model.digest, wanted, unable, rounds=2 if stages else 1)
            plan, reason = cut(layer_costs(model), stage_nodes(replicas), stages)
            by_name = {replica.node.name: replica for replica in replicas}
            placements = [Placement(by_name[stage.node], stage.first, stage.end) for stage in plan]
            failure = await self._load(model, placements, unable)
            if failure is None:
                return placements, reason
            if len(unable) > _UNABLE_LIMIT:
                raise failure

    async def _load(
        self, model: ModelDescription, placements: Sequence[Placement], unable: list[str]
    ) -> PeerloomError | None:
        holders = await self._replicas.holders()
        # Opening a stage loads it again should it have been dropped meanwhile.
        missing = [one for one in placements if (model.digest, one.first, one.end) not in one.replica.parts]
        if missing:
            await self._idle.close()  # what rests keeps its layers in the memory that these may need

        async def load(one: Placement) -> PeerloomError | None:
            try:
                await one.replica.load(model.digest, holders, (one.first, one.end))
            except PeerloomError as error:
                return error
            return None

        failed: PeerloomError | None = None
        for placement, failure in zip(missing, await asyncio.gather(*map(load, missing)), strict=True):
            if isinstance(failure, NotFoundError):
                raise failure  # nobody has the model: another node would say the same
            if failure is not None:
                unable.append(placement.replica.node.name)
                failed = failure
        return failed

    async def _meet(self, digest: str, wanted: int, unable: Sequence[str], rounds: int) -> list[Replica]:
        """As many as are wanted, if there are; a second round finds what was just being started anew."""
        met: list[Replica] = []
        for _ in range(rounds):
            known = await self._replicas.known(digest, [*unable, *(one.node.name for one in met)])
            met += (await first_of(known, wanted - len(met), self._replicas.meet))[0]
        return met

    async def _replace(
        self,
        model: ModelDescription,
        part: tuple[int, int],
        excluded: Sequence[str],
        placements: Sequence[Placement],
    ) -> Placement:
        for placement in placements:
            if excluded and placement.replica.node.name == excluded[-1]:
                detail = "a stage of a split model was lost with it"
                self._evidence.unfinished(placement.replica.node.node_id, detail)
                await self._replicas.drop(placement.replica)
        failure: PeerloomError = UnavailableError("No node is left to replace a lost stage.")
        in_use = {placement.replica.node.name for placement in placements}
        known = await self._replicas.known(model.digest, excluded)
        # A node that has no stage yet first, and among them one whose server runs: starting takes seconds.
        known.sort(key=lambda replica: (not replica.address, replica.node.name in in_use))
        for replica in known:
            if await self._replicas.meet(replica) is not None:
                continue
            try:
                await replica.load(model.digest, await self._replicas.holders(), part)
                return Placement(replica, *part)
            except PeerloomError as error:
                failure = error
        raise failure


def micro(inputs: Array, model: ModelDescription, count: int) -> list[Array]:
    """The inputs in at most `count` parts, or more where a part's activations wouldn't fit a message."""
    widest = max([inputs[:1].nbytes, *(layer.output_bytes_per_sample for layer in model.layers)])
    rows = max(1, min(math.ceil(len(inputs) / count), LIMIT_BYTES // max(1, widest)))
    return [inputs[start : start + rows] for start in range(0, len(inputs), rows)]


def layer_costs(model: ModelDescription) -> tuple[LayerCost, ...]:
    """The layers as the cut sees them; unmeasured ones cost by their parameters."""
    measured = all(layer.seconds_per_sample > 0 for layer in model.layers)
    return tuple(
        LayerCost(
            layer.parameter_bytes, layer.seconds_per_sample if measured else 1e-9 * layer.parameter_bytes
        )
        for layer in model.layers
    )


def stage_nodes(replicas: Sequence[Replica]) -> tuple[StageNode, ...]:
    """The nodes as the cut sees them; speed by the measured matrix multiplication, 1 for the first one's."""
    first = next((replica.node.gflops for replica in replicas if replica.node.gflops > 0), 1.0)
    return tuple(
        StageNode(
            replica.node.name,
            _UNKNOWN_BYTES if replica.lent_bytes is None else replica.lent_bytes,
            replica.node.gflops / first if replica.node.gflops > 0 else 1.0,
        )
        for replica in replicas
    )
