"""Ten thousand nodes at one registry: joining at once, beating, half of them lost, the registry killed.

The agents' registry-side code is the real one, thousands in a process, each over a connection of its own; a
selector follows the registry meanwhile. The rival is a bare grpc.aio server that answers as many of the same
agents from a constant. NODES names another number.
"""

import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from benchmarks.crowd_system import Crowd, Service, ask_all, check_machine
from benchmarks.measure import Measurement, percentile
from benchmarks.registry_agent import NAME
from benchmarks.watched_nodes import WatchedNodes
from peerloom.kit.dialing import Dialer
from peerloom.services.registry.config import PRESETS
from peerloom.v1 import selector_pb2 as pb

NODES, QUICK_NODES = 10_000, 200
PROCESSES = 8
PRESET = "wan"
RIVAL = "bare grpc.aio echo"
JOIN_LIMIT_S, SETTLE_S = 180.0, 10.0
DEAD_LIMIT_S = 180.0
# Of the preset: no heartbeat for so long after the grace of a restart would be a death.
DEATHS_WOULD_COME_S = 95.0
LOOK_S = 0.25


@dataclass(frozen=True)
class Size:
    """How many nodes, how often and for how long their beats are timed, and how often the server is killed."""

    nodes: int
    windows: int
    window_s: float
    restarts: int


@dataclass
class Figures:
    """What was seen of one server. Seconds; memory in kB a node; p50 and p99 of each window."""

    joined_s: float = 0.0
    node_kb: float = 0.0
    p50_s: list[float] = field(default_factory=list)
    p99_s: list[float] = field(default_factory=list)
    rejoined_s: list[float] = field(default_factory=list)


def run(quick: bool) -> list[Measurement]:
    """Ours, then the echo, which has nothing to lose but its connections."""
    nodes = int(os.environ.get("NODES") or (QUICK_NODES if quick else NODES))
    size = Size(nodes, 2, 6.0, 2) if quick else Size(nodes, 5, 10.0, 5)
    check_machine(size.nodes, PROCESSES)
    echo = _echo(size)
    return _Registry(size).measure(echo)


class _Bench:
    """Crowds of agents at one server, and what is seen of it in `found`."""

    def __init__(self, size: Size, server: Service) -> None:
        self._size, self._server, self.found = size, server, Figures()
        each = size.nodes // PROCESSES
        counts = [each + (number < size.nodes % PROCESSES) for number in range(PROCESSES)]
        firsts = [sum(counts[:number]) for number in range(PROCESSES)]
        self.crowds = [Crowd(server.port, *both) for both in zip(firsts, counts, strict=True)]

    def close(self) -> None:
        """Ends all agents."""
        for crowd in self.crowds:
            crowd.leave_suddenly()

    def join(self) -> None:
        """All at once."""
        idle_bytes = self._server.memory_bytes()
        self.found.joined_s = self.join_these(self.crowds)
        time.sleep(SETTLE_S)
        self.found.node_kb = (self._server.memory_bytes() - idle_bytes) / self._size.nodes / 1000
        _say(f"joined in {self.found.joined_s:.1f} s, {self.found.node_kb:.1f} kB a node")

    def join_these(self, crowds: Sequence[Crowd]) -> float:
        """The agents of some processes: the time until each was heard."""
        begin_s = time.monotonic()
        ask_all(crowds, "join")
        return self.heard_by_all(crowds, begin_s)

    def heard_by_all(self, crowds: Sequence[Crowd], since_s: float) -> float:
        """Until the last agent had an answer to a beat that it sent since then, in seconds."""
        answers = ask_all(crowds, "heard", since_s, JOIN_LIMIT_S)
        heard = [one for answer in answers for one in answer["heard_s"]]
        if (missing := sum(crowd.count for crowd in crowds) - len(heard)) > 0:
            raise SystemExit(f"error: {missing:,} nodes weren't heard within {JOIN_LIMIT_S:g} s")
        return max(heard)

    def beat(self) -> None:
        """A window of beats."""
        used_s = self._server.processor_s()
        seconds = self.beats()
        used_s = self._server.processor_s() - used_s
        self.found.p50_s.append(percentile(seconds, 50))
        self.found.p99_s.append(percentile(seconds, 99))
        _say(
            f"{len(seconds) / self._size.window_s:.0f} beats/s: p50 {1000 * self.found.p50_s[-1]:.2f} ms, "
            f"p99 {1000 * self.found.p99_s[-1]:.2f} ms; server {used_s / self._size.window_s:.0%} of a core"
        )

    def beats(self) -> list[float]:
        """How long the answers took in one window, in seconds."""
        return [one for found in ask_all(self.crowds, "beats", self._size.window_s) for one in found]

    def restart(self) -> None:
        """Kills the server and starts it again at once."""
        begin_s = time.monotonic()
        self._server.kill()
        self._server.start()
        up_s = time.monotonic() - begin_s
        self.found.rejoined_s.append(self.heard_by_all(self.crowds, begin_s))
        _say(f"killed: serves after {up_s:.1f} s, all heard after {self.found.rejoined_s[-1]:.1f} s")


