"""What a node agent tells Prometheus of itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from peerloom.errors import PeerloomError
from peerloom.kit.dialing import Dialer
from peerloom.kit.metrics import Metric, MetricKind, Reading, reading
from peerloom.services.node_agent.membership.reachability import local_host
from peerloom.services.node_agent.servicer import AgentDependencies
from peerloom.services.node_agent.workers.local_pool import EXITS
from peerloom.v1.inference_pb2 import GetInferenceStatusRequest
from peerloom.v1.registry_pb2 import MachineLoad

STATUS_LIMIT_S = 1.0
SLOTS = Metric("peerloom_node_slots", MetricKind.GAUGE, "Slots of the node, lent or not.")
SLOTS_LENT = Metric(
    "peerloom_node_slots_lent",
    MetricKind.GAUGE,
    "Slots that jobs may have now: all, or none while the owner withholds them or the node is drained.",
)
SLOTS_USED = Metric(
    "peerloom_node_slots_used", MetricKind.GAUGE, "Slots that run a worker, or are kept for one."
)
WORKERS_STARTED = Metric(
    "peerloom_node_workers_started_total", MetricKind.COUNTER, "Workers that were started."
)
WORKERS_ENDED = Metric(
    "peerloom_node_workers_ended_total",
    MetricKind.COUNTER,
    "Workers that ended: with status 0 (ok), another (error), by a signal, or for using too much (limit).",
    ("exit",),
)
ARTIFACTS = Metric("peerloom_node_artifacts", MetricKind.GAUGE, "Artifacts that the node holds.")
ARTIFACT_BYTES = Metric(
    "peerloom_node_artifact_bytes",
    MetricKind.GAUGE,
    "Bytes of the artifacts that the node holds, and of those on their way in.",
)
CORES = Metric(
    "peerloom_node_cores", MetricKind.GAUGE, "Cores of the machine, or those that its container may use."
)
CPU_USE = Metric(
    "peerloom_node_cpu_use_ratio",
    MetricKind.GAUGE,
    "Part of the cores in use by all that runs, 0 to 1.",
)
OWN_CPU_USE = Metric(
    "peerloom_node_own_cpu_use_ratio",
    MetricKind.GAUGE,
    "Part of the cores in use by the agent and its workers, 0 to 1.",
)
MEMORY_BYTES = Metric("peerloom_node_memory_bytes", MetricKind.GAUGE, "Memory of the machine.")
MEMORY_USED = Metric(
    "peerloom_node_memory_used_bytes", MetricKind.GAUGE, "Memory in use by all that runs there."
)
GPU_USE = Metric(
    "peerloom_node_gpu_use_ratio",
    MetricKind.GAUGE,
    "Part of the last moment in which the GPU computed, 0 to 1, by its place in CUDA's order.",
    ("gpu",),
)
GPU_MEMORY_BYTES = Metric("peerloom_node_gpu_memory_bytes", MetricKind.GAUGE, "Memory of the GPU.", ("gpu",))
GPU_MEMORY_USED = Metric(
    "peerloom_node_gpu_memory_used_bytes", MetricKind.GAUGE, "Memory of the GPU in use.", ("gpu",)
)
INFERENCE_UP = Metric(
    "peerloom_node_inference_up", MetricKind.GAUGE, "1 while the node's inference server runs, else 0."
)
INFERENCE_CALLS = Metric(
    "peerloom_node_inference_calls_total",
    MetricKind.COUNTER,
    "Questions that the node's inference server answered, and sessions of split models that it opened.",
)


@dataclass(frozen=True)
class NodeMetrics:
    """Reads an agent's parts, and asks the inference server, a process of its own, while that runs."""

    agent: AgentDependencies
    dialer: Dialer
    metrics: ClassVar[tuple[Metric, ...]] = (
        SLOTS,
        SLOTS_LENT,
        SLOTS_USED,
        WORKERS_STARTED,
        WORKERS_ENDED,
        ARTIFACTS,
        ARTIFACT_BYTES,
        CORES,
        CPU_USE,
        OWN_CPU_USE,
        MEMORY_BYTES,
        MEMORY_USED,
        GPU_USE,
        GPU_MEMORY_BYTES,
        GPU_MEMORY_USED,
        INFERENCE_UP,
        INFERENCE_CALLS,
    )

    async def collect(self) -> Sequence[Reading]:
        """All as of now; the machine's load as of the last look at it, and none before the first.

        Without the inference server's calls while it doesn't answer.
        """
        agent = self.agent
        slots, pool = agent.slots, agent.pool
        is_lent = not (agent.status.withheld or agent.status.is_draining)
        free = len(slots.free(agent.clock.monotonic_s()))
        return [
            reading(SLOTS, slots.total),
            reading(SLOTS_LENT, slots.total if is_lent else 0),
            reading(SLOTS_USED, slots.total - free),
            reading(WORKERS_STARTED, pool.started),
            Reading(WORKERS_ENDED, {(exit_,): pool.ended[exit_] for exit_ in EXITS}),
            reading(ARTIFACTS, agent.artifacts.count),
            reading(ARTIFACT_BYTES, agent.artifacts.used_bytes),
            *_load(agent.status.load),
            *await self._inference(),
        ]

    async def _inference(self) -> Sequence[Reading]:
        port = self.agent.inference.port if self.agent.inference is not None else 0
        if not port:
            return [reading(INFERENCE_UP, 0), reading(INFERENCE_CALLS, 0)]
        address = f"{local_host(self.agent.config.listen.rpartition(':')[0])}:{port}"
        try:
            async with self.dialer.inference(address) as server:
                request = GetInferenceStatusRequest()
                status = await server.call(server.stub.GetInferenceStatus, request, STATUS_LIMIT_S)
        except PeerloomError:  # it may be ending, or computing too hard to answer
            return [reading(INFERENCE_UP, 1)]
        return [reading(INFERENCE_UP, 1), reading(INFERENCE_CALLS, status.answered)]


def _load(load: MachineLoad | None) -> Sequence[Reading]:
    if load is None:
        return []
    gpus = {(str(place),): gpu for place, gpu in enumerate(load.gpus)}
    return [
        reading(CORES, load.cores),
        reading(CPU_USE, load.cpu_use),
        reading(OWN_CPU_USE, load.own_cpu_use),
        reading(MEMORY_BYTES, load.memory_total_bytes),
        reading(MEMORY_USED, load.memory_used_bytes),
        Reading(GPU_USE, {place: gpu.use for place, gpu in gpus.items() if gpu.HasField("use")}),
        Reading(GPU_MEMORY_BYTES, {place: gpu.memory_total_bytes for place, gpu in gpus.items()}),
        Reading(GPU_MEMORY_USED, {place: gpu.memory_used_bytes for place, gpu in gpus.items()}),
    ]
