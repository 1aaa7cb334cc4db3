"""A registry that has just started, on an empty database in memory."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from databases import in_memory
from memory_registry import TIMING, MemoryRegistry

from peerloom.kit.clock import ManualClock
from peerloom.kit.database import Database
from peerloom.services.registry import tables


@pytest.fixture
def database() -> Any:
    """An empty database in memory."""
    database = in_memory("registry", tables.metadata)
    yield database
    database.close()


@pytest.fixture
async def registry(database: Database) -> AsyncIterator[MemoryRegistry]:
    """A registry that has just started on an empty database; its grace of 5 s is over."""
    registry = await MemoryRegistry(database, ManualClock()).start()
    registry.clock.advance(TIMING.restart_grace_s)
    yield registry
    await registry.stop()
