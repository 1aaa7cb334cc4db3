"""A TCP proxy that can stop forwarding without closing anything, as a network that loses all packets."""

import asyncio
import threading
from contextlib import suppress


class StallingProxy:
    """Forwards connections at `address` and `port` to `target` until `stall`; a context manager.

    `address` is this machine's. It runs on a thread of its own.
    """

    def __init__(self, target: tuple[str, int], address: str = "127.0.0.1") -> None:
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._may_pass = asyncio.Event()
        self._may_pass.set()
        self._carrying: set[asyncio.Task[None]] = set()
        self._open: set[asyncio.StreamWriter] = set()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._accept, address, 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever)

    def stall(self) -> None:
        """Once it returns nothing passes, in old connections and in new ones."""
        asyncio.run_coroutine_threadsafe(self._stall(), self._loop).result(60.0)

    async def _stall(self) -> None:
        self._may_pass.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        await self._may_pass.wait()
        there, back = await asyncio.open_connection(*self._target)
        self._open.add(back)
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._carry(source, sink))
            self._carrying.add(task)
            task.add_done_callback(self._carrying.discard)

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                await self._may_pass.wait()
                sink.write(data)
                await sink.drain()
        sink.close()  # also after a reset, as who waits at the other end is to hear of it

    async def _end(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for writer in self._open:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self._open), return_exceptions=True)

    def __enter__(self) -> "StallingProxy":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(60.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
