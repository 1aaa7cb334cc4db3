"""A registry that has just started, on an empty database in memory."""

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from registry_town import TIMING, Town

import peerloom.services.registry as package
from peerloom.kit.clock import ManualClock
from peerloom.kit.database import open_database

MIGRATIONS = str(Path(package.__file__).parent / "migrations")


@pytest.fixture
def engine() -> Any:
    """An empty database in memory."""
    engine = open_database("sqlite://", MIGRATIONS)
    yield engine
    engine.dispose()


@pytest.fixture
async def town(engine: sa.Engine) -> Town:
    """A registry that has just started on an empty database; its grace of 5 s is over."""
    town = await Town(engine, ManualClock()).start()
    town.clock.advance(TIMING.restart_grace_s)
    return town
