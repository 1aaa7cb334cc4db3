"""How fast SelectNodes answers over 10,000 and 100,000 known nodes.

A real selector process on one core learns the nodes from a source of events that speaks the registry's
WatchNodes; the client has the other core. The rival is what one would write first: `sorted` over a list of
dicts, in one process and without any RPC.
"""

import asyncio
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc

from benchmarks.measure import Goal, Measurement, alternate, measurement, percentile
from benchmarks.node_events import node_at
from benchmarks.processes import Running, pinned, profiled, running
from peerloom.kit.dialing import Dialer, SelectorPeer
from peerloom.services.selector.catalog.columns import NodeColumns
from peerloom.services.selector.catalog.entries import CatalogEntry
from peerloom.services.selector.choosing.choice import choose
from peerloom.services.selector.messages import choice_message
from peerloom.services.selector.policies import find_policy
from peerloom.services.selector.policies.interface import SelectionRequest
from peerloom.v1 import selector_pb2 as pb
from peerloom.v1.registry_pb2 import NODE_STATE_ALIVE

SELECTOR_CORE, CLIENT_CORE = 0, 1
BUDGET = 10
SIZES = (10_000, 100_000)
GOAL_MS = 5.0
# Above the first size the rival's own time is long enough to be a yardstick for any machine.
GOAL_OF_RIVAL = 0.45
LEARNING_LIMIT_S = 300.0
EVIDENCE_A_CALL = 1000
RIVAL = "sorted() over dicts, without RPC"
_SELECTOR = "peerloom.services.selector"
_WISH = pb.SelectNodesRequest(
    requirements=pb.Requirements(min_slots=1), request_budget=BUDGET, policy="thesis"
)


def run(quick: bool) -> list[Measurement]:
    """By gRPC against the real process, and in-process, at both sizes."""
    sizes, rounds, calls = ([500], 2, 20) if quick else (list(SIZES), 5, 200)
    with pinned({CLIENT_CORE}):
        return [one for nodes in sizes for one in _at_size(nodes, rounds, calls)]


