"""One node's inference server as this client has met it: its channel, its figures, what it holds ready."""

import asyncio
import ipaddress
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from peerloom.inference.client.costs import BatchTimes, Place
from peerloom.kit.clock import Clock
from peerloom.kit.dialing import Dialer, InferencePeer
from peerloom.v1.artifact_pb2 import ArtifactHolder
from peerloom.v1.inference_pb2 import (
    GetInferenceStatusRequest,
    GetInferenceStatusResponse,
    InferRequest,
    InferResponse,
    LoadModelRequest,
    ModelDescription,
    Tensor,
)
from peerloom.v1.node_agent_pb2 import StartInferenceRequest

START_LIMIT_S = 90.0
LOAD_LIMIT_S = 600.0
STATUS_LIMIT_S = 1.0
OPEN_LIMIT_S = 10.0  # a server that has just started may share its cores with others that start
START_GUESS_S = 4.0  # importing torch
BUILD_GUESS_S = 0.05
_LOOPBACK_BYTES_PER_S = 5e8
_FAR_BYTES_PER_S = 1.25e7  # 100 Mbit/s, until a transfer has been measured
_MEASURABLE_BYTES = 256 * 1024
_REMEMBERED = 64
_CALLS_REMEMBERED = 9


@dataclass(frozen=True)
class ReplicaNode:
    """What registry and selector say of a node; `owner` is a key (kit/ownership.py)."""

    node_id: str
    name: str
    agent_address: str
    belief: float
    gflops: float
    owner: str


