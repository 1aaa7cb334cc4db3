"""Crowds of agents at one server: joining it, beating, and coming back after it was killed, each timed."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from benchmarks.crowd_system import Crowd, Service, ask_all
from benchmarks.measure import percentile

PROCESSES = 8
JOIN_LIMIT_S, SETTLE_S = 240.0, 5.0


@dataclass(frozen=True)
class Size:
    """How many nodes, how often and how long their beats are timed, and how often the server is killed."""

    nodes: int
    windows: int
    window_s: float
    restarts: int


@dataclass
class Seen:
    """Seconds until the last node was heard, seconds of each beat by window, and the server's kB a node."""

    joined_s: list[float] = field(default_factory=list)
    rejoined_s: list[float] = field(default_factory=list)
    beats_s: list[list[float]] = field(default_factory=list)
    node_kb: list[float] = field(default_factory=list)


class CrowdBench:
    """All agents, in PROCESSES processes, until the block ends."""

    def __init__(self, size: Size, server: Service) -> None:
        self._size, self._server, self.seen = size, server, Seen()
        self._idle_bytes = server.memory_bytes()
        ends = [size.nodes * number // PROCESSES for number in range(PROCESSES + 1)]
        self.crowds = [Crowd(server.port, first, end - first) for first, end in pairwise(ends)]

    def __enter__(self) -> "CrowdBench":
        return self

    def __exit__(self, *_: object) -> None:
        for crowd in self.crowds:
            crowd.leave_suddenly()

    def join(self) -> None:
        """All at once."""
        self.seen.joined_s.append(self.join_these(self.crowds))
        time.sleep(SETTLE_S)
        self._weigh()
        _say(f"joined in {self.seen.joined_s[-1]:.1f} s, {self.seen.node_kb[-1]:.1f} kB a node")

    def join_these(self, crowds: Sequence[Crowd]) -> float:
        """The agents of some processes: the time until each was heard, in seconds."""
        begin_s = time.monotonic()
        ask_all(crowds, "join")
        return _heard_by_all(crowds, begin_s)

    def beat(self) -> None:
        """Some windows of beats."""
        for _ in range(self._size.windows):
            used_s = self._server.processor_s()
            parts = ask_all(self.crowds, "beats", self._size.window_s)
            used_s = self._server.processor_s() - used_s
            seconds = [one for part in parts for one in part]
            self.seen.beats_s.append(seconds)
            p50_ms, p99_ms = (1000 * percentile(seconds, percent) for percent in (50, 99))
            busy = used_s / self._size.window_s
            said = f"{len(seconds):,} beats: p50 {p50_ms:.2f} ms, p99 {p99_ms:.2f} ms"
            _say(f"{said}; server {busy:.0%} of a core")

    def restart(self) -> None:
        """Kills the server and starts it again at once, some times."""
        for _ in range(self._size.restarts):
            begin_s = time.monotonic()
            self._server.kill()
            self._server.start()
            up_s = time.monotonic() - begin_s
            self.seen.rejoined_s.append(_heard_by_all(self.crowds, begin_s))
            self._weigh()
            _say(f"killed: serves after {up_s:.1f} s, all heard after {self.seen.rejoined_s[-1]:.1f} s")

    def _weigh(self) -> None:
        bytes_ = self._server.memory_bytes() - self._idle_bytes
        self.seen.node_kb.append(bytes_ / self._size.nodes / 1000)


def _heard_by_all(crowds: Sequence[Crowd], since_s: float) -> float:
    answers = ask_all(crowds, "heard", since_s, JOIN_LIMIT_S)
    heard: list[float] = [one for answer in answers for one in answer]
    if missing := sum(crowd.count for crowd in crowds) - len(heard):
        raise SystemExit(f"error: {missing:,} nodes weren't heard within {JOIN_LIMIT_S:g} s")
    return max(heard)


def _say(text: str) -> None:
    print(f"   {text}", flush=True)