def _at_size(nodes: int, rounds: int, calls: int) -> list[Measurement]:
    learning = time.perf_counter()
    with _selector(nodes) as server:
        learning_s = time.perf_counter() - learning
        ours, rival = alternate(
            rounds, lambda: _by_rpc(server.address, calls), lambda: _by_sorting(nodes, max(5, calls // 10))
        )
    inside = [_in_process(nodes, calls) for _ in range(rounds)]
    is_large = nodes > SIZES[0]
    goal = Goal(GOAL_OF_RIVAL if is_large else GOAL_MS, at_least=False, of_ratio=is_large)
    title = f"SelectNodes over {nodes:,} nodes"

    def figure(name: str, runs: list[list[float]], percent: float, goal: Goal | None = None) -> Measurement:
        return measurement(
            f"{title}, {name}, p{percent:g}",
            "ms",
            [1000 * percentile(seconds, percent) for seconds in runs],
            goal=goal,
            rival=RIVAL,
            rival_samples=[1000 * percentile(seconds, percent) for seconds in rival],
        )

    return [
        figure("by gRPC", ours, 50),
        figure("by gRPC", ours, 99, goal),
        figure("in-process", inside, 50),
        figure("in-process", inside, 99),
        measurement(f"learning {nodes:,} nodes, each on disk, with evidence of a tenth", "s", [learning_s]),
    ]


def profile(quick: bool) -> str:
    """The selector's dearest functions while it is asked without pause."""
    nodes, calls = (500, 20) if quick else (100_000, 500)
    title = f"selector, SelectNodes over {nodes:,} nodes (learning them included), by own time"
    with (
        tempfile.TemporaryDirectory() as state,
        pinned({CLIENT_CORE}),
        running("benchmarks.node_events", str(nodes), core=CLIENT_CORE) as source,
        profiled(_SELECTOR, *_arguments(state, source), core=SELECTOR_CORE, title=title) as (server, report),
    ):
        _wait_until_known(server.address)
        _by_rpc(server.address, calls)
    return report[0]


@contextmanager
def _selector(nodes: int) -> Iterator[Running]:
    """A selector that knows the nodes, and has evidence of every tenth."""
    with (
        tempfile.TemporaryDirectory() as state,
        running("benchmarks.node_events", str(nodes), core=CLIENT_CORE) as source,
        running(_SELECTOR, *_arguments(state, source), core=SELECTOR_CORE) as server,
    ):
        _wait_until_known(server.address)
        asyncio.run(_report_evidence(server.address, range(0, nodes, 10)))
        yield server


def _arguments(state: str, source: Running) -> tuple[str, ...]:
    there = ("--registry", source.address, "--state", state)
    return (*there, "--listen", "127.0.0.1:0", "--log-level", "error")


def _wait_until_known(address: str) -> None:
    """The selector is healthy as soon as it has read all past events."""
    with grpc.insecure_channel(address) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch
        for answer in watch(health_pb2.HealthCheckRequest(), timeout=LEARNING_LIMIT_S):
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                return


async def _report_evidence(address: str, numbers: range) -> None:
    chance = random.Random(7)
    async with Dialer().selector(address) as selector:
        for start in range(0, len(numbers), EVIDENCE_A_CALL):
            facts = [
                pb.Evidence(
                    evidence_id=f"benchmark-{number}",
                    node_id=node_at(number).node_id,
                    kind=pb.EVIDENCE_KIND_TRANSFER,
                    delay_s=chance.random(),
                )
                for number in numbers[start : start + EVIDENCE_A_CALL]
            ]
            await selector.call(selector.stub.ReportEvidence, pb.ReportEvidenceRequest(evidence=facts), 60.0)


def _by_rpc(address: str, calls: int) -> list[float]:
    async def call_each() -> list[float]:
        async with Dialer().selector(address) as selector:
            await selector.call(selector.stub.SelectNodes, _WISH)
            return [await _timed(selector) for _ in range(calls)]

    return asyncio.run(call_each())


async def _timed(selector: SelectorPeer) -> float:
    begin_s = time.perf_counter()
    answer = await selector.call(selector.stub.SelectNodes, _WISH)
    elapsed_s = time.perf_counter() - begin_s
    assert len(answer.nodes) == BUDGET, "the selector doesn't know the nodes"
    return elapsed_s


def _in_process(nodes: int, calls: int) -> list[float]:
    """Choosing and making the answer's message, without the RPC around it."""
    columns, chance = NodeColumns(), np.random.default_rng(7)
    for number in range(nodes):
        spec = node_at(number)
        columns.put(
            CatalogEntry(
                spec.node_id, spec.spec.name, spec.spec.address, slots=1 + number % 4, state=NODE_STATE_ALIVE
            )
        )
        if number % 10 == 0:  # as the process that is asked by gRPC
            columns.set_belief(spec.node_id, float(chance.normal()))
    policy, wish = find_policy("thesis"), SelectionRequest(budget=BUDGET, min_slots=1)
    seconds = []
    for _ in range(calls):
        begin_s = time.perf_counter()
        choice_message(choose(columns, wish, policy, chance), columns, policy.name)
        seconds.append(time.perf_counter() - begin_s)
    return seconds


def _by_sorting(nodes: int, calls: int) -> list[float]:
    chance = random.Random(7)
    known: list[dict[str, Any]] = [
        {"name": f"node-{number}", "slots": 1 + number % 4, "alive": True, "belief": chance.gauss(0, 1)}
        for number in range(nodes)
    ]
    seconds = []
    for _ in range(calls):
        begin_s = time.perf_counter()
        fit = [node for node in known if node["alive"] and node["slots"] >= 1]
        sorted(fit, key=lambda node: node["belief"], reverse=True)[:BUDGET]
        seconds.append(time.perf_counter() - begin_s)
    return seconds
