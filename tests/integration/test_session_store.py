"""Aim: the members of a group find each other by what travels over their sessions with the trainer.

Method: torch's own gloo over our store, in threads; a hub stands for the trainer.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch.distributed import ProcessGroupGloo

from benchmarks.entry_hub import EntryHub, HubEntries
from peerloom.worker.group.relay.relay import host_of
from peerloom.worker.group.session_store import SessionStore

LIMIT_S = 30.0


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[EntryHub]:
    with closing(EntryHub(tmp_path / "hub")) as opened:
        yield opened


def test_gloo_meets_and_reduces_over_it(hub: EntryHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")

    def member(rank: int) -> float:
        tensor = torch.full((1000,), float(10**rank))
        with closing(HubEntries(str(hub.path))) as entries:
            store = SessionStore(entries.of(1), LIMIT_S)
            group = ProcessGroupGloo(store, rank, 3, timedelta(seconds=LIMIT_S))
            group.allreduce([tensor]).wait()  # type: ignore[attr-defined]  # its description lacks it
        return float(tensor[0])

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(member, range(3))) == [111.0, 111.0, 111.0]


def test_a_wait_for_who_never_comes_ends_with_the_group(hub: EntryHub) -> None:
    """Gloo's own constructor is what waits."""
    told = HubEntries(str(hub.path))
    entries = told.of(1)
    raised: list[str] = []

    def wait() -> None:
        try:
            ProcessGroupGloo(SessionStore(entries, 600.0), 0, 2, timedelta(seconds=600))
        except RuntimeError as error:
            raised.append(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    entries.get("0/0", LIMIT_S)  # it has told where it listens, and waits for the other
    entries.close("the trainer says so")
    waiting.join(LIMIT_S)
    told.close()
    assert ["the trainer says so" in reason for reason in raised] == [True]


def test_where_a_worker_listens_is_where_its_node_is_reached_unless_no_interface_carries_that() -> None:
    assert host_of("10.1.2.3:7403", "eth0") == "10.1.2.3"
    assert host_of("[fd00::1]:7403", "eth0") == "[fd00::1]"
    assert host_of("203.0.113.5:7403", "") != "203.0.113.5"
