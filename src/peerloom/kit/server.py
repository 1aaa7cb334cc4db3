"""One way to serve: health that tells the truth, reflection, certificates, signals, a graceful stop."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from peerloom.errors import ConfigurationError, PeerloomError, UnavailableError
from peerloom.kit import service_manager
from peerloom.kit.added_services import AddedServices
from peerloom.kit.call_metrics import CallMetrics
from peerloom.kit.channel import KEEPALIVE
from peerloom.kit.identity import Identity
from peerloom.kit.interceptors import CallInterceptor, Gate
from peerloom.kit.lease_rules import LETTING_GO_S
from peerloom.kit.lifeline import watch_lifeline
from peerloom.kit.listening import check_listen, is_loopback
from peerloom.kit.logs import get_logger
from peerloom.kit.metrics import MetricSource
from peerloom.kit.metrics_port import open_metrics
from peerloom.kit.server_limits import calls_at_once, raise_descriptor_limit, server_options
from peerloom.kit.tasks import BackgroundTaskError, BackgroundTasks, Work
from peerloom.kit.thread_pools import LOOP, LOOP_THREADS, named_pool

_log = get_logger()
S = TypeVar("S")
Probe = Callable[[], Awaitable[None]]
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
# Health's name for the process itself: what restarts processes asks for it, as one that stands by, or whose
# database is away, is as it should be.
LIVE = "live"
PROBE_INTERVAL_S = 1.0
PROBE_LIMIT_S = 2.0
STOP_GRACE_S = 5.0


@dataclass(frozen=True)
class Endpoint:
    """Where to listen, and how: with an `identity` certificates are required, without one it is plain.

    Plain is for loopback, and with `allow_plain` for a network whose every machine is trusted. `metrics` is
    the host:port where Prometheus reads metrics (empty: nowhere).
    """

    listen: str
    identity: Identity | None = None
    allow_plain: bool = False
    metrics: str = ""


class Server:
    """A grpc.aio server that owns its process's background tasks.

    It has its port, thus `address` (host:port), from the beginning; callers wait until it starts, or are
    refused while it stands by. Constructing it raises UnavailableError if the port is taken,
    ConfigurationError for an address that can't be used. `open_` makes gRPC's server, and `say` prints the
    address for whoever started the process: what a system in memory hands in.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        services: Sequence[str],
        open_: Callable[..., aio.Server] = aio.server,
        say: Callable[..., object] = print,
    ) -> None:
        self._say = say
        self._endpoint = endpoint
        self._services = ["", *services]
        self._probes: Mapping[str, Probe] = {}
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # not in its stubs
        self._stopping = asyncio.Event()
        self._is_listening = self._has_said_address = False
        self._gate = Gate()
        self._letting_go: asyncio.Task[None] | None = None
        self._tasks = BackgroundTasks(self.stop)
        self._added = AddedServices()
        calls = CallMetrics() if endpoint.metrics else None
        self._grpc = open_(
            interceptors=[CallInterceptor(self._gate, endpoint.identity, calls)],
            options=[*KEEPALIVE, *server_options(), ("grpc.so_reuseport", 0)],
            maximum_concurrent_rpcs=calls_at_once(),
        )
        self._grpc.add_generic_rpc_handlers([self._added])
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._grpc)
        names = [*services, health.SERVICE_NAME]
        reflection.enable_server_reflection([*names, reflection.SERVICE_NAME], self._grpc)
        host, _, _ = endpoint.listen.rpartition(":")
        self.address = f"{host}:{self._bind()}"
        self._metrics = open_metrics(endpoint.metrics) if endpoint.metrics else None
        if calls is not None:
            self.observe(calls)

    def add_servicer(self, add_to_server: Callable[[S, Any], None], servicer: S) -> None:
        """Serves `servicer`, by the function `add_..._to_server` that was generated for its service."""
        add_to_server(servicer, self._added)

    def observe(self, source: MetricSource) -> None:
        """Tells Prometheus of `source` too, if it is told anything."""
        if self._metrics is not None:
            self._metrics.observe(source)

    @property
    def metrics_address(self) -> str:
        """host:port where Prometheus reads metrics; empty: nowhere."""
        return self._metrics.address if self._metrics is not None else ""

    @property
    def running_tasks(self) -> Mapping[str, asyncio.Task[None]]:
        """The background tasks by name."""
        return self._tasks.running

    def start_task(self, name: str, work: Work, *, may_return: bool = False) -> asyncio.Task[None]:
        """Runs `work` until `close`. If it ends before a stop was asked for, the process stops in order.

        It may then return, which lets it wait for `stopping`; with `may_return` it may at any time. Where
        the machine is short of open files, disk or memory, it is begun again.
        """
        return self._tasks.start(name, work, may_return=may_return)

    async def stand_by(self, reason: str) -> None:
        """Answers health with NOT_SERVING, and every other call with UNAVAILABLE and `reason`."""
        self._gate.refusal = UnavailableError(reason, reason="STANDS_BY", metadata={"address": self.address})
        await self._tell(NOT_SERVING)
        await self._listen()
        self._say_address()

    def let_go(self, reason: PeerloomError) -> None:
        """Stops as one that no longer leads: calls are refused with `reason`, streams end as in any stop.

        What is then left of calls under way is cancelled after `LETTING_GO_S`.
        """
        self._gate.refusal = reason
        self._letting_go = self.start_task("letting go", self._end_calls, may_return=True)
        self.stop()

    async def start(self, probes: Mapping[str, Probe]) -> None:
        """Serves what was added, and says where on standard output: `address=host:port`.

        With metrics ` metrics=host:port` follows on that line. `probes` are awaited every second; one that
        raises makes health NOT_SERVING.
        """
        self._probes = probes
        if self._letting_go is None:
            self._gate.refusal = None
        await self._listen()
        await self._probe()
        self._say_address()
        self.start_task("health", self._probe_forever)
        self.start_task("end of health", self._end_health)
        _log.info("service_started", address=self.address)

    async def serve_until_stopped(self) -> None:
        """Serves until SIGTERM, SIGINT, `stop`, or the end of the lifeline or of a task; then drains."""
        await self._stopping.wait()
        service_manager.tell(service_manager.STOPPING)
        await self._health.enter_graceful_shutdown()
        if self._letting_go is None:
            await self._grpc.stop(STOP_GRACE_S)
        else:
            await asyncio.wait([self._letting_go])
        _log.info("service_stopped")

    async def close(self) -> None:
        """Ends serving and the tasks. Raises BackgroundTaskError if one of them ended by itself before."""
        self.stop()
        await self._grpc.stop(None)
        if self._metrics is not None:
            await self._metrics.close()
        await self._tasks.close()

    async def __aenter__(self) -> "Server":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def stop(self) -> None:
        """Asks for a graceful stop."""
        self._tasks.allow_ends()
        self._stopping.set()

    @property
    def stopping(self) -> asyncio.Event:
        """Set once a stop was asked for: streams that would last for ever end then."""
        return self._stopping

    def _say_address(self) -> None:
        # Whoever started this process reads it to learn that, and where, it can be reached.
        if not self._has_said_address:
            self._has_said_address = True
            metrics = f" metrics={self.metrics_address}" if self.metrics_address else ""
            with suppress(BrokenPipeError):  # who started this has ended meanwhile, as the lifeline tells
                self._say(f"address={self.address}{metrics}", flush=True)
            service_manager.tell(service_manager.READY)

    async def _listen(self) -> None:
        if self._is_listening:
            return
        self._is_listening = True
        await self._health.set(LIVE, SERVING)
        await self._grpc.start()
        if self._metrics is not None:
            self._metrics.start()
        if (interval_s := service_manager.watchdog_interval_s(os.environ, os.getpid())) > 0:
            self.start_task("watchdog", partial(service_manager.feed_watchdog, interval_s))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        watch_lifeline(lambda: loop.call_soon_threadsafe(self.stop))

    def _bind(self) -> int:
        end = self._endpoint
        check_listen("--listen", end.listen)
        try:
            if end.identity is not None:
                return self._grpc.add_secure_port(end.listen, end.identity.server_credentials())
            if not end.allow_plain and not is_loopback(end.listen):
                raise ConfigurationError(
                    f"{end.listen} is not loopback, so it needs the door: join with --join TOKEN, which "
                    "`peerloom token create` prints (for the registry itself: --join-listen), or give "
                    "--allow-plain on a network whose every machine you trust."
                )
            return self._grpc.add_insecure_port(end.listen)
        except RuntimeError as error:
            raise UnavailableError(
                f"can't listen on {end.listen} ({error}): another program may hold the port; "
                "choose another with --listen, port 0 takes a free one."
            ) from error

    async def _probe_forever(self) -> None:
        while True:
            await asyncio.sleep(PROBE_INTERVAL_S)
            await self._probe()

    async def _probe(self) -> None:
        status = SERVING if self._letting_go is None else NOT_SERVING
        for name, probe in self._probes.items():
            try:
                # Not wait_for: in Python 3.11 it swallows a cancellation that comes together with the result.
                async with asyncio.timeout(PROBE_LIMIT_S):
                    await probe()
            except Exception as error:
                _log.warning("probe_failed", probe=name, reason=str(error) or type(error).__name__)
                status = NOT_SERVING
        await self._tell(status)

    async def _tell(self, status: "health_pb2.HealthCheckResponse.ServingStatus.ValueType") -> None:
        for service in self._services:
            await self._health.set(service, status)

    async def _end_calls(self) -> None:
        await asyncio.sleep(LETTING_GO_S)  # meanwhile health and refusals tell others to look elsewhere
        await self._grpc.stop(None)  # also of a stop that lets calls end, if one had begun

    async def _end_health(self) -> None:
        await self._stopping.wait()
        await self._health.enter_graceful_shutdown()


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Runs a service's main coroutine; errors of setting up become one line and exit status 2.

    The end of a background task, in mid-service, is one line and exit status 1. What the service and its
    children write is this user's alone.
    """
    # gRPC would write a line of its own for every stranger whose handshake fails.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    raise_descriptor_limit()
    os.umask(0o077)

    async def begin() -> None:
        asyncio.get_running_loop().set_default_executor(named_pool(LOOP, LOOP_THREADS))
        await main()

    try:
        asyncio.run(begin())
    except BackgroundTaskError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except PeerloomError as error:
        print(f"error: {error.message}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
