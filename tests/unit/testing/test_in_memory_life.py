"""A system in memory from its start to its end: the same for the same seed, alone, and gone afterwards."""

import socket
import threading

import pytest

from peerloom.errors import DeadlineError, FailedPreconditionError
from peerloom.kit import ids
from peerloom.testing import InMemorySystem, TrackRecord, TrainingScript

pytestmark = pytest.mark.timeout(60)
QUICK = TrainingScript(samples=48)


def _told(seed: int) -> list[str]:
    with InMemorySystem(nodes=3, seed=seed, script=QUICK) as system, system.client() as client:
        system.add_node("late", record=TrackRecord(trained=3, transfers=2))
        job = client.train("digits")
        job.result()
        return [*(f"{event.time} {event}" for event in job.watch()), *map(str, client.beliefs())]


def test_the_same_seed_gives_the_same_ids_times_choices_and_beliefs() -> None:
    assert _told(3) == _told(3) != _told(4)


def test_it_opens_no_socket_and_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("nothing of it leaves this process")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "bind", refuse)
    monkeypatch.setattr("subprocess.Popen.__init__", refuse)
    with InMemorySystem(nodes=1, script=QUICK) as system, system.client() as client:
        assert client.train("digits").result().succeeded


def test_a_wait_that_nothing_ends_fails() -> None:
    with (
        InMemorySystem(nodes=0, limit_s=20) as system,
        pytest.raises(DeadlineError, match="20 s of"),
    ):
        system.wait_for_node("nobody", "alive")


def test_a_system_that_is_closed_says_so_and_leaves_nothing() -> None:
    with InMemorySystem(nodes=1) as system:
        client = system.client()
    with pytest.raises(FailedPreconditionError, match="closed"):
        client.nodes()
    client.close()
    system.close()
    assert "peerloom-in-memory" not in [thread.name for thread in threading.enumerate()]
    assert type(ids.entropy).__name__ == "SystemRandom"
