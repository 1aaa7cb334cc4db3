"""Meeting the other members of a gloo group, in a thread of its own that can be left behind.

Between the store and the last connection a peer may die, freeze or be cut off; then gloo tries on until
its time limit, and nothing ends that from outside. So whoever is told to leave goes, and the thread ends
when gloo does.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroupGloo, Store

from peerloom.v1.trainer_pb2 import ConfigureGeneration
from peerloom.worker.group.waits import GenerationBrokenError
from peerloom.worker.mesh.mesh import Mesh

# A group that torch takes as it is: its options are the connected gloo group itself.
CONNECTED = "connected"
PROBE_BYTES = 1 << 18
dist.Backend.register_backend(CONNECTED, lambda _, group: group, extended_api=True, devices=["cpu", "cuda"])


def measure_bytes_per_s(
    all_reduce: Callable[[torch.Tensor], object], config: ConfigureGeneration, device: str
) -> float:
    """How fast the members exchange data, as each of them sees it; all call it together."""
    probe = torch.zeros(PROBE_BYTES, dtype=torch.uint8, device=device)
    started_s = time.perf_counter()
    all_reduce(probe)
    float(probe[0])  # on a GPU this waits
    # In a ring each member sends its part 2 (n - 1) / n times.
    moved = 2 * (config.world_size - 1) / config.world_size * PROBE_BYTES
    return moved / max(time.perf_counter() - started_s, 1e-9)


class PeerMeeting:
    """Connects to all other members of a generation, whom it finds in `store`.

    Measures `bytes_per_s` where a state has to travel. Gloo listens at `host`, or, if that is "", where its
    own setting says. A `mesh` connects beside gloo.
    """

    def __init__(
        self, config: ConfigureGeneration, store: Store, host: str = "", mesh: Mesh | None = None
    ) -> None:
        self._config, self._store, self._host, self._mesh = config, store, host, mesh
        self._group: Future[ProcessGroupGloo] = Future()
        self._thread: threading.Thread | None = None
        self.bytes_per_s = 0.0

    def begin(self, on_met: Callable[[], None] = lambda: None) -> None:
        """Begins to connect; `on_met` is called, in the thread that does, once all are connected."""
        self._thread = threading.Thread(target=self._connect, args=[on_met], name="meeting", daemon=True)
        self._thread.start()

    def connect(self) -> ProcessGroupGloo:
        """The group, fully connected. Raises RuntimeError when a peer doesn't come, GenerationBrokenError."""
        if self._thread is None:
            self.begin()
        try:
            return self._group.result()
        finally:
            self._group = Future()  # a group lives as long as somebody knows it

    def leave(self, reason: str) -> None:
        """Ends the wait for the others. Any thread may call it."""
        with suppress(InvalidStateError):
            self._group.set_exception(GenerationBrokenError(reason))

    def _connect(self, on_met: Callable[[], None]) -> None:
        config = self._config
        with suppress(InvalidStateError):  # we were told to leave meanwhile
            try:
                if self._mesh is not None:
                    self._mesh.begin_meeting()
                # With a time limit alone torch follows its setting of an interface; with options it doesn't.
                limit: Any = timedelta(seconds=config.collective_timeout_s)
                how = self._options(limit) if self._host else limit
                group = ProcessGroupGloo(self._store, config.rank, config.world_size, how)
                if self._mesh is not None:
                    self._mesh.connect()
                if config.newcomers:
                    self.bytes_per_s = self._measure(group)
            except (RuntimeError, ValueError) as error:
                self._group.set_exception(error)
            else:
                self._group.set_result(group)
                on_met()

    def _options(self, limit: timedelta) -> Any:
        gloo: Any = ProcessGroupGloo  # its description lacks what is used here
        options = gloo._Options()
        options._timeout = limit
        options._devices = [gloo.create_device(hostname=self._host)]
        return options

    def _measure(self, group: ProcessGroupGloo) -> float:
        def all_reduce(tensor: torch.Tensor) -> None:
            group.allreduce([tensor]).wait()  # type: ignore[attr-defined]  # its description lacks it

        return measure_bytes_per_s(all_reduce, self._config, "cpu")
