"""Aim: a leader that is cut from everybody in mid-job is followed by its standby, and the work goes on.

Method: each process of each coordinator is on a host of its own, whose cable is pulled: from PostgreSQL, the
agent, the client, the other coordinators and its standby alike. A worker is killed after that. What counts is
what a user sees, and that a leader whose network comes back has let go, and stands by once it starts again.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from conftest import StartService
from databases import new_database
from free_networks import free_network
from paced_jobs import begin_patient_job
from replicated_system import COORDINATORS, HOSTS, LIMIT_S, Followed, ReplicatedSystem

from benchmarks.cuttable_network import CuttableNetwork
from benchmarks.new_database import by_proxy
from peerloom import Client
from peerloom.embedded.health import Prober
from peerloom.kit.lease_table import read_lease
from peerloom.testbed.needs import need_package, need_root, need_setpriv

WORKERS = 3
pytestmark = pytest.mark.timeout(400)


@contextmanager
def cuttable_system(start_service: StartService, folder: Path) -> Iterator[tuple[ReplicatedSystem, str]]:
    """And the URL of its database."""
    for need in (need_root(), need_package("pyroute2"), need_setpriv()):
        if not need.ok:
            pytest.skip(f"needs {need.name}: {need.remedy}")
    with (
        new_database("postgresql", folder) as url,
        CuttableNetwork(HOSTS, free_network(), folder / "network") as network,
        by_proxy(url, network.ours) as (_, from_there),
    ):
        yield ReplicatedSystem(start_service, from_there, folder, WORKERS + 1, network=network), url


def holders(url: str) -> dict[str, str]:
    """Who took the lease of each service last, in words."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        leases = {name: read_lease(connection, name) for name in COORDINATORS}
    engine.dispose()
    return {name: lease.holder for name, lease in leases.items() if lease is not None}


def cut_off(system: ReplicatedSystem, followed: Followed, names: Sequence[str], url: str) -> None:
    """Leaders are cut off and a worker is killed; it is replaced, and mended leaders have let go for good."""
    lost = system.cut(names)
    system.kill_worker()
    followed.until_whole(without=followed.until_lost())
    for name, each in zip(names, lost, strict=True):
        system.wait_until_leads(name)
        assert each.process.wait(LIMIT_S) == 1
        assert "could not renew it for 2 s" in each.log()
    system.mend(lost)  # what they had sent may arrive now
    for name, each in zip(names, lost, strict=True):
        system.restore(name, each)
        assert each.address not in holders(url)[name]
    followed.until_whole()
    for name in names:
        wait_until_stands_by(system.standbys[name])


def wait_until_stands_by(service: Any) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    with Prober() as prober:
        while "standing by: " not in service.log():
            assert time.monotonic() < deadline_s, service.log()[-2000:]
            prober.health(service.address)  # each look is a call


def test_leaders_cut_from_everybody_are_followed_by_their_standbys(
    start_service: StartService, tmp_path: Path
) -> None:
    with (
        cuttable_system(start_service, tmp_path) as (system, url),
        Client(system.registry, patience_s=90) as client,
    ):
        next(client.watch_nodes())  # the agent has registered
        job = begin_patient_job(client, WORKERS)
        followed = Followed(job.watch(), WORKERS)
        followed.until_whole()
        for names in (*((name,) for name in COORDINATORS), COORDINATORS):
            cut_off(system, followed, names, url)
        assert job.cancel().state == "cancelled"
        followed.until_ended()
        ledger = job.status().ledger
    followed.check_whole(ledger)
