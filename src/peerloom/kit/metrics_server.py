"""Serves metrics to Prometheus, by HTTP. The only module that imports prometheus_client; see metrics_port."""

import asyncio
import socket
import sys
import threading
from collections.abc import Iterable
from socketserver import TCPServer
from typing import Any, cast
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import ThreadingWSGIServer, make_wsgi_app
from prometheus_client.registry import Collector

from peerloom.errors import UnavailableError
from peerloom.kit.listening import check_listen, is_loopback
from peerloom.kit.logs import get_logger
from peerloom.kit.metrics import Metric, MetricKind, MetricSource, Reading, Tally

READ_LIMIT_S = 5.0
REQUEST_LIMIT_S = 10.0
REQUESTS_AT_ONCE = 8
_log = get_logger()


class MetricsServer:
    """Answers on a thread of its own with what the sources tell on the event loop.

    It has its port, thus `address` (host:port), from the beginning. Constructing it raises ConfigurationError
    for an address that can't be used, UnavailableError if the port is taken.
    """

    def __init__(self, listen: str) -> None:
        check_listen("--metrics", listen)
        host, _, port = listen.rpartition(":")
        self._sources = _SourcesCollector()
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        registry.register(self._sources)
        try:
            self._http = _http_server(host)((host.strip("[]"), int(port)), _Handler)
        except OSError as error:
            raise UnavailableError(
                f"can't serve metrics at {listen} ({error.strerror or error}): another program may hold the "
                "port; choose another with --metrics, port 0 takes a free one."
            ) from error
        self._http.set_app(make_wsgi_app(registry))
        self.address = f"{host}:{self._http.server_port}"
        self._thread: threading.Thread | None = None

    def observe(self, source: MetricSource) -> None:
        """Tells of `source` too from now on."""
        self._sources.sources.append(source)

    def start(self) -> None:
        """Answers from now on; sources are read on the running loop."""
        self._sources.loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._http.serve_forever, name="metrics", daemon=True)
        self._thread.start()
        if not is_loopback(self.address):
            advice = "whoever reaches this port reads the metrics: there is no certificate and no token"
            _log.warning("metrics_beyond_loopback", address=self.address, advice=advice)
        _log.info("metrics_served", address=self.address)

    async def close(self) -> None:
        """Ends answering and frees the port."""
        if self._thread is not None:
            await asyncio.to_thread(self._http.shutdown)
            self._thread = None
        self._http.server_close()


class _SourcesCollector(Collector):
    """Asks the sources on the loop that they belong to, from the thread of a request."""

    def __init__(self) -> None:
        self.sources: list[MetricSource] = []
        self.loop: asyncio.AbstractEventLoop | None = None

    def describe(self) -> Iterable[Family]:
        return []  # else it would be collected to be registered

    def collect(self) -> Iterable[Family]:
        assert self.loop is not None, "requests are answered from the start on"
        return asyncio.run_coroutine_threadsafe(self._read(), self.loop).result(READ_LIMIT_S)

    async def _read(self) -> list[Family]:
        # Made here, on the loop: it copies what may change as soon as the loop goes on.
        families: list[Family] = []
        for source in self.sources:
            try:
                families += [family_of(told) for told in await source.collect()]
            except Exception as error:  # what the others tell is worth having all the same
                _log.error("metrics_not_read", source=type(source).__name__, exc_info=error)
        return families


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_LIMIT_S  # for a stranger who connects and says nothing

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a line for each scrape would fill the log."""


class _BoundedServer(ThreadingWSGIServer):
    """A thread for each request, and at most REQUESTS_AT_ONCE of them: more are turned away."""

    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        self._free = threading.BoundedSemaphore(REQUESTS_AT_ONCE)
        super().__init__(address, handler)

    def server_bind(self) -> None:
        # The library's own way asks the network for the host's name.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.info("metrics_not_sent", reason=repr(sys.exception()))


class _BoundedServer6(_BoundedServer):
    address_family = socket.AF_INET6


def _http_server(host: str) -> type[_BoundedServer]:
    return _BoundedServer6 if host.startswith("[") else _BoundedServer


def family_of(told: Reading) -> Family:
    """A reading in the library's own terms."""
    family = _empty(told.metric)
    for labels, value in told.values.items():
        if isinstance(value, Tally):
            family.add_metric(labels, _buckets(value), value.total)
        else:
            family.add_metric(labels, value)
    return cast(Family, family)


def _empty(metric: Metric) -> Any:
    match metric.kind:
        case MetricKind.COUNTER:
            return CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
        case MetricKind.GAUGE:
            return GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
        case MetricKind.HISTOGRAM:
            return HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)


def _buckets(tally: Tally) -> list[tuple[str, float]]:
    """Up to each bound, all below it counted too, as Prometheus wants them."""
    buckets, total = [], 0
    for bound, count in zip((*tally.bounds, float("inf")), tally.counts, strict=True):
        total += count
        buckets.append((_bound_text(bound), float(total)))
    return buckets


def _bound_text(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(bound)
