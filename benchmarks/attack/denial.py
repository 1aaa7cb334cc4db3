"""Whether one who was admitted can keep others from being served."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

from benchmarks.attack.attacks import attack
from benchmarks.attack.bulk import bulk_target, open_idle
from benchmarks.attack.outcomes import By, Gain, Held, Outcome, ProvesNothingError, first_words
from benchmarks.attack.system import System
from peerloom.errors import PeerloomError
from peerloom.kit.call_limits import TOO_MANY_CALLS
from peerloom.kit.dialing import ArtifactPeer
from peerloom.v1.artifact_pb2 import Artifact, PutArtifactRequest

NO_CONTROL = "the same limits hold in a plain system"
STREAMS, CHANNELS, CONNECTIONS = 1100, 2, 1005
REFUSED_S, FETCH_S = 60.0, 30.0


async def _fetch(system: System, digest: str) -> str:
    """Has another owner fetch an artifact from the node; empty when that works, else why not."""
    async with system.client(await system.admit("user", "ada")) as client:
        try:
            async with asyncio.timeout(FETCH_S):
                await client.artifacts.get(digest, system.folder / f"fetched-{digest[:12]}")
        except (PeerloomError, TimeoutError) as error:
            return f"{type(error).__name__} {first_words(str(error))}"
    return ""


class _Stalled:
    """Uploads that send their header and nothing else."""

    def __init__(self) -> None:
        self.refused = Counter[str]()
        self._changed = asyncio.Event()

    async def stall(self, peer: ArtifactPeer, number: int) -> None:
        """One upload; notes why it was refused."""

        async def messages() -> AsyncIterator[PutArtifactRequest]:
            yield PutArtifactRequest(header=Artifact(digest=f"{number:064x}", size_bytes=9))
            await asyncio.Event().wait()

        try:
            await peer.send(peer.stub.PutArtifact, messages(), REFUSED_S)
        except PeerloomError as error:
            self.refused[error.reason] += 1
            self._changed.set()

    async def wait_for(self, count: int) -> None:
        """Returns when so many were refused."""
        async with asyncio.timeout(REFUSED_S):
            while self.refused.total() < count:
                self._changed.clear()
                await self._changed.wait()


@attack(By.NODE, f"opens {STREAMS:,} uploads, each with its header alone", NO_CONTROL)
async def stall_uploads(system: System) -> Outcome:
    """Hopes that descriptors, memory or calls run out, so that nobody gets anything from the node."""
    target, evil, stalled = await bulk_target(system), await system.dialer("node"), _Stalled()
    peers = [evil.artifacts(system.addresses["open"]) for _ in range(CHANNELS)]
    tasks = [asyncio.create_task(stalled.stall(peers[n % CHANNELS], n)) for n in range(STREAMS)]
    try:
        await stalled.wait_for(STREAMS // 2)
        trouble = await _fetch(system, target.digest)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for peer in peers:
            await peer.close()
    if trouble:
        return Gain(f"another's fetch fails: {trouble}")
    if set(stalled.refused) != {TOO_MANY_CALLS}:
        raise ProvesNothingError(f"refused by {stalled.refused}")
    return Held(f"{stalled.refused.total():,} were refused, {TOO_MANY_CALLS}; another's fetch works")


@attack(By.NODE, f"holds {CONNECTIONS:,} idle connections to a bulk port", NO_CONTROL)
async def hold_the_bulk_port(system: System) -> Outcome:
    """Hopes that no connection is left for others."""
    target = await bulk_target(system)
    opened = await open_idle(target.port, CONNECTIONS)
    try:
        trouble = await _fetch(system, target.digest)
    finally:
        for one in opened:
            one.close()
    if trouble:
        return Gain(f"another's fetch fails: {trouble}")
    return Held(f"{len(opened):,} are open, and another's fetch works")
