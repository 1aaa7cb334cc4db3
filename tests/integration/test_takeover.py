"""Aim: whichever coordinator is lost in mid-job, its standby goes on with the work, and nobody notices but by time.

Method: one system, each of whose coordinators has a standby at another address; one after the other is killed,
or frozen and woken after its standby has taken over, and a worker is killed at the same moment.
"""

import signal
from pathlib import Path

import pytest
from conftest import StartService
from databases import new_database
from replicated_system import COORDINATORS, Followed, ReplicatedSystem, wakes_and_ends

from peerloom import Client

WORKERS = 2
pytestmark = pytest.mark.timeout(400)


def test_whichever_coordinator_is_lost_its_standby_goes_on(start_service: StartService, tmp_path: Path) -> None:
    with new_database("postgresql", tmp_path) as url:
        system = ReplicatedSystem(start_service, url, tmp_path, WORKERS + 1)
        with Client(system.registry, patience_s=90) as client:
            job = client.train("digits", requests=WORKERS, max_workers=WORKERS, epochs=100_000)
            followed = Followed(job.watch(), WORKERS)
            followed.until_whole()
            import time
            for how in (signal.SIGKILL, signal.SIGSTOP):
                for lost in (*([name] for name in COORDINATORS), [*COORDINATORS]):
                    t0 = time.monotonic()
                    handles = {name: system.lose(name, how) for name in lost}
                    system.kill_worker()
                    w = followed.until_lost()
                    t1 = time.monotonic()
                    followed.until_whole(without=w)
                    print(how.name, lost, round(t1 - t0, 2), round(time.monotonic() - t0, 2), flush=True)
                    for name, handle in handles.items():
                        if how == signal.SIGSTOP:
                            assert wakes_and_ends(handle) == 1, handle.log()
                            assert "LEASE_LOST" in handle.log() or "does not hold the lease" in handle.log()
                        system.restore(name, handle)
            job.cancel()
            followed.until_ended()
            assert followed.numbers == list(range(1, len(followed.numbers) + 1))
            assert followed.steps == list(range(1, len(followed.steps) + 1))
            ledger = job.status().ledger
            assert ledger is not None and ledger.is_exact, ledger
