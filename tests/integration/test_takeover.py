"""Aim: whichever coordinator is lost in mid-job, its standby goes on with the work.

Method: one system, each of whose coordinators has a standby at another address. One after the other is
killed, or frozen and woken once its standby has taken over, and a worker is killed at the same moment. What
counts is what a user sees: the worker is replaced, no event is missed or told twice, the ledger is exact.
"""

import signal
import time
from pathlib import Path

import pytest
from conftest import StartService
from databases import new_database
from paced_jobs import begin_patient_job
from replicated_system import COORDINATORS, LIMIT_S, Followed, ReplicatedSystem, wakes_and_ends

from peerloom import Client

WORKERS = 3  # whoever is killed, two are left, one of whom has the state in any case
pytestmark = pytest.mark.timeout(400)


def lose_one(system: ReplicatedSystem, followed: Followed, name: str, how: signal.Signals) -> None:
    """A leader and a worker are lost at once; the standby leads, and then has a standby of its own."""
    lost = system.lose(name, how)
    system.kill_worker()
    followed.until_whole(without=followed.until_lost())
    system.wait_until_leads(name)
    if how == signal.SIGSTOP:
        assert wakes_and_ends(lost) == 1
        assert "does not hold the lease" in lost.log()
    system.restore(name, lost)


def wait_for_leaders(client: Client) -> None:
    """Until a client finds one that leads of each."""
    deadline_s = time.monotonic() + LIMIT_S
    found = client.services()
    while {each.name for each in found if each.healthy and not each.stands_by} < {*COORDINATORS}:
        assert time.monotonic() < deadline_s, found
        found = client.services()


def test_whichever_coordinator_is_lost_its_standby_goes_on(
    start_service: StartService, tmp_path: Path
) -> None:
    with new_database("postgresql", tmp_path) as url:
        system = ReplicatedSystem(start_service, url, tmp_path, WORKERS + 1)
        with Client(system.registry, patience_s=90) as client:
            next(client.watch_nodes())  # the agent has registered
            job = begin_patient_job(client, WORKERS)
            followed = Followed(job.watch(), WORKERS)
            followed.until_whole()
            for how in (signal.SIGKILL, signal.SIGSTOP):
                for name in COORDINATORS:
                    lose_one(system, followed, name, how)
            wait_for_leaders(client)
            assert job.cancel().state == "cancelled"
            followed.until_ended()
            ledger = job.status().ledger
    followed.check_whole(ledger)


def test_all_coordinators_may_be_lost_at_once(start_service: StartService, tmp_path: Path) -> None:
    with new_database("postgresql", tmp_path) as url:
        system = ReplicatedSystem(start_service, url, tmp_path, WORKERS + 1)
        with Client(system.registry, patience_s=90) as client:
            next(client.watch_nodes())
            job = begin_patient_job(client, WORKERS)
            followed = Followed(job.watch(), WORKERS)
            followed.until_whole()
            frozen = [system.lose(name, signal.SIGSTOP) for name in COORDINATORS]
            system.kill_worker()
            followed.until_whole(without=followed.until_lost())
            for name in COORDINATORS:
                system.wait_until_leads(name)
            assert [wakes_and_ends(each) for each in frozen] == [1, 1, 1]
            assert job.cancel().state == "cancelled"
            followed.until_ended()
            ledger = job.status().ledger
    assert followed.numbers == list(range(1, len(followed.numbers) + 1))
    assert ledger is not None
    assert ledger.is_exact, ledger.verdict
