"""Which node is asked first, and what a cut over several would take: by what is known of each."""

from types import SimpleNamespace
from typing import Any

import pytest

from peerloom.inference.client.costs import InferenceBatch
from peerloom.inference.client.estimator import _split
from peerloom.inference.client.replica import BUILD_GUESS_S, START_GUESS_S, Replica, ReplicaNode
from peerloom.inference.client.replicas import _rank
from peerloom.kit.clock import ManualClock
from peerloom.kit.limits import LIE_PRICE
from peerloom.v1.inference_pb2 import (
    GetInferenceStatusResponse,
    LoadModelRequest,
    LoadModelResponse,
    ModelDescription,
    ModelLayer,
)
from peerloom.v1.node_agent_pb2 import StartInferenceRequest, StartInferenceResponse

MODEL = "digest"


class Server:
    """An agent and the inference server beside it: each call takes 1 s."""

    stub = SimpleNamespace(StartInference=None, GetInferenceStatus=None, LoadModel=None)

    def __init__(self, clock: ManualClock, queue_s: float) -> None:
        self._clock, self._queue_s = clock, queue_s

    def node_agent(self, address: str) -> "Server":
        return self

    def inference(self, address: str) -> "Server":
        return self

    async def call(self, method: Any, request: Any, limit_s: float) -> Any:
        self._clock.advance(1.0)
        if isinstance(request, StartInferenceRequest):
            return StartInferenceResponse(address="10.0.0.1:2")
        if isinstance(request, LoadModelRequest):
            return LoadModelResponse()
        return GetInferenceStatusResponse(queue_s=self._queue_s, memory_limit_bytes=10**9)

    async def __aenter__(self) -> "Server":
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


def replica(name: str, belief: float = 0.0, queue_s: float = 0.0) -> Replica:
    about = ReplicaNode(f"node-{name}", name, "10.0.0.1:1", belief, 1.0, f"owner {name}")
    clock = ManualClock()
    server: Any = Server(clock, queue_s)  # a dialer, too: all that it dials is the same
    return Replica(about, server, "", clock)


async def met(name: str, belief: float = 0.0, queue_s: float = 0.0) -> Replica:
    found = replica(name, belief, queue_s)
    await found.open()
    return found


def best(*replicas: Replica, holders: frozenset[str] = frozenset()) -> str:
    return min(replicas, key=lambda one: _rank(one, MODEL, set(holders))).node.name


async def test_a_server_that_runs_comes_before_one_that_would_have_to_start_first() -> None:
    """Starting takes seconds, so belief decides only among those that are away as long."""
    running = await met("running", -1.0)
    assert (running.away_s, replica("new").away_s) == (1.0, START_GUESS_S)
    assert best(replica("new"), running) == "running"
    assert best(replica("new"), replica("trusted", 1.0)) == "trusted"


async def test_one_that_is_busy_for_longer_than_another_takes_to_start_comes_after_it() -> None:
    assert best(replica("new"), await met("busy", queue_s=START_GUESS_S)) == "new"


async def test_who_holds_the_model_comes_before_one_that_would_have_to_fetch_it() -> None:
    """Whatever it weighs: nobody knows that yet where nodes are only put in order."""
    assert best(await met("running"), replica("holder"), holders=frozenset({"node-holder"})) == "holder"


def test_a_proven_liar_comes_after_everybody_else_for_every_client() -> None:
    """It holds the model and is otherwise first: with the belief of one lie it is the last to be asked."""
    poor, holders = replica("poor", -400.0), frozenset({"node-liar"})
    assert best(replica("liar", -LIE_PRICE), poor, holders=holders) == "poor"
    assert best(replica("liar", 0.0), poor, holders=holders) == "liar"


async def test_a_cut_takes_what_loading_its_stages_does_until_they_are_loaded() -> None:
    """As the whole model does on one node: a cut isn't faster because nobody has loaded it yet."""
    layer = ModelLayer(parameter_bytes=6_250_000, seconds_per_sample=0.5)
    model = ModelDescription(digest=MODEL, layers=[layer, layer])
    nodes = [await met("a"), await met("b")]
    places = {one.node.name: one.place(MODEL, 1, 1.0, 0.0) for one in nodes}
    request = InferenceBatch(1, 0, 0)

    estimate, ready_s = _split(request, model, nodes, places, 1)
    fetch_s = 12_500_000 / 12.5e6
    assert ready_s == pytest.approx(BUILD_GUESS_S + fetch_s)
    assert estimate.seconds == pytest.approx(ready_s + 3 * 0.5 + 2 * 0.5), (
        "three hops of half a trip, two halves"
    )

    for place, one in enumerate(nodes):
        await one.load(MODEL, [], (place, place + 1))
    estimate, ready_s = _split(request, model, nodes, places, 1)
    assert (ready_s, estimate.seconds) == (0.0, pytest.approx(2.5))


async def test_a_cut_over_a_server_that_has_to_start_waits_for_it() -> None:
    layer = ModelLayer(parameter_bytes=0, seconds_per_sample=0.5)
    nodes = [await met("a"), replica("b")]
    places = {one.node.name: one.place(MODEL, 1, 1.0, 0.0) for one in nodes}
    model = ModelDescription(digest=MODEL, layers=[layer, layer])
    _, ready_s = _split(InferenceBatch(1, 0, 0), model, nodes, places, 1)
    assert ready_s == pytest.approx(START_GUESS_S + BUILD_GUESS_S)
