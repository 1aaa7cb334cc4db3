"""One way to serve: health that tells the truth, reflection, TLS, signals and a graceful stop."""

import asyncio
import ipaddress
import os
import re
import signal
import ssl
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

from peerloom.errors import ConfigurationError, UnavailableError
from peerloom.kit.channel import KEEPALIVE
from peerloom.kit.interceptors import CallInterceptor
from peerloom.kit.logs import get_logger

_log = get_logger()
Probe = Callable[[], Awaitable[None]]
_LISTEN = re.compile(r"(\[[0-9a-fA-F:]+\]|[^:\s]+):[0-9]{1,5}")
PROBE_INTERVAL_S = 1.0
STOP_GRACE_S = 5.0
ORPHAN_LIMIT_S = 20.0


@dataclass(frozen=True)
class Endpoint:
    """Where to listen, and how."""

    listen: str
    tls_certificate: str = ""
    tls_key: str = ""
    allow_plain: bool = False


class Server:
    """A grpc.aio server. `probes` are awaited every second; one that raises makes it NOT_SERVING."""

    def __init__(self, endpoint: Endpoint, services: Sequence[str], probes: Mapping[str, Probe]) -> None:
        self._endpoint = endpoint
        self._services = ["", *services]
        self._probes = probes
        self._health = HealthServicer()
        self._stopping = asyncio.Event()
        self._address = ""
        options = [*KEEPALIVE, ("grpc.so_reuseport", 0)]
        self.grpc = aio.server(interceptors=[CallInterceptor()], options=options)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.grpc)
        names = [*services, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name]
        reflection.enable_server_reflection([*names, reflection.SERVICE_NAME], self.grpc)

    def bind(self) -> str:
        """Takes the port; returns host:port with the real one. Callers wait until `start`.

        Raises UnavailableError if the port is taken, ConfigurationError for an address or TLS file that
        can't be used.
        """
        host, _, _ = self._endpoint.listen.rpartition(":")
        self._address = f"{host}:{self._bind()}"
        return self._address

    async def start(self) -> str:
        """Serves, and ends gracefully at a signal; returns host:port. Raises what `bind` does."""
        address = self._address or self.bind()
        await self.grpc.start()
        await self._probe()
        self._listen_for_the_end()
        _log.info("service_started", address=address)
        return address

    async def serve_until_stopped(self) -> None:
        """Serves until SIGTERM, SIGINT, or the end of the lifeline; then stops gracefully."""
        probing = asyncio.create_task(self._probe_forever())
        await self._stopping.wait()
        probing.cancel()
        await self._health.enter_graceful_shutdown()
        await self.grpc.stop(STOP_GRACE_S)
        _log.info("service_stopped")

    def stop(self) -> None:
        """Asks for a graceful stop."""
        self._stopping.set()

    @property
    def stopping(self) -> asyncio.Event:
        """Set once a stop was asked for: streams that would last for ever end then."""
        return self._stopping

    def _listen_for_the_end(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        watch_lifeline(lambda: loop.call_soon_threadsafe(self.stop))

    def _bind(self) -> int:
        end = self._endpoint
        if not _LISTEN.fullmatch(end.listen) or int(end.listen.rpartition(":")[2]) > 65535:
            raise ConfigurationError(
                f"--listen is {end.listen!r}, but must be host:port with a port up to 65535 (0: a free one)."
            )
        try:
            if end.tls_certificate:
                # gRPC only logs what is wrong with a certificate; this raises it.
                ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                    end.tls_certificate, end.tls_key
                )
                pair = (Path(end.tls_key).read_bytes(), Path(end.tls_certificate).read_bytes())
                return self.grpc.add_secure_port(end.listen, grpc.ssl_server_credentials([pair]))
            if not end.allow_plain and not _is_loopback(end.listen):
                raise ConfigurationError(
                    f"{end.listen} is not loopback, so it needs TLS: give --tls-certificate and --tls-key, "
                    "or --allow-plain on a network that you trust."
                )
            return self.grpc.add_insecure_port(end.listen)
        except RuntimeError as error:
            raise UnavailableError(
                f"can't listen on {end.listen} ({error}): another program may hold the port; "
                "choose another with --listen, port 0 takes a free one."
            ) from error
        except OSError as error:
            raise ConfigurationError(f"the TLS files can't be used: {error}") from error

    async def _probe_forever(self) -> None:
        while True:
            await asyncio.sleep(PROBE_INTERVAL_S)
            await self._probe()

    async def _probe(self) -> None:
        status = health_pb2.HealthCheckResponse.SERVING
        for name, probe in self._probes.items():
            try:
                await asyncio.wait_for(probe(), timeout=2.0)
            except Exception as error:
                _log.warning("probe_failed", probe=name, reason=str(error) or type(error).__name__)
                status = health_pb2.HealthCheckResponse.NOT_SERVING
        for service in self._services:
            await self._health.set(service, status)


def watch_lifeline(on_end: Callable[[], object]) -> None:
    """Calls `on_end` when our starter dies: it holds the other end of the pipe PEERLOOM_LIFELINE names.

    So no process outlives the one that started it, not even when that one is killed by SIGKILL.
    """
    descriptor = os.environ.pop("PEERLOOM_LIFELINE", "")
    if not descriptor:
        return

    def wait() -> None:
        while os.read(int(descriptor), 1):
            pass
        on_end()
        time.sleep(ORPHAN_LIMIT_S)  # a service that hangs must not outlive its starter either
        os._exit(1)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Runs a service's main coroutine; errors of setting up become one line and exit status 2."""
    from peerloom.errors import PeerloomError

    try:
        asyncio.run(main())  # type: ignore[arg-type]  # the mains are all coroutine functions
    except PeerloomError as error:
        print(f"error: {error.message}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _is_loopback(listen: str) -> bool:
    host = listen.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
