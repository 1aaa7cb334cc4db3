"""Aim: a registry that loses its database alone lets go of its nodes before its standby leads.

Method: two registries on one PostgreSQL, the first through a proxy that stops forwarding without closing, and
an agent that beats all the time. The standby leads, hears the agent, and has declared nobody dead.
"""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from conftest import StartService
from databases import new_database
from stalling_proxy import StallingProxy

from peerloom.embedded.health import Prober
from peerloom.v1.registry_pb2 import NodeState

LIMIT_S = 120.0
pytestmark = pytest.mark.timeout(400)


def until(holds: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not holds():  # each look is a call
        assert time.monotonic() < deadline_s, f"not within {LIMIT_S:g} s: {what}"


def test_a_registry_cut_from_its_database_lets_go_and_no_node_dies(
    start_service: StartService, tmp_path: Path
) -> None:
    with new_database("postgresql", tmp_path) as url:
        made = sa.make_url(url)
        with StallingProxy(made.host or "", made.port or 5432) as proxy, Prober() as prober:
            cut_off = made.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
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
