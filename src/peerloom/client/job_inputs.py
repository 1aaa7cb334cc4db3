"""What a job brings along, from a user's words to digests that the nodes can fetch."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from peerloom.client.artifacts import AsyncArtifacts
from peerloom.kit.job_inputs import PREFIX, digest_in


async def code_digest(artifacts: AsyncArtifacts, code: str | Path) -> str:
    """The digest of a folder of modules, put in now, or of a bundle that is there; empty for none.

    Raises NotFoundError with the nearest digests when it is neither.
    """
    if not str(code):
        return ""
    folder = await asyncio.to_thread(Path(code).expanduser)
    if await asyncio.to_thread(folder.is_dir):
        return (await artifacts.put(folder, kind="code")).digest
    return await artifacts.resolve(str(code))


async def resolved_arguments(artifacts: AsyncArtifacts, arguments: Mapping[str, str]) -> dict[str, str]:
    """The arguments, with whole digests behind each "artifact:". Raises NotFoundError."""
    resolved = dict(arguments)
    for name, value in arguments.items():
        if isinstance(value, str) and (beginning := digest_in(value)):
            resolved[name] = PREFIX + await artifacts.resolve(beginning)
    return resolved
