"""Callers share a server's slots: one host can't have them all, and a slot comes back however a call ends."""

import resource
from contextlib import ExitStack, suppress

import pytest

from peerloom.errors import ResourceExhaustedError
from peerloom.kit import server_limits
from peerloom.kit.call_limits import CallSlots
from peerloom.kit.server_limits import calls_at_once, connection_limit


def test_one_host_cannot_take_what_others_need() -> None:
    slots = CallSlots("uploads", limit=3, limit_of_host=2)
    with ExitStack() as calls:
        for port in (1, 2):
            calls.enter_context(slots.taken_by(f"ipv4:10.0.0.7:{port}"))
        with pytest.raises(ResourceExhaustedError, match=r"2 uploads.* from ipv4:10\.0\.0\.7.*Wait until"):
            calls.enter_context(slots.taken_by("ipv4:10.0.0.7:3"))
        calls.enter_context(slots.taken_by("ipv6:[::1]:1"))
        with pytest.raises(ResourceExhaustedError, match="3 uploads are under way here") as refusal:
            calls.enter_context(slots.taken_by("ipv4:10.0.0.8:1"))
    assert refusal.value.reason == "TOO_MANY_CALLS"


def test_a_slot_comes_back_however_its_call_ends() -> None:
    slots = CallSlots("uploads", limit=1, limit_of_host=1)
    for _ in range(3):
        with suppress(ZeroDivisionError), slots.taken_by("ipv4:10.0.0.7:1"):
            raise ZeroDivisionError
    with slots.taken_by("unix:"):
        pass


@pytest.mark.parametrize(
    ("soft", "connections"),
    [(1024, 512), (8_192, 4_096), (20_000, 15_904), (1_000_000, 61_440), (resource.RLIM_INFINITY, 61_440)],
)
def test_connections_leave_open_files_to_the_rest(
    soft: int, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_limits.resource, "getrlimit", lambda _: (soft, soft))
    assert connection_limit() == connections


def test_a_stream_on_each_connection_leaves_room_for_other_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_limits.resource, "getrlimit", lambda _: (20_000, 20_000))
    assert calls_at_once() == 15_904 + 10_000
