"""What it costs the registry to be watched: heartbeats with metrics beside without, and with traces.

The registry has one core, the nodes the other; both sides run in turn. Metrics are read every second, as an
eager Prometheus would. Traces go to a collector that isn't there, and no heartbeat is in one.
"""

import asyncio
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.request import ProxyHandler, build_opener

from benchmarks import heartbeats
from benchmarks.heartbeat_load import Load, Rate, beat_as_fast_as_possible
from benchmarks.heartbeats import CLIENT_CORE, registry
from benchmarks.measure import Goal, Measurement, alternate, measurement
from benchmarks.processes import pinned

SCRAPE_INTERVAL_S, SCRAPE_LIMIT_S = 1.0, 30.0
NOBODY_LISTENS = "http://127.0.0.1:9"


def run(quick: bool) -> list[Measurement]:
    """Throughput with 64 nodes at once, each side in turn."""
    rounds, seconds = (2, 1.0) if quick else (10, 8.0)
    load = Load(nodes=64, connections=8, seconds=seconds)
    with pinned({CLIENT_CORE}):
        measured, plain = alternate(rounds, lambda: _measured(load), lambda: _plain(load))
        traced, untraced = alternate(rounds, lambda: _traced(load), lambda: _plain(load))
    return [
        _beside("heartbeats while metrics are read every second", measured, "without metrics", plain),
        _beside("heartbeats while traces are on", traced, "without traces", untraced),
    ]


def profile(quick: bool) -> str:
    """The registry's dearest functions under that load, while it would answer Prometheus."""
    return heartbeats.profile(quick, "--metrics", "127.0.0.1:0")


def _beside(name: str, ours: Sequence[Rate], rival: str, theirs: Sequence[Rate]) -> Measurement:
    return measurement(
        name,
        "beats/s",
        [one.beats_per_s for one in ours],
        goal=Goal(0.95, at_least=True, of_ratio=True),
        rival=rival,
        rival_samples=[one.beats_per_s for one in theirs],
    )


def _plain(load: Load) -> Rate:
    with registry() as server:
        return asyncio.run(beat_as_fast_as_possible(server, load))


def _measured(load: Load) -> Rate:
    with registry("--metrics", "127.0.0.1:0") as server, _scraped(server.metrics):
        return asyncio.run(beat_as_fast_as_possible(server, load))


def _traced(load: Load) -> Rate:
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = NOBODY_LISTENS
    try:
        return _plain(load)
    finally:
        del os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]


@contextmanager
def _scraped(address: str) -> Iterator[None]:
    """Reads metrics every second until the block ends."""
    ended, opener = threading.Event(), build_opener(ProxyHandler({}))

    def scrape() -> None:
        while not ended.wait(SCRAPE_INTERVAL_S):
            with opener.open(f"http://{address}/metrics", timeout=SCRAPE_LIMIT_S) as answer:
                answer.read()

    scraper = threading.Thread(target=scrape, name="scraper")
    scraper.start()
    try:
        yield
    finally:
        ended.set()
        scraper.join()
