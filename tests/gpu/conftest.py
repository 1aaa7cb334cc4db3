"""Systems whose slots are on one card: each worker says that it is another host, or NCCL would refuse."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from peerloom import Client, Embedded


@pytest.fixture
def start_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[Embedded, Client]]]:
    """Starts an embedded system with a node for each number of slots, and the keywords as environment."""
    monkeypatch.setenv("PEERLOOM_WORKERS_SHARE_CARDS", "1")
    with ExitStack() as opened:

        def start(*slots: int, **environment: str) -> tuple[Embedded, Client]:
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            system = opened.enter_context(Embedded(tmp_path / "state", slots))
            return system, opened.enter_context(Client(system.address))

        yield start


@pytest.fixture
def kill_workers() -> Callable[[Embedded, str], int]:
    """Kills a node's workers, and says how many: what its agent's children have forked."""

    def kill(system: Embedded, node: str) -> int:
        origins = psutil.Process(system.pids[node]).children()
        workers = [worker for origin in origins for worker in origin.children()]
        for worker in workers:
            worker.kill()
        return len(workers)

    return kill
