"""Systems whose slots are on one card: each worker says that it is another host, or NCCL would refuse."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from peerloom import Client, Embedded

StartSystem = Callable[..., tuple[Embedded, Client]]


@pytest.fixture
def start_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StartSystem]:
    """Starts an embedded system with a node for each number of slots, and the keywords as environment."""
    monkeypatch.setenv("PEERLOOM_WORKERS_SHARE_CARDS", "1")
    opened: list[tuple[Embedded, Client]] = []

    def start(*slots: int, **environment: str) -> tuple[Embedded, Client]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        system = Embedded(tmp_path / "state", slots)
        system.start()
        opened.append((system, Client(system.address)))
        return opened[-1]

    yield start
    for system, client in opened:
        client.close()
        system.stop()
