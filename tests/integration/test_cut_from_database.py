"""Aim: a coordinator that loses its database alone lets go before its standby leads, and the work goes on.

Method: two registries on one PostgreSQL, the first through a proxy that stops forwarding without closing, and
an agent that beats all the time. The standby leads, hears the agent, and has declared nobody dead. And a
whole system with a job, whose selector and then whose trainer is cut off while a worker is killed.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from conftest import StartService
from databases import new_database
from paced_jobs import begin_patient_job
from replicated_system import Followed, ReplicatedSystem

from benchmarks.new_database import by_proxy
from peerloom import Client
from peerloom.embedded.health import Prober
from peerloom.kit.database import connect_database
from peerloom.v1.registry_pb2 import NodeState

LIMIT_S = 120.0
WORKERS = 3
pytestmark = pytest.mark.timeout(400)


def until(holds: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not holds():  # each look is a call
        assert time.monotonic() < deadline_s, f"not within {LIMIT_S:g} s: {what}"


def test_a_registry_cut_from_its_database_lets_go_and_no_node_dies(
    start_service: StartService, tmp_path: Path
) -> None:
    with new_database("postgresql", tmp_path) as url:
        with by_proxy(url) as (proxy, cut_off), Prober() as prober:
            leader = start_service("registry", "--database", cut_off)
            standby = start_service("registry", "--database", url)
            both = f"{leader.address},{standby.address}"
            start_service("node_agent", "--state", str(tmp_path / "node"), "--registry", both)
            until(lambda: len(prober.nodes(leader.address)) == 1, "the agent is registered")
            (known,) = prober.nodes(leader.address)
            proxy.stall()
            until(lambda: prober.health(leader.address) != "SERVING", "the leader lets go")
            until(lambda: prober.health(standby.address) == "SERVING", "the standby leads")

            def is_heard() -> bool:
                return [node.state for node in prober.nodes(standby.address)] == [NodeState.NODE_STATE_ALIVE]

            until(is_heard, "the agent beats at the standby")
            assert leader.process.wait(LIMIT_S) == 1
            assert "could not renew it for 2 s" in leader.log()
            assert is_heard()
            (heard,) = prober.nodes(standby.address)
            assert heard.node_id == known.node_id
        engine = sa.create_engine(url)
        with engine.connect() as connection:
            ended = connection.scalar(sa.text("SELECT count(*) FROM sessions WHERE end_s IS NOT NULL"))
        engine.dispose()
    assert ended == 0, "its first session goes on: it was never declared dead"


def test_a_connection_that_hangs_while_it_is_set_up_is_broken_off_too(tmp_path: Path) -> None:
    """A process would wait for it as long as the network keeps the connection, and its end with it."""
    is_stalled = threading.Event()

    def stall(connection: Any, _: object) -> None:
        proxy.stall()
        is_stalled.set()
        connection.execute("SELECT 1")

    def read() -> None:
        with database.read():
            raise AssertionError("nothing answers")

    # The pool is the last to end: what hangs in it ends with the proxy at the latest.
    with (
        ThreadPoolExecutor(1) as pool,
        new_database("postgresql", tmp_path) as url,
        by_proxy(url) as (proxy, cut_off),
    ):
        database = connect_database(cut_off, "tester")
        database.engine.dispose()
        sa.event.listen(database.engine, "connect", stall)
        hanging = pool.submit(read)
        assert is_stalled.wait(LIMIT_S)
        database.let_go()
        assert isinstance(hanging.exception(LIMIT_S), psycopg.OperationalError | sa.exc.OperationalError)


def test_a_selector_and_a_trainer_cut_from_their_database_are_followed_by_their_standbys(
    start_service: StartService, tmp_path: Path
) -> None:
    with (
        new_database("postgresql", tmp_path) as url,
        by_proxy(url) as (of_selector, selector_url),
        by_proxy(url) as (of_trainer, trainer_url),
    ):
        urls = {"selector": selector_url, "trainer": trainer_url}
        system = ReplicatedSystem(start_service, url, tmp_path, WORKERS + 1, urls)
        with Client(system.registry, patience_s=90) as client:
            next(client.watch_nodes())  # the agent has registered
            job = begin_patient_job(client, WORKERS)
            followed = Followed(job.watch(), WORKERS)
            followed.until_whole()
            for name, proxy in (("selector", of_selector), ("trainer", of_trainer)):
                cut_off = system.succeed(name)
                proxy.stall()
                system.kill_worker()
                followed.until_whole(without=followed.until_lost())
                system.wait_until_leads(name)
                assert cut_off.process.wait(LIMIT_S) == 1
                assert "could not renew it for 2 s" in cut_off.log()
            assert job.cancel().state == "cancelled"
            followed.until_ended()
            ledger = job.status().ledger
    followed.check_whole(ledger)
