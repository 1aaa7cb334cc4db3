"""Aim: registries whose machines' wall clocks are minutes apart tell the right time, also after a takeover.

Method: two real registries on one PostgreSQL, each with a `time.time` of its own, nine minutes apart. What
they say is compared with the test's own clock. A minute is more than a slow machine takes, and less than they
are off.
"""

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from conftest import ServiceHandle, StartService
from databases import new_database
from test_two_processes import SERVING, becomes

from peerloom import AsyncClient
from peerloom.client.types import Session
from peerloom.kit.dialing import Dialer
from peerloom.kit.ids import new_request_id
from peerloom.v1 import registry_pb2

SLOW_S = 60.0
AHEAD_S, BEHIND_S = 300.0, -240.0
# A silence of nine minutes would be a death, and nobody here is silent for two.
PATIENCE = ("--suspect-after-s", "120", "--dead-after-s", "240")
CLOCK = "import time\nright_s = time.time\ntime.time = lambda: right_s() + {ahead_s}\n"
pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with new_database("postgresql", tmp_path) as url:
        yield url


def start_registry(start_service: StartService, folder: Path, url: str, ahead_s: float) -> ServiceHandle:
    """A registry on a machine whose wall clock is so far ahead."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(CLOCK.format(ahead_s=ahead_s))
    modules = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return start_service("registry", "--database", url, *PATIENCE, PYTHONPATH=modules)


def leader_ahead_s(url: str) -> float:
    """How far ahead the leader's machine is: its name tells since when it leads, by that machine's clock."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        holder = connection.execute(sa.text("SELECT holder FROM service_leases")).scalar_one()
    engine.dispose()
    since = re.search(r"since (\S+ \S+) UTC", holder)
    assert since is not None, holder
    led = datetime.strptime(since[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    return (led - datetime.now(UTC)).total_seconds()


def check(session: Session, began: datetime) -> None:
    """It began when it did, and is as long as that says."""
    assert session.start_time is not None
    assert abs(session.start_time - began) < timedelta(seconds=SLOW_S)
    end = session.end_time or datetime.now(UTC)
    assert abs((end - session.start_time).total_seconds() - session.online_s) < SLOW_S
    assert abs((datetime.now(UTC) - began).total_seconds() - session.online_s) < SLOW_S


@pytest.mark.parametrize(("former_s", "later_s"), [(AHEAD_S, BEHIND_S), (BEHIND_S, AHEAD_S)])
async def test_sessions_are_as_long_as_they_are_after_a_takeover_by_another_clock(
    start_service: StartService, tmp_path: Path, url: str, former_s: float, later_s: float
) -> None:
    former = start_registry(start_service, tmp_path / "former", url, former_s)
    await becomes(former.address, SERVING)
    later = start_registry(start_service, tmp_path / "later", url, later_s)
    assert abs(leader_ahead_s(url) - former_s) < SLOW_S
    spec = registry_pb2.NodeSpec(name="ada", address="10.0.0.1:7500", slots=1)
    request = registry_pb2.RegisterRequest(spec=spec, node_key="0" * 16, request_id=new_request_id())
    began = datetime.now(UTC)
    async with Dialer().registry(former.address) as registry:
        lease_id = (await registry.call(registry.stub.Register, request)).lease_id

    former.kill()
    await becomes(later.address, SERVING)
    assert abs(leader_ahead_s(url) - later_s) < SLOW_S
    async with AsyncClient(later.address) as client, Dialer().registry(later.address) as registry:
        check((await client.sessions())[0], began)
        leave = registry_pb2.DeregisterRequest(lease_id=lease_id)
        await registry.call(registry.stub.Deregister, leave)
        [session] = await client.sessions()
        assert session.end_time is not None
        check(session, began)
        stream = registry.stub.WatchNodes
        events = registry.stream(stream, registry_pb2.WatchNodesRequest(stop_at_present=True))
        kinds = [registry_pb2.NodeEventKind.Name(event.kind) async for event in events]
    assert kinds == ["NODE_EVENT_KIND_REGISTERED", "NODE_EVENT_KIND_LEFT"]
