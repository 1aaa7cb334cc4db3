"""Fetching a model to a file that the user names."""

import asyncio
from pathlib import Path

from peerloom.client.artifacts import AsyncArtifacts
from peerloom.client.models import find_digest, target_file
from peerloom.client.services import Services
from peerloom.errors import InvalidArgumentError


async def fetch_model(services: Services, model: str, path: str | Path) -> Path:
    """Writes a model to `path`, a file or a folder, replacing what is there; returns the file's path.

    `model` is a digest, the beginning of one, or a job's id. The file appears whole or not at all. Raises
    what `find_digest` and `AsyncArtifacts.get` raise, and InvalidArgumentError where no file can be.
    """
    digest = await find_digest(services, model)
    target = await asyncio.to_thread(target_file, path, digest)
    await asyncio.to_thread(_make_room, target)
    return await AsyncArtifacts(services).get(digest, target)


def _make_room(target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        limit = f"a file that can be written; {target.parent} can't be made: {error.strerror}"
        raise InvalidArgumentError.of_field("path", str(target), limit) from error
