"""Models and checkpoints between a worker and its own node's agent, which keeps and serves them.

An agent that died is soon started again, and its workers outlive it: what they can't do without it waits for
it. All functions raise UnavailableError or DeadlineError for one that stays away.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from peerloom.artifacts.transfer import digest_of, get_file, put_file
from peerloom.errors import UnavailableError
from peerloom.kit.backoff import Backoff
from peerloom.kit.channel import open_channel
from peerloom.kit.clock import SystemClock
from peerloom.kit.dialing import ArtifactPeer, Dialer
from peerloom.kit.logs import get_logger
from peerloom.v1.artifact_pb2 import Artifact, ArtifactHolder, ArtifactKind, FetchArtifactRequest
from peerloom.worker.assignment import Assignment
from peerloom.worker.own_identity import own_identity

_BRING_S = 120.0
PATIENCE_S = 30.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 1.0
_log = get_logger()
_clock, _pause = SystemClock(), asyncio.sleep
T = TypeVar("T")


def store_artifact(
    assignment: Assignment,
    path: Path,
    kind: "ArtifactKind.ValueType",
    name: str,
    patience_s: float = 0.0,
) -> Artifact:
    """Gives a file to the agent, which may be away so long.

    Raises ResourceExhaustedError when it has no room.
    """
    header = Artifact(
        digest=digest_of(path),
        size_bytes=path.stat().st_size,
        kind=kind,
        name=name[:128],
        job_id=assignment.job_id,
    )

    return asyncio.run(_by_agent(assignment, lambda agent: put_file(agent, path, header), patience_s))


def fetch_artifact(assignment: Assignment, digest: str) -> bytes:
    """An artifact's bytes from the agent. Raises NotFoundError when the agent doesn't hold it."""
    with TemporaryDirectory(prefix="peerloom-") as folder:
        path = Path(folder) / "artifact.safetensors"
        fetch_file(assignment, digest, path)
        return path.read_bytes()


def fetch_file(assignment: Assignment, digest: str, path: Path) -> None:
    """Writes an artifact of the agent's to `path`. Raises NotFoundError when the agent doesn't hold it."""

    asyncio.run(_by_agent(assignment, lambda agent: get_file(agent, digest, path), PATIENCE_S))


def bring_file(assignment: Assignment, digest: str, holder: ArtifactHolder, path: Path) -> None:
    """Has the agent fetch an artifact that another node holds, and writes it to `path`.

    Raises what the agent raises: NotFoundError when the holder hasn't got it, or isn't known.
    """

    async def bring(agent: ArtifactPeer) -> None:
        request = FetchArtifactRequest(digest=digest, holders=[holder], job_id=assignment.job_id)
        async for _ in agent.stream(agent.stub.FetchArtifact, request, _BRING_S):
            pass
        await get_file(agent, digest, path)

    asyncio.run(_by_agent(assignment, bring, 0.0))


async def _by_agent(
    assignment: Assignment, ask: Callable[[ArtifactPeer], Awaitable[T]], patience_s: float
) -> T:
    """What the agent answers, asked again while it can't be reached, but no longer than it is waited for."""
    # Who waits connects anew with each try; who doesn't has gRPC's own.
    dialer = Dialer(own_identity(assignment), partial(open_channel, retries=not patience_s))
    backoff, until_s = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S), _clock.monotonic_s() + patience_s
    while True:
        try:
            async with dialer.artifacts(assignment.agent_address) as agent:
                return await ask(agent)
        except UnavailableError as error:
            pause_s = backoff.next_pause_s()
            if _clock.monotonic_s() + pause_s > until_s:
                raise
            _log.info("agent_away", reason=error.message)
            await _pause(pause_s)
