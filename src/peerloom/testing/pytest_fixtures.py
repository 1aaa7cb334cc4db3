"""Fixtures for pytest: `pytest_plugins = ["peerloom.testing.pytest_fixtures"]` in a conftest.py has them."""

from collections.abc import Iterator

import pytest

from peerloom.client.client import Client
from peerloom.testing.in_memory_system import InMemorySystem


@pytest.fixture
def peerloom_system() -> Iterator[InMemorySystem]:
    """A system in memory with two nodes of one slot; `peerloom.Client()` is one of it meanwhile."""
    with InMemorySystem() as system, system.serves_all_clients():
        yield system


@pytest.fixture
def peerloom_client(peerloom_system: InMemorySystem) -> Iterator[Client]:
    """A client of that system."""
    with peerloom_system.client() as client:
        yield client
