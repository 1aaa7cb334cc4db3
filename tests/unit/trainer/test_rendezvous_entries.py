"""What the members of a generation tell each other, as the trainer keeps it."""

import pytest

from peerloom.services.trainer.workers.rendezvous import KEYS_OF_WORKER, VALUE_BYTES, Rendezvous
from peerloom.v1.trainer_pb2 import StoreEntry, WorkerSessionResponse

MEMBERS = ("worker-1", "worker-2")


class Told:
    """A rendezvous and what it told whom."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int, str, bytes]] = []
        self.rendezvous = Rendezvous(self._send)

    def _send(self, worker_id: str, message: WorkerSessionResponse) -> None:
        entry = message.entry
        self.sent.append((worker_id, entry.generation, entry.key, entry.value))

    def says(self, number: int, generation: int, key: str, value: bytes = b"v") -> str:
        """A worker says something; why it may not."""
        entry = StoreEntry(generation=generation, key=key, value=value)
        return self.rendezvous.say(f"worker-{number}", entry)


@pytest.fixture
def told() -> Told:
    made = Told()
    made.rendezvous.begin(4, MEMBERS)
    return made


def test_what_a_member_says_all_hear_once(told: Told) -> None:
    for _ in range(2):
        assert told.says(1, 4, "0/0", b"here") == ""
    assert told.sent == [("worker-1", 4, "0/0", b"here"), ("worker-2", 4, "0/0", b"here")]
    told.sent.clear()
    told.says(1, 4, "0/0", b"there")
    assert told.sent == [("worker-1", 4, "0/0", b"there"), ("worker-2", 4, "0/0", b"there")]


def test_nobody_speaks_for_another_member_nor_in_a_generation_that_isn_t_its_own(told: Told) -> None:
    told.says(1, 4, "0/0", b"here")
    told.sent.clear()
    assert told.says(2, 4, "0/0", b"to me") == ""
    assert told.says(3, 4, "0/2") == ""
    assert told.says(1, 5, "0/0") == ""
    assert told.sent == []


def test_who_comes_back_hears_all_that_it_may_have_missed(told: Told) -> None:
    told.says(1, 4, "0/0")
    told.rendezvous.begin(5, MEMBERS)
    told.says(2, 5, "0/1")
    told.sent.clear()
    told.rendezvous.repeat_to("worker-2")
    assert told.sent == [("worker-2", 4, "0/0", b"v"), ("worker-2", 5, "0/1", b"v")]
    told.rendezvous.repeat_to("worker-3")
    assert len(told.sent) == 2


def test_the_last_but_one_generation_is_forgotten(told: Told) -> None:
    told.says(1, 4, "0/0")
    for generation in (5, 6):
        told.rendezvous.begin(generation, MEMBERS)
    told.sent.clear()
    told.rendezvous.repeat_to("worker-1")
    assert told.says(1, 4, "0/3") == ""
    assert told.sent == []


def test_what_a_member_may_say_is_bounded(told: Told) -> None:
    assert told.says(1, 4, "k" * 128, b"v" * VALUE_BYTES) == ""
    assert "at most" in told.says(1, 4, "k" * 129)
    assert "at most" in told.says(1, 4, "0/0", b"v" * (VALUE_BYTES + 1))
    for number in range(KEYS_OF_WORKER - 1):
        assert told.says(1, 4, f"0/{number}") == ""
    assert "at most 32 keys" in told.says(1, 4, "one more")
    assert told.says(1, 4, "0/0", b"another value") == ""
    assert told.says(2, 4, "of another") == ""
