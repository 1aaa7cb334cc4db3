"""The key-value store in which process groups meet, hosted here so that no worker is special."""

import asyncio
import socket
from typing import Any

from peerloom.errors import UnavailableError


class Rendezvous:
    """A torch TCPStore, made when first needed; it listens on one address only."""

    def __init__(self, host: str, advertised_host: str) -> None:
        self._host = host
        self._advertised_host = advertised_host
        self._store: Any = None
        self._port = 0
        self._lock = asyncio.Lock()

    async def address(self) -> str:
        """host:port of the store. Raises UnavailableError when torch isn't there or can't listen."""
        async with self._lock:
            if self._store is None:
                self._store, self._port = await asyncio.to_thread(self._open)
        return f"{self._advertised_host}:{self._port}"

    def _open(self) -> tuple[Any, int]:
        try:
            from torch.distributed import (
                TCPStore,
            )  # two seconds to import: not before it is needed
        except ModuleNotFoundError as error:
            raise UnavailableError(
                "The trainer needs torch for the workers' rendezvous: pip install 'peerloom[train]'.",
                reason="TORCH_MISSING",
            ) from error
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listener = socket.create_server((self._host.strip("[]"), 0), family=family, backlog=1024)
        port = listener.getsockname()[1]
        # The store takes the descriptor over; by itself it would listen on every address.
        store = TCPStore(
            self._host.strip("[]"),
            port,
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )
        return store, port
