"""A registry and agents that exchange artifacts, for measuring: started, filled, spoilt, killed, watched."""

import asyncio
import hashlib
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.processes import Running, running
from peerloom.artifacts.transfer import put_file
from peerloom.errors import PeerloomError
from peerloom.kit.dialing import ArtifactPeer, Dialer
from peerloom.v1.artifact_pb2 import (
    Artifact,
    ArtifactHolder,
    FetchArtifactRequest,
    GetManifestRequest,
    RemoveArtifactRequest,
)

MIB = 2**20
_WATCH_S = 0.05


@dataclass
class Swarm:
    """Agents by name, their folders, and the registry they share."""

    folder: Path
    registry: str
    stack: ExitStack
    agents: dict[str, Running] = field(default_factory=dict)

    def start(self, name: str, *flags: str, core: int) -> None:
        """Starts an agent without slots."""
        state = str(self.folder / name)
        arguments = ("--listen", "127.0.0.1:0", "--state", state, "--registry", self.registry, "--slots", "0")
        quiet = ("--name", name, "--log-level", "error", "--measure-interval-s", "0")
        started = running("peerloom.services.node_agent", *arguments, *quiet, *flags, core=core)
        self.agents[name] = self.stack.enter_context(started)

    def peer(self, name: str) -> ArtifactPeer:
        """An agent's artifact service."""
        return Dialer().artifacts(self.agents[name].address)

    async def put(self, name: str, source: Path) -> str:
        """Gives an agent a file, and lets it make the manifest."""
        async with self.peer(name) as peer:
            digest = (await put_file(peer, source, Artifact(name=source.name))).digest
            await peer.call(peer.stub.GetManifest, GetManifestRequest(digest=digest), 120.0)
        return digest

    async def remove(self, name: str, digest: str) -> None:
        """Makes a newcomer of an agent again."""
        async with self.peer(name) as peer:
            await peer.call(peer.stub.RemoveArtifact, RemoveArtifactRequest(digest=digest))

    async def fetch(
        self, name: str, digest: str, donors: Sequence[str], kill: str = "", kill_at: float = 0.3
    ) -> float:
        """How many seconds an agent takes to fetch from these; one is killed when that share is here."""
        holders = [ArtifactHolder(name=one, address=self.agents[one].address) for one in donors]
        request, started_s = FetchArtifactRequest(digest=digest, holders=holders), time.perf_counter()
        async with self.peer(name) as peer:
            async for told in peer.stream(peer.stub.FetchArtifact, request, 600.0):
                if kill and told.received_bytes >= kill_at * told.size_bytes > 0:
                    self.agents[kill].process.kill()
                    kill = ""
        return time.perf_counter() - started_s

    async def fetch_many(self, name: str, digests: Sequence[str], donors: Sequence[str]) -> int:
        """How many of as many fetches at once fail."""
        holders = [ArtifactHolder(name=one, address=self.agents[one].address) for one in donors]
        async with self.peer(name) as peer:

            async def fetch(digest: str) -> bool:
                try:
                    async for _ in peer.stream(
                        peer.stub.FetchArtifact, FetchArtifactRequest(digest=digest, holders=holders), 600.0
                    ):
                        pass
                except PeerloomError:
                    return False
                return True

            return (await asyncio.gather(*map(fetch, digests))).count(False)

    def spoil(self, name: str, digest: str, chunk_bytes: int, first: int, last: int) -> None:
        """Turns a bit of each of these chunks around on an agent's disk, and the time of change back."""
        path = self.folder / name / "artifacts" / digest
        before = path.stat()
        with path.open("r+b") as file:
            for chunk in range(first, last):
                file.seek(chunk * chunk_bytes)
                bad = file.read(1)[0] ^ 1
                file.seek(chunk * chunk_bytes)
                file.write(bytes([bad]))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def received_bytes(self, name: str) -> int:
        """What came into an agent's process over its sockets and was written to its disk, in bytes."""
        return int(self.agents[name].process.io_counters().write_chars)


@contextmanager
def swarm_in(folder: Path) -> Iterator[Swarm]:
    """A registry, and agents as they are started, until the block ends."""
    with ExitStack() as stack:
        arguments = ("--state", str(folder / "registry"), "--listen", "127.0.0.1:0", "--log-level", "error")
        registry = stack.enter_context(running("peerloom.services.registry", *arguments, core=1))
        yield Swarm(folder, registry.address, stack)


class MemoryWatch:
    """The most memory that processes took above what they had at the beginning, in bytes."""

    def __init__(self, processes: Sequence[psutil.Process]) -> None:
        self._processes = processes
        self._idle = {one.pid: one.memory_info().rss for one in processes}
        self.most_bytes = 0

    async def watch(self) -> None:
        """Looks 20 times a second until cancelled."""
        while True:
            for process in self._processes:
                try:
                    above = process.memory_info().rss - self._idle[process.pid]
                except psutil.NoSuchProcess:
                    continue
                self.most_bytes = max(self.most_bytes, above)
            await asyncio.sleep(_WATCH_S)


def receive_plainly(address: str, destination: Path, digest: str) -> float:
    """Seconds that one plain socket takes to receive, hash and durably write what a plain sender sends."""
    host, _, port = address.rpartition(":")
    hashing, buffer = hashlib.sha256(), memoryview(bytearray(MIB))
    started_s = time.perf_counter()
    with socket.create_connection((host, int(port))) as line, destination.open("wb") as file:
        while size := line.recv_into(buffer):
            hashing.update(buffer[:size])
            file.write(buffer[:size])
        file.flush()
        os.fsync(file.fileno())
    elapsed_s = time.perf_counter() - started_s
    assert hashing.hexdigest() == digest, "the plain socket brought other bytes"
    return elapsed_s