class Replica:
    """A node's inference server; `open` before anything else."""

    def __init__(self, node: ReplicaNode, dialer: Dialer, as_node: str, clock: Clock) -> None:
        self.node = node
        self.as_node = as_node
        self.address = ""
        self._trip_s = 0.0
        self._beyond_s: deque[float] = deque(maxlen=_CALLS_REMEMBERED)
        self.bytes_per_s = _LOOPBACK_BYTES_PER_S if _is_loopback(node.agent_address) else _FAR_BYTES_PER_S
        self.queue_s = 0.0
        self.lent_bytes: int | None = None  # to models, of which those that nobody uses go; None: not met yet
        self.latencies_s: deque[float] = deque(maxlen=_REMEMBERED)
        self.loaded: dict[str, ModelDescription] = {}
        self.parts: set[tuple[str, int, int]] = set()
        self.looked_s = 0.0
        self._dialer, self._clock = dialer, clock
        self._peer: InferencePeer | None = None
        self._times: dict[str, BatchTimes] = {}
        self._opening = asyncio.Lock()

    @property
    def round_trip_s(self) -> float:
        """What a small request takes besides queue and computing: the round trip, and what came on top."""
        return self._trip_s + (self.beyond_s or 0.0)

    @property
    def beyond_s(self) -> float | None:
        """What recent small requests took beyond the round trip; None when there were none."""
        return max(0.0, statistics.median(self._beyond_s)) if self._beyond_s else None

    @property
    def start_s(self) -> float:
        """What starting it takes; 0 for one that this client has met."""
        return 0.0 if self._peer is not None else START_GUESS_S

    @property
    def away_s(self) -> float:
        """What passes besides computing with a small request to it."""
        return self.start_s + self.round_trip_s + self.queue_s

    @property
    def peer(self) -> InferencePeer:
        """The channel to the inference server."""
        assert self._peer is not None, "open comes first"
        return self._peer

    async def open(self) -> None:
        """Starts the node's inference server and measures the round trip. Raises a PeerloomError."""
        async with self._opening:
            if self._peer is not None:
                return
            async with self._dialer.node_agent(self.node.agent_address) as agent:
                answer = await agent.call(agent.stub.StartInference, StartInferenceRequest(), START_LIMIT_S)
            self.address = answer.address
            self._peer = self._dialer.inference(self.address)
            await self.look(OPEN_LIMIT_S)  # connects, so that the next one measures the round trip alone
            await self.look(OPEN_LIMIT_S)

    async def look(self, limit_s: float = STATUS_LIMIT_S) -> GetInferenceStatusResponse:
        """Asks how busy it is, and measures the round trip by it. Raises a PeerloomError within `limit_s`."""
        started_s = self._clock.monotonic_s()
        status: GetInferenceStatusResponse = await self.peer.call(
            self.peer.stub.GetInferenceStatus, GetInferenceStatusRequest(), limit_s
        )
        self.looked_s = self._clock.monotonic_s()
        seconds = self.looked_s - started_s
        self._trip_s = min(self._trip_s or seconds, seconds)
        if self._beyond_s:
            self._beyond_s.popleft()  # what requests took is forgotten, so that a node gets another chance
        self.queue_s = status.queue_s
        self.lent_bytes = status.memory_limit_bytes
        return status

    async def load(
        self,
        digest: str,
        holders: Sequence[ArtifactHolder],
        part: tuple[int, int] = (0, 0),
        *,
        describe_only: bool = False,
    ) -> ModelDescription:
        """Has the model, or some of its layers, loaded there. Raises a PeerloomError."""
        request = LoadModelRequest(
            digest=digest,
            first_layer=part[0],
            end_layer=part[1],
            describe_only=describe_only,
            holders=holders,
        )
        answer = await self.peer.call(self.peer.stub.LoadModel, request, LOAD_LIMIT_S)
        model: ModelDescription = answer.model
        if part == (0, 0) and not describe_only:
            self.loaded[digest] = model
        elif not describe_only:
            self.parts.add((digest, *part))
        return model

    async def infer(self, digest: str, inputs: Tensor, samples: int, timeout_s: float) -> InferResponse:
        """Asks for a batch; what it took is remembered. Raises a PeerloomError."""
        request, started_s = (
            InferRequest(digest=digest, inputs=inputs, caller=self.as_node),
            self._clock.monotonic_s(),
        )
        answer: InferResponse = await self.peer.call(self.peer.stub.Infer, request, timeout_s)
        seconds = self._clock.monotonic_s() - started_s
        self.latencies_s.append(seconds)
        self.times(digest).note(answer.batch_samples, answer.model_s)
        moved_bytes = len(inputs.content) + len(answer.outputs.content)
        self._note_transfer(moved_bytes, seconds - answer.queue_s - answer.model_s)
        return answer

    def times(self, digest: str, guess_s: float = 0.0) -> BatchTimes:
        """How long the model takes there; `guess_s` is for one sample before anything was measured."""
        return self._times.setdefault(digest, BatchTimes(guess_s))

    def load_s(self, digest: str, model_bytes: int, part: tuple[int, int] = (0, 0)) -> float:
        """What having the model, or some of its layers, ready there would take; 0 for what is."""
        is_ready = digest in self.loaded if part == (0, 0) else (digest, *part) in self.parts
        return 0.0 if is_ready else BUILD_GUESS_S + model_bytes / self.bytes_per_s

    def place(self, digest: str, samples: int, guess_s: float, beyond_s: float) -> Place:
        """The node as the cost model sees it; `beyond_s` stands for requests that it hasn't had."""
        return Place(
            self.node.name,
            self._trip_s + (beyond_s if self.beyond_s is None else self.beyond_s),
            self.bytes_per_s,
            self.times(digest, guess_s).predict_s(samples) / samples,
            self.queue_s,
            self.start_s,
        )

    async def close(self) -> None:
        """Closes the channel."""
        if self._peer is not None:
            await self._peer.close()
            self._peer = None

    def _note_transfer(self, moved_bytes: int, network_s: float) -> None:
        if moved_bytes < _MEASURABLE_BYTES:
            self._beyond_s.append(network_s - self._trip_s)
            return
        measured = moved_bytes / max(1e-6, network_s - self.round_trip_s)
        self.bytes_per_s += 0.3 * (measured - self.bytes_per_s)


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
