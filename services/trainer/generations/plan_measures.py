"""What a job's workers told, as the plan search wants it: pure functions.

Two slots of one node share its memory; ways between nodes that nobody measured are taken for those of an
office. A belief is a score, of which no time to an interruption follows: it orders the slots, and of those
that are alike the first ones are taken.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from peerloom.kit.plan_model.model_layers import BACKWARD_RATIO, ModelLayer
from peerloom.kit.plan_model.plan_setting import (
    SAME_HOST_BITS_PER_S,
    PlanNetwork,
    PlanSetting,
    PlanSlot,
)
from peerloom.kit.sync_model.scheme import SyncScheme
from peerloom.services.trainer.workers.slot_measures import room_bytes
from peerloom.v1.trainer_pb2 import MeasuredLink, ModelPart, WorkerPrepared

ASSUMED_BITS_PER_S, ASSUMED_DELAY_S = 1e9, 0.5e-3
PASS_OVERHEAD_S = 2e-3  # to take a micro-batch from a socket, and to hand it on
UNKNOWN_GFLOPS = 1.0
# Beyond this many samples a batch is planned for as a multiple of it, so that it has micro-batches.
ROUNDED_BATCH = 16


@dataclass(frozen=True)
class SurveyedWorker:
    """A worker, its node, what it told of the task and its slot, and what is known of the node besides.

    `lent_bytes` is what the owner lends for its slot; 0: no limit.
    """

    worker_id: str
    node_id: str
    node_name: str
    said: WorkerPrepared
    belief: float = 1.0
    lent_bytes: int = 0


Links = Mapping[tuple[str, str], MeasuredLink]  # from one worker to another


def parts_of(workers: Sequence[SurveyedWorker]) -> Sequence[ModelPart]:
    """What the model can be cut into. Where one of the workers says less, that holds for all."""
    return min((worker.said.parts for worker in workers), key=len)


def why_whole(workers: Sequence[SurveyedWorker]) -> str:
    """Why the model can't be cut; "" where it can."""
    return next((worker.said.why_whole for worker in workers if worker.said.why_whole), "")


def setting_of(
    workers: Sequence[SurveyedWorker], batch: int, sync: SyncScheme, links: Links, snapshot_s: float
) -> PlanSetting:
    """The workers' slots in this order. Raises InvalidArgumentError for a model that takes no time."""
    parts = parts_of(workers)
    is_counted = any(part.forward_operations for part in parts)
    on_node = Counter(worker.node_id for worker in workers)
    return PlanSetting(
        layers=tuple(_layer(part, is_counted) for part in parts),
        slots=tuple(_slot(worker, on_node[worker.node_id]) for worker in workers),
        network=_network(workers, links),
        batch=planned_batch(batch),
        pass_overhead_s=PASS_OVERHEAD_S,
        snapshot_s=snapshot_s,
        sync=sync,
    )


def planned_batch(batch: int) -> int:
    """Near `batch`, with many divisors, one of which is the number of micro-batches."""
    return batch if batch < 4 * ROUNDED_BATCH else batch - batch % ROUNDED_BATCH


def is_assumed(workers: Sequence[SurveyedWorker], links: Links) -> bool:
    """Whether some way between two nodes isn't measured."""
    return any(
        one.node_id != other.node_id and _link(one, other, links) is None
        for one in workers
        for other in workers
    )


def who_lacks_room(workers: Sequence[SurveyedWorker], batch: int, state_bytes: float) -> frozenset[str]:
    """Whose slot can't hold the whole model, and its part of a batch, with `state_bytes` a parameter."""
    if not workers:
        return frozenset()
    parts, on_node = parts_of(workers), Counter(worker.node_id for worker in workers)
    samples = -(-batch // len(workers))
    needed = sum(part.parameters * state_bytes + samples * part.kept_bytes for part in parts)
    slots = [(worker.worker_id, _slot(worker, on_node[worker.node_id])) for worker in workers]
    return frozenset(worker_id for worker_id, slot in slots if slot.memory_bytes < needed)


def _layer(part: ModelPart, is_counted: bool) -> ModelLayer:
    # Of a slot of speed 1, which makes 1e9 operations a second. Where none are counted each parameter
    # is used once, for a multiplication and an addition.
    forward_s = (part.forward_operations if is_counted else 2.0 * part.parameters) / 1e9
    return ModelLayer(
        name=str(part.first_layer),
        parameters=int(part.parameters),
        forward_s=forward_s,
        backward_s=BACKWARD_RATIO * forward_s,
        output_bytes=part.output_bytes,
        kept_bytes=part.kept_bytes,
        is_narrow=part.is_narrow,
        is_tied=part.is_tied,
    )


def _slot(worker: SurveyedWorker, on_node: int) -> PlanSlot:
    said = worker.said
    room = room_bytes(said.free_bytes, said.used_bytes, on_node, worker.lent_bytes)
    return PlanSlot(worker.node_name, said.speed_gflops or UNKNOWN_GFLOPS, room)


def _network(workers: Sequence[SurveyedWorker], links: Links) -> PlanNetwork:
    ways = [[_way(one, other, links) for other in workers] for one in workers]
    return PlanNetwork(
        tuple(tuple(way[0] for way in row) for row in ways),
        tuple(tuple(way[1] for way in row) for row in ways),
    )


def _way(one: SurveyedWorker, other: SurveyedWorker, links: Links) -> tuple[float, float]:
    if one.node_id == other.node_id:
        return SAME_HOST_BITS_PER_S, 0.0
    return _link(one, other, links) or (ASSUMED_BITS_PER_S, ASSUMED_DELAY_S)


def _link(one: SurveyedWorker, other: SurveyedWorker, links: Links) -> tuple[float, float] | None:
    if (link := links.get((one.worker_id, other.worker_id))) is not None and link.sent_bits_per_s > 0:
        return link.sent_bits_per_s, link.delay_s
    if (link := links.get((other.worker_id, one.worker_id))) is not None and link.received_bits_per_s > 0:
        return link.received_bits_per_s, link.delay_s
    return None
