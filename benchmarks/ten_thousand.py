"""Ten thousand nodes at one registry: joining at once, beating, half of them lost, the registry killed.

The agents' registry-side code is the real one, thousands in a process, each over a connection of its own; a
selector follows the registry meanwhile. The rival is a bare grpc.aio server that answers as many of the same
agents from a constant. NODES names another number, for trying with --quick.
"""

import asyncio
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import starmap

from benchmarks.crowd_bench import PROCESSES, CrowdBench, Seen, Size
from benchmarks.crowd_system import Crowd, SelectorLag, Service, check_machine
from benchmarks.heartbeats import SERVER_CORE
from benchmarks.intervals import EXACT
from benchmarks.measure import Goal, Measurement, measurement, percentile
from benchmarks.processes import profiled
from benchmarks.registry_agent import NAME
from benchmarks.watched_nodes import WatchedNodes
from peerloom.kit.dialing import Dialer
from peerloom.services.registry.config import PRESETS
from peerloom.v1 import selector_pb2 as pb

NODES, QUICK_NODES, PROFILED_NODES = 10_000, 200, 1_000
WHOLE = Size(NODES, windows=5, window_s=8.0, restarts=5)
PRESET = "wan"
RIVAL = "bare grpc.aio echo"
REJOIN_GOAL_S, NODE_GOAL_KB, BEAT_GOAL_MS = 30, 20, 20
BUDGET, CHOICES = 10, 200
LIMIT_S = 180.0
EVERYWHERE, LOOPBACK = "0.0.0.0", "127.0.0.1"
Arguments = Callable[[str, str], Sequence[str]]  # by state folder and host:port
_REGISTRY = "peerloom.services.registry"


@dataclass
class Course:
    """What was seen of the registry beside what is seen of its rival too; seconds, and kB a node."""

    suspected_s: float = 0.0
    dead_s: float = 0.0
    back_s: float = 0.0
    false_deaths: int = 0
    choices_s: list[list[float]] = field(default_factory=list)
    selector_kb: float = 0.0
    lags_s: dict[str, float] = field(default_factory=dict)


def run(quick: bool) -> list[Measurement]:
    """The echo first, which has nothing to lose but its connections; then the whole course."""
    nodes = int(os.environ.get("NODES") or QUICK_NODES)
    size = Size(nodes, windows=2, window_s=6.0, restarts=2) if quick else WHOLE
    check_machine(size.nodes)
    echo = _echo(size)
    ours, course = _course(size)
    return [*_beside_the_echo(size, ours, echo), *_alone(size, course)]


def _beside_the_echo(size: Size, ours: Seen, echo: Seen) -> list[Measurement]:
    nodes = f"{size.nodes:,} nodes"

    def beside(
        name: str, unit: str, samples: Sequence[float], others: Sequence[float], most: float = 0
    ) -> Measurement:
        goal = Goal(most, at_least=False) if most else None
        return measurement(name, unit, samples, goal=goal, rival=RIVAL, rival_samples=others)

    def beats(seen: Seen, percent: float) -> list[float]:
        return [1000 * percentile(window, percent) for window in seen.beats_s]

    killed = f"{nodes}: from the registry's SIGKILL until all are heard again"
    beat = f"a beat while {nodes} beat every {PRESETS[PRESET].heartbeat_interval_s:g} s"
    more_kb = [own - bare for own, bare in zip(ours.node_kb, echo.node_kb, strict=True)]
    return [
        beside(f"{nodes} join at once: until all are heard", "s", ours.joined_s, echo.joined_s),
        beside(killed, "s", ours.rejoined_s, echo.rejoined_s, REJOIN_GOAL_S),
        beside(f"{beat}, p50", "ms", beats(ours, 50), beats(echo, 50)),
        beside(f"{beat}, p99", "ms", beats(ours, 99), beats(echo, 99), BEAT_GOAL_MS),
        beside("memory of the registry", "kB a node", ours.node_kb, echo.node_kb, NODE_GOAL_KB),
        measurement("the same beyond the bare echo's", "kB a node", more_kb),
    ]


def _alone(size: Size, course: Course) -> list[Measurement]:
    half, chosen = f"half of {size.nodes:,} nodes killed", f"choosing {BUDGET} of {size.nodes:,} nodes"
    none = Goal(0, at_least=False)

    def choices(percent: float) -> list[float]:
        return [1000 * percentile(part, percent) for part in course.choices_s]

    def lag(phase: str, seconds: float) -> Measurement:
        return measurement(f"the selector behind the registry at most, {phase}", "s", [seconds])

    return [
        measurement(f"{half}: until all are suspected", "s", [course.suspected_s]),
        measurement(f"{half}: until all are dead", "s", [course.dead_s]),
        measurement(f"{half}: until all that came again are heard", "s", [course.back_s]),
        measurement(
            "nodes declared dead that beat", "nodes", [course.false_deaths], statistic=EXACT, goal=none
        ),
        *starmap(lag, course.lags_s.items()),
        measurement("memory of the selector", "kB a node", [course.selector_kb]),
        measurement(f"{chosen} by gRPC, p50", "ms", choices(50)),
        measurement(f"{chosen} by gRPC, p99", "ms", choices(99)),
    ]


