"""A registry that has just started, on an empty database in memory."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from databases import open_held
from memory_registry import TIMING, MemoryRegistry

import peerloom.services.registry as package
from peerloom.kit.clock import ManualClock
from peerloom.kit.database import Database

MIGRATIONS = str(Path(package.__file__).parent / "migrations")


@pytest.fixture
def database() -> Any:
    """An empty database in memory."""
    database = open_held("sqlite://", "registry", MIGRATIONS)
    yield database
    database.close()


@pytest.fixture
async def registry(database: Database) -> AsyncIterator[MemoryRegistry]:
    """A registry that has just started on an empty database; its grace of 5 s is over."""
    registry = await MemoryRegistry(database, ManualClock()).start()
    registry.clock.advance(TIMING.restart_grace_s)
    yield registry
    await registry.stop()
