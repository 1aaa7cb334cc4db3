"""What the tests of the artifact exchange share: donors in this process, and a fetcher that knows them."""

import hashlib
import os
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from peerloom.artifacts.cache import ArtifactCache
from peerloom.artifacts.fetch.bulk_server import BulkServer
from peerloom.artifacts.fetch.fetcher import Fetcher
from peerloom.artifacts.fetch.outcomes import FetchOptions, Gave, Lied
from peerloom.artifacts.fetch.throttle import Throttle
from peerloom.artifacts.servicer import ArtifactServicer
from peerloom.artifacts.store import ArtifactStore
from peerloom.kit.clock import Clock, SystemClock
from peerloom.kit.dialing import Dialer
from peerloom.kit.identity import Identity
from peerloom.kit.server import Endpoint, Server
from peerloom.v1.artifact_pb2 import Artifact, ArtifactHolder
from peerloom.v1.artifact_pb2_grpc import add_ArtifactServiceServicer_to_server

LIMIT_BYTES = 200 * 2**20
MIB = 2**20


def bytes_of(seed: int, size_bytes: int) -> bytes:
    """The same bytes for the same seed."""
    return random.Random(seed).randbytes(size_bytes)


@dataclass
class Donor:
    """A store that serves. `bulk` and `server` can be stopped, as a power cut would."""

    name: str
    store: ArtifactStore
    cache: ArtifactCache
    server: Server
    bulk: BulkServer | None
    address: str

    @property
    def holder(self) -> ArtifactHolder:
        return ArtifactHolder(node_id=f"node-{self.name}", name=self.name, address=self.address)

    async def kill(self) -> None:
        """Ends all its connections at once."""
        if self.bulk is not None:
            await self.bulk.close()
        await self.server.close()


@dataclass
class Swarm:
    """Donors in a folder, and who is said to hold what."""

    folder: Path
    stack: AsyncExitStack
    donors: list[Donor] = field(default_factory=list)
    reports: list[Gave | Lied] = field(default_factory=list)
    asked: int = 0
    identity: Identity | None = None  # of donors and fetchers

    async def donor(
        self, name: str, *contents: bytes, with_bulk: bool = True, throttle: Throttle | None = None
    ) -> Donor:
        """Starts a donor that holds these."""
        store = ArtifactStore(self.folder / name, LIMIT_BYTES)
        for number, content in enumerate(contents):
            source = self.folder / f"{name}-{number}"
            source.write_bytes(content)
            store.manifest(store.add_file(source, Artifact(name=f"thing-{number}")).digest)
            source.unlink()
        cache, throttle = ArtifactCache(store), throttle or Throttle()
        bulk = BulkServer(cache.open_chunk, throttle, self.identity) if with_bulk else None
        if bulk is not None:
            bulk.start("127.0.0.1")
        server = Server(Endpoint("127.0.0.1:0", self.identity), ["peerloom.v1.ArtifactService"])
        servicer = ArtifactServicer(store, cache, bulk, throttle)
        server.add_servicer(add_ArtifactServiceServicer_to_server, servicer)
        await server.start({})
        made = Donor(name, store, cache, server, bulk, server.address)
        self.donors.append(made)
        self.stack.push_async_callback(made.kill)
        return made

    async def fetcher(self, patience_s: float = 10.0, clock: Clock | None = None) -> Fetcher:
        """One that is told of all donors. By a `clock` that stands no chunk is ever late."""

        async def find(digest: str) -> Sequence[ArtifactHolder]:
            self.asked += 1
            return [donor.holder for donor in self.donors]

        options = FetchOptions(patience_s=patience_s, clock=clock or SystemClock())
        fetcher = Fetcher(find, dialer=Dialer(self.identity), report=self.reports.append, options=options)
        self.stack.push_async_callback(fetcher.close)
        return fetcher


@asynccontextmanager
async def swarm_in(folder: Path) -> AsyncIterator[Swarm]:
    """A swarm that ends with the block."""
    async with AsyncExitStack() as stack:
        yield Swarm(folder, stack)


def digest_of_bytes(content: bytes) -> str:
    """The name of an artifact."""
    return hashlib.sha256(content).hexdigest()


def spoil(store_folder: Path, digest: str, at: int) -> None:
    """Turns a bit on the disk dependencies, in a way that no time of change tells of."""
    path = store_folder / digest
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        bad = file.read(1)[0] ^ 1
        file.seek(at)
        file.write(bytes([bad]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