def profile(quick: bool) -> str:
    """The registry's dearest functions while nodes join, beat and are lost."""
    nodes = QUICK_NODES if quick else PROFILED_NODES
    title = f"registry, {nodes:,} nodes that join at once and beat, by own time (cProfile slows it down)"
    with tempfile.TemporaryDirectory() as state:
        arguments = _registry_arguments(state, f"{EVERYWHERE}:0")
        with profiled(_REGISTRY, *arguments, core=SERVER_CORE, title=title) as (server, report):
            crowd = Crowd(int(server.address.rpartition(":")[2]), 0, nodes)
            crowd.say("join")
            crowd.answer()
            crowd.say("heard", time.monotonic(), LIMIT_S)
            crowd.answer()
            crowd.leave_suddenly()
    return report[0]


def _course(size: Size) -> tuple[Seen, Course]:
    course = Course()
    with ExitStack() as opened:
        registry = _service(opened, _REGISTRY, _registry_arguments, EVERYWHERE)
        selector = _service(
            opened,
            "peerloom.services.selector",
            lambda state, listen: _selector_arguments(state, listen, registry.address),
            LOOPBACK,
        )
        watched = opened.enter_context(WatchedNodes(registry.address))
        lag = opened.enter_context(SelectorLag(selector))
        idle_bytes = selector.memory_bytes()
        bench = opened.enter_context(CrowdBench(size, registry))
        bench.join()
        course.lags_s["while all join"] = lag.most_s()
        course.selector_kb = (selector.memory_bytes() - idle_bytes) / size.nodes / 1000
        bench.beat()
        course.choices_s = [asyncio.run(_choices(selector.address)) for _ in range(size.windows)]
        lost = _lose_half(bench, watched, course)
        course.lags_s["while half are lost"] = lag.most_s()
        half = PROCESSES // 2
        bench.crowds[:half] = [crowd.again() for crowd in bench.crowds[:half]]
        course.back_s = bench.join_these(bench.crowds[:half])
        course.lags_s["while these come again"] = lag.most_s()
        bench.restart()
        # Whoever is declared dead by mistake after the last restart is by then.
        timing = PRESETS[PRESET]
        time.sleep(timing.restart_grace_s + timing.dead_after_s + timing.heartbeat_interval_s)
        course.lags_s["after restarts of the registry"] = lag.most_s()
        course.false_deaths = sum((watched.interrupted() - lost).values())
    return bench.seen, course


def _lose_half(bench: CrowdBench, watched: WatchedNodes, course: Course) -> Counter[str]:
    gone = bench.crowds[: PROCESSES // 2]
    names = {NAME.format(n) for crowd in gone for n in range(crowd.first, crowd.first + crowd.count)}
    begin_s = time.monotonic()
    for crowd in gone:
        crowd.leave_suddenly()
    course.suspected_s = watched.wait_until_suspected(names, begin_s, LIMIT_S)
    course.dead_s = watched.wait_until_interrupted(names, begin_s, LIMIT_S)
    return Counter(names)


async def _choices(address: str) -> list[float]:
    """How long choosing took, in seconds."""
    wish = pb.SelectNodesRequest(requirements=pb.Requirements(min_slots=1), request_budget=BUDGET)
    seconds = []
    async with Dialer().selector(address) as selector:
        await selector.call(selector.stub.SelectNodes, wish)
        for _ in range(CHOICES):
            begin_s = time.perf_counter()
            answer = await selector.call(selector.stub.SelectNodes, wish)
            seconds.append(time.perf_counter() - begin_s)
            assert len(answer.nodes) == BUDGET, "the selector doesn't know the nodes"
    return seconds


def _echo(size: Size) -> Seen:
    interval_s = str(PRESETS[PRESET].heartbeat_interval_s)
    with ExitStack() as opened:
        server = _service(
            opened, "benchmarks.heartbeat_echo", lambda _, listen: [listen, interval_s], EVERYWHERE
        )
        bench = opened.enter_context(CrowdBench(size, server))
        bench.join()
        bench.beat()
        bench.restart()
    return bench.seen


def _service(opened: ExitStack, module: str, arguments: Arguments, host: str) -> Service:
    state, log = opened.enter_context(tempfile.TemporaryDirectory()), tempfile.TemporaryFile()  # noqa: SIM115  # `opened` closes it
    opened.enter_context(log)
    server = Service(module, lambda listen: arguments(state, listen), host, log)
    opened.callback(server.stop)
    return server


def _registry_arguments(state: str, listen: str) -> list[str]:
    return ["--listen", listen, "--allow-plain", "--state", state, "--preset", PRESET]


def _selector_arguments(state: str, listen: str, registry: str) -> list[str]:
    there = ["--listen", listen, "--state", state, "--registry", registry]
    return [*there, "--metrics", f"{LOOPBACK}:0"]
