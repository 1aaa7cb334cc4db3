"""The way into the control plane from outside: a socket file for each service.

The control plane lives in a namespace of its own, so no address leads there from the machine's. A thread that
lives in that namespace listens on socket files, which know no namespaces, and hands what comes on to the
services. The supervisor and `peerloom testbed status` ask through these; agents can't, they have the emulated
network only.
"""

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from peerloom.testbed import namespaces

_PIECE_BYTES = 65536


class Doorway:
    """Listens on FOLDER/NAME.sock for each service until `close`; `targets` are host:port by name."""

    def __init__(self, namespace: str, folder: Path, targets: Mapping[str, str]) -> None:
        self._namespace, self._folder, self._targets = namespace, folder, targets
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._open = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="doorway", daemon=True)

    def open(self) -> None:
        """Begins to listen."""
        self._thread.start()
        self._open.wait()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Ends all lines and the thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def _run(self) -> None:
        try:
            namespaces.enter(self._namespace)
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._open.set()
            self._loop.close()

    async def _serve(self) -> None:
        lines: set[asyncio.Task[None]] = set()

        def serve(address: str) -> asyncio.Server | object:
            def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.create_task(_relay(reader, writer, address))
                lines.add(task)
                task.add_done_callback(lines.discard)

            return begin

        servers = [
            await asyncio.start_unix_server(serve(address), socket_path(self._folder, name))  # type: ignore[arg-type]  # a plain function, as it may be
            for name, address in self._targets.items()
        ]
        self._open.set()
        await self._stop.wait()
        for server in servers:
            server.close()
        for task in lines:
            task.cancel()
        await asyncio.gather(*lines, return_exceptions=True)


def socket_path(folder: Path, name: str) -> Path:
    """The socket file of a service."""
    return folder / f"{name}.sock"


def address_of(folder: Path, name: str) -> str:
    """The same as gRPC names it."""
    return f"unix:{socket_path(folder, name)}"


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
    except OSError:
        writer.close()
        return
    try:
        ways = [
            asyncio.create_task(_pump(reader, far_writer)),
            asyncio.create_task(_pump(far_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
    finally:
        for one in (writer, far_writer):
            one.close()
            with suppress(OSError):
                await one.wait_closed()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(_PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
