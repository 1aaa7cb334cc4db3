"""How many heartbeats one registry process answers on one core, and how fast while 10,000 nodes beat.

The registry has one core, the client the other. The rival is a bare grpc.aio server with the same messages
that answers each beat from a constant: what is left when all of the registry's work is taken away.
"""

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from benchmarks.heartbeat_load import Latencies, Load, Rate, beat_as_fast_as_possible, beat_on_time
from benchmarks.measure import Goal, Measurement, alternate, measurement, percentile
from benchmarks.processes import Running, pinned, profiled, running

SERVER_CORE, CLIENT_CORE = 0, 1
INTERVAL_S = 10.0
RIVAL = "bare grpc.aio echo"
_REGISTRY = "peerloom.services.registry"
_PATIENCE = ("--heartbeat-interval-s", "10", "--suspect-after-s", "60", "--dead-after-s", "120")
_QUIET = ("--listen", "127.0.0.1:0", "--log-level", "error")


def run(quick: bool) -> list[Measurement]:
    """Throughput with 64 nodes at once, then latencies with 10,000 registered nodes."""
    rounds, seconds, nodes = (1, 1.0, 200) if quick else (5, 8.0, 10_000)
    fast = Load(nodes=64, connections=8, seconds=seconds)
    timed = Load(nodes=nodes, connections=100, seconds=2.0 if quick else 2 * INTERVAL_S)
    with pinned({CLIENT_CORE}):
        rates, echo_rates = alternate(rounds, lambda: _rate(registry(), fast), lambda: _rate(_echo(), fast))
        late, echo_late = alternate(
            rounds, lambda: _latencies(registry(), timed), lambda: _latencies(_echo(), timed)
        )
    return [
        *_rate_measurements(rates, echo_rates),
        *_latency_measurements(late, echo_late, nodes),
    ]


def _rate_measurements(ours: Sequence[Rate], echo: Sequence[Rate]) -> list[Measurement]:
    return [
        measurement(
            "streamed heartbeats, 64 nodes at once",
            "beats/s",
            [one.beats_per_s for one in ours],
            goal=Goal(0.9, at_least=True, of_ratio=True),
            rival=RIVAL,
            rival_samples=[one.beats_per_s for one in echo],
        ),
        measurement(
            "the same by a second of the server's processor time",
            "beats/s",
            [one.beats_per_processor_s for one in ours],
            rival=RIVAL,
            rival_samples=[one.beats_per_processor_s for one in echo],
        ),
    ]


def _latency_measurements(
    ours: Sequence[Latencies], echo: Sequence[Latencies], nodes: int
) -> list[Measurement]:
    def of(runs: Sequence[Latencies], percent: float) -> list[float]:
        return [1000 * percentile(run.seconds, percent) for run in runs]

    title = f"heartbeat while {nodes:,} nodes beat every 10 s"
    return [
        measurement(f"{title}, p50", "ms", of(ours, 50), rival=RIVAL, rival_samples=of(echo, 50)),
        measurement(
            f"{title}, p99",
            "ms",
            of(ours, 99),
            goal=Goal(20, at_least=False),
            rival=RIVAL,
            rival_samples=of(echo, 99),
        ),
        measurement("registrations, each on disk", "nodes/s", [run.registrations_per_s for run in ours]),
    ]


def profile(quick: bool, *flags: str) -> str:
    """The registry's dearest functions under the fastest load."""
    load = Load(nodes=64, connections=8, seconds=1.0 if quick else 8.0)
    title = "registry, 64 nodes beating as fast as they can, by own time (cProfile slows it down)"
    with tempfile.TemporaryDirectory() as state, pinned({CLIENT_CORE}):
        arguments = ("--state", state, *_PATIENCE, *_QUIET, *flags)
        with profiled(_REGISTRY, *arguments, core=SERVER_CORE, title=title) as (server, report):
            asyncio.run(beat_as_fast_as_possible(server, load))
    return report[0]


@contextmanager
def registry(*flags: str) -> Iterator[Running]:
    """A registry of its own on SERVER_CORE, with these flags more."""
    with (
        tempfile.TemporaryDirectory() as state,
        running(_REGISTRY, "--state", state, *_PATIENCE, *_QUIET, *flags, core=SERVER_CORE) as server,
    ):
        yield server


@contextmanager
def _echo() -> Iterator[Running]:
    with running("benchmarks.heartbeat_echo", core=SERVER_CORE) as server:
        yield server


def _rate(started: AbstractContextManager[Running], load: Load) -> Rate:
    with started as server:
        return asyncio.run(beat_as_fast_as_possible(server, load))


def _latencies(started: AbstractContextManager[Running], load: Load) -> Latencies:
    with started as server:
        return asyncio.run(beat_on_time(server, load, INTERVAL_S))