class _Registry:
    """The whole course with a registry and the selector that follows it."""

    def __init__(self, size: Size) -> None:
        self._size = size

    def measure(self, echo: Figures) -> list[Measurement]:
        """Runs it; `echo` is what the rival did."""
        size = self._size
        with ExitStack() as opened:
            registry = opened.enter_context(_registry())
            selector = opened.enter_context(_selector(registry.address))
            watched = opened.enter_context(WatchedNodes(registry.address))
            lag = opened.enter_context(_Lag(selector))
            idle_bytes = selector.memory_bytes()
            bench = _Bench(size, registry)
            opened.callback(bench.close)
            begin_s = time.monotonic()
            bench.join()
            lags_s = {"joining": lag.most_s()}
            selector_kb = (selector.memory_bytes() - idle_bytes) / size.nodes / 1000
            for _ in range(size.windows):
                bench.beat()
            choices_s = asyncio.run(_choices(selector.address, 20 if size.nodes < NODES else 200))
            lag.most_s()
            suspected_s, dead_s = self._lose_half(bench, watched)
            lags_s["half lost"] = lag.most_s()
            return_s = self._come_back(bench)
            lags_s["half coming back"] = lag.most_s()
            half = len(watched.interrupted(begin_s))
            begin_s = time.monotonic()
            for _ in range(size.restarts):
                bench.restart()
            time.sleep(max(0.0, DEATHS_WOULD_COME_S if size.nodes >= NODES else 0))
            lags_s["restarts"] = lag.most_s()
            false_deaths = len(watched.interrupted(begin_s))
            _say(f"suspected {suspected_s:.1f} dead {dead_s:.1f} back {return_s:.1f} lags {lags_s}")
            _say(f"false deaths {false_deaths} suspected {len(watched.suspected(begin_s))} dead half {half}")
            _say(
                f"selector {selector_kb:.1f} kB/node; choice p50 {percentile(choices_s, 50) * 1000:.2f} p99 {percentile(choices_s, 99) * 1000:.2f}"
            )
        return []

    def _lose_half(self, bench: _Bench, watched: WatchedNodes) -> tuple[float, float]:
        lost = bench.crowds[: PROCESSES // 2]
        names = {NAME.format(n) for crowd in lost for n in range(crowd.first, crowd.first + crowd.count)}
        begin_s = time.monotonic()
        for crowd in lost:
            crowd.leave_suddenly()
        suspected_s = watched.wait_until_suspected(names, begin_s, DEAD_LIMIT_S)
        dead_s = watched.wait_until_interrupted(names, begin_s, DEAD_LIMIT_S)
        return suspected_s, dead_s

    def _come_back(self, bench: _Bench) -> float:
        half = PROCESSES // 2
        bench.crowds[:half] = [crowd.again() for crowd in bench.crowds[:half]]
        return bench.join_these(bench.crowds[:half])


class _Lag:
    """Looks all the time how far the selector is behind the registry's events."""

    def __init__(self, selector: Service) -> None:
        self._selector, self._ended, self._seen_s = selector, threading.Event(), [0.0]
        self._thread = threading.Thread(target=self._look, name="lag")

    def __enter__(self) -> "_Lag":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def most_s(self) -> float:
        """The most seen since this was asked last, in seconds."""
        seen, self._seen_s = self._seen_s, [0.0]
        return max(seen)

    def _look(self) -> None:
        while not self._ended.wait(LOOK_S):
            self._seen_s.append(self._selector.reading("peerloom_selector_follower_delay_seconds"))


async def _choices(address: str, calls: int) -> list[float]:
    """How long choosing 10 of all took, in seconds."""
    wish = pb.SelectNodesRequest(requirements=pb.Requirements(min_slots=1), request_budget=10)
    seconds = []
    async with Dialer().selector(address) as selector:
        for _ in range(calls + 1):
            begin_s = time.perf_counter()
            await selector.call(selector.stub.SelectNodes, wish)
            seconds.append(time.perf_counter() - begin_s)
    return seconds[1:]


def _echo(size: Size) -> Figures:
    with tempfile.TemporaryFile() as log, ExitStack() as opened:
        server = Service(
            "benchmarks.heartbeat_echo", ["LISTEN", str(PRESETS[PRESET].heartbeat_interval_s)], "0.0.0.0", log
        )
        opened.callback(server.stop)
        bench = _Bench(size, server)
        opened.callback(bench.close)
        bench.join()
        for _ in range(size.windows):
            bench.beat()
        for _ in range(size.restarts):
            bench.restart()
        return bench.found


@contextmanager
def _registry() -> Iterator[Service]:
    with tempfile.TemporaryDirectory() as state, tempfile.TemporaryFile() as log:
        there = ["--listen", "LISTEN", "--allow-plain", "--state", state, "--preset", PRESET]
        server = Service("peerloom.services.registry", there, "0.0.0.0", log)
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def _selector(registry: str) -> Iterator[Service]:
    with tempfile.TemporaryDirectory() as state, tempfile.TemporaryFile() as log:
        there = ["--listen", "LISTEN", "--registry", registry, "--state", state, "--metrics", "127.0.0.1:0"]
        server = Service("peerloom.services.selector", there, "127.0.0.1", log)
        try:
            yield server
        finally:
            server.stop()


def _say(text: str) -> None:
    print(f"   {text}", flush=True)
