"""One generation of a script: its processes find each other's places, start, run, and are ended together."""

import os
import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from torch.distributed import TCPStore

from peerloom.v1.trainer_pb2 import ConfigureGeneration
from peerloom.worker.assignment import Assignment
from peerloom.worker.group.relay.relay import host_of
from peerloom.worker.group.waits import GenerationBrokenError
from peerloom.worker.script.environment import ScriptPlace, elastic_variables, script_environment
from peerloom.worker.script.script_process import ScriptProcess
from peerloom.worker.store_entries import StoreEntries

_MEETING_LIMIT_S = 600.0  # the others may still fetch what they begin with; who is lost, the trainer tells
_STORE_LIMIT = timedelta(minutes=5)


class ScriptAttempt:
    """This worker's part in one generation. Any thread may `end` it, before it began too.

    `status` is the process's exit status once `run` has returned, and `last_lines` the end of its standard
    error.
    """

    def __init__(self, assignment: Assignment, config: ConfigureGeneration, entries: StoreEntries) -> None:
        self._assignment, self._config, self._entries = assignment, config, entries
        self._process: ScriptProcess | None = None
        self._lock = threading.Lock()
        self._why_ended = ""
        self.status = 0
        self.last_lines = ""

    @property
    def generation(self) -> int:
        """Which generation it belongs to."""
        return int(self._config.generation)

    def end(self, reason: str) -> None:
        """Ends the process, or keeps it from being started."""
        with self._lock:
            self._why_ended = self._why_ended or reason
            process = self._process
        self._entries.wake()  # and not closed: what was written is told after the end
        if process is not None:
            process.end()

    def run(self, script: Path, folder: Path, on_started: Callable[[], None]) -> None:
        """Starts the script and waits for its end. Raises GenerationBrokenError if others ended it."""
        try:
            place, store = self._meet()
        except RuntimeError as error:
            raise GenerationBrokenError(self._why_ended or str(error)) from error
        with self._lock:
            if not self._why_ended:
                self._process = self._start(script, folder, place)
        if self._process is not None:
            on_started()
            self.status = self._process.wait()
            self.last_lines = self._process.last_lines
        del store  # rank 0's; it serves until here
        if self._why_ended:
            raise GenerationBrokenError(self._why_ended)

    def _meet(self) -> tuple[ScriptPlace, TCPStore | None]:
        config, entries, store = self._config, self._entries, None
        entries.set(f"slot/{config.rank}", str(self._assignment.slot).encode())
        if config.rank == 0:
            host = self._host()
            store, port = open_store(host)
            entries.set("store", f"{host} {port}".encode())
        ranks = range(config.world_size)
        slots = [int(self._told(f"slot/{rank}")) for rank in ranks]
        address, _, port_text = self._told("store").decode().rpartition(" ")
        return ScriptPlace(config.rank, list(config.node_ids), slots, address, int(port_text)), store

    def _told(self, key: str) -> bytes:
        def is_due(value: bytes | None) -> bool:
            return value is not None or bool(self._why_ended)

        value = self._entries.wait(key, is_due, _MEETING_LIMIT_S)
        if self._why_ended or value is None:
            raise GenerationBrokenError(self._why_ended)
        return value

    def _host(self) -> str:
        if self._config.world_size == 1:
            return "127.0.0.1"
        return host_of(self._assignment.agent_address, self._assignment.interface)

    def _start(self, script: Path, folder: Path, place: ScriptPlace) -> ScriptProcess:
        assignment, given = self._assignment, self._config.spec.script
        # Each generation is one more start, whatever ended the one before it.
        elastic = elastic_variables(place, assignment.job_id, self.generation - 1, given.max_restarts)
        environment = script_environment(
            os.environ, place, assignment.accelerator_kind, assignment.threads, elastic
        )
        return ScriptProcess(script, given.arguments, folder, environment, place.rank, write_to_log)


def open_store(host: str) -> tuple[TCPStore, int]:
    """Torch's key-value store, at a port of `host` that the kernel chose: a sandbox allows no other."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host.strip("[]"), 0), family=family, backlog=1024)
    port = int(listener.getsockname()[1])
    store = TCPStore(
        host.strip("[]"),
        port,
        None,
        True,
        _STORE_LIMIT,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )
    return store, port


def write_to_log(lines: bytes) -> None:
    """Appends to the worker's log, which standard output is; lines of several threads don't mix."""
    os.write(1, lines)
