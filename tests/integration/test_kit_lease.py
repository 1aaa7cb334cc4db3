"""One writer a service and database: leases over real processes, on SQLite and PostgreSQL."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from databases import new_database

from peerloom.errors import FailedPreconditionError, ResourceExhaustedError, UnavailableError
from peerloom.kit.clock import ManualClock
from peerloom.kit.database import Database, connect_database
from peerloom.kit.lease import Lease
from peerloom.kit.lease_rules import LEASE_S, TAKE_AFTER_S, Verdict
from peerloom.kit.liveness import ProcessIdentity, is_provably_dead, this_process

LIMIT_S = 60.0
# A container on this machine: its processes can't be seen from here.
ELSEWHERE = ProcessIdentity("elsewhere", this_process().boot, "a-namespace", 7, "12345")


@pytest.fixture(params=["file", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A new database with one table of notes."""
    with new_database(request.param, tmp_path) as url:
        database = connect_database(url, "tester")
        with database.engine.begin() as connection:
            connection.execute(sa.text("CREATE TABLE notes (number INTEGER)"))
        database.close()
        yield url


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    """The database as this process sees it."""
    opened = connect_database(url, "tester")
    yield opened
    opened.close()


class Holder:
    """Another process that takes the lease; `says` is how it got it."""

    def __init__(self, url: str) -> None:
        script = str(Path(__file__).parent / "lease_holder.py")
        self.process = subprocess.Popen(
            [sys.executable, script, url, "tester"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.says = self._read()

    def do(self, word: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def close(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.communicate(timeout=LIMIT_S)


@pytest.fixture
def hold(url: str) -> Iterator[Callable[[], Holder]]:
    """Starts processes that take the lease."""
    started: list[Holder] = []

    def start() -> Holder:
        started.append(Holder(url))
        return started[-1]

    yield start
    for holder in started:
        holder.close()


def looks(lease: Lease, clock: ManualClock, seconds: float) -> Verdict:
    """Looks eight times a second until the lease is taken, or for that long; what came of it."""
    for _ in range(round(8 * seconds)):
        clock.advance(0.125)
        if (verdict := lease.take_if_allowed()).may_take:
            break
    return verdict


def notes(database: Database) -> int:
    with database.read() as connection:
        return connection.scalar(sa.text("SELECT COUNT(*) FROM notes")) or 0


def write(database: Database) -> None:
    with database.write() as connection:
        connection.execute(sa.text("INSERT INTO notes VALUES (2)"))


def test_nobody_writes_without_the_lease(database: Database) -> None:
    with pytest.raises(UnavailableError) as raised:
        write(database)
    assert raised.value.reason == "LEASE_LOST"
    assert Lease(database, ManualClock()).take_if_allowed().may_take
    write(database)
    assert notes(database) == 1


def test_a_second_process_learns_who_holds_the_lease_and_writes_nothing(
    database: Database, hold: Callable[[], Holder]
) -> None:
    holder = hold()
    verdict = Lease(database, ManualClock()).take_if_allowed()
    assert not verdict.may_take
    assert f"process {holder.process.pid} on " in verdict.reason
    with pytest.raises(UnavailableError):
        write(database)
    assert (holder.do("write"), notes(database)) == ("written", 1)


def test_the_lease_of_a_process_that_was_killed_is_free_at_once(
    database: Database, hold: Callable[[], Holder]
) -> None:
    """Also while its parent has not yet asked how it ended, and when its number is another's now."""
    holder = hold()
    holder.process.kill()
    os.waitid(os.P_PID, holder.process.pid, os.WEXITED | os.WNOWAIT)
    verdict = Lease(database, ManualClock()).take_if_allowed()
    assert verdict.may_take
    assert verdict.reason.endswith("is dead")
    write(database)


def test_a_process_that_stops_in_order_hands_the_lease_over_at_once(
    database: Database, hold: Callable[[], Holder]
) -> None:
    holder = hold()
    assert holder.do("release") == "released"
    assert Lease(database, ManualClock()).take_if_allowed().may_take
    assert holder.do("write") == "LEASE_LOST"


def test_a_frozen_process_is_deposed_after_its_time_and_writes_nothing_when_it_wakes(
    database: Database, hold: Callable[[], Holder]
) -> None:
    holder, clock = hold(), ManualClock()
    assert holder.do("write") == "written"
    holder.process.send_signal(signal.SIGSTOP)
    lease = Lease(database, clock)
    assert not lease.take_if_allowed().may_take
    assert looks(lease, clock, TAKE_AFTER_S).may_take
    write(database)
    holder.process.send_signal(signal.SIGCONT)
    assert holder.do("write") == "LEASE_LOST"
    assert notes(database) == 2


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("where", ["begin", "batch"])
def test_a_holder_frozen_within_a_transaction_gives_way_where_the_server_can_end_it(
    database: Database, hold: Callable[[], Holder], where: str
) -> None:
    """On SQLite the lock on the file lasts as long as the process."""
    holder, clock = hold(), ManualClock()
    assert holder.do(where) == "begun"
    lease = Lease(database, clock)
    assert not lease.take_if_allowed().may_take
    verdict = looks(lease, clock, TAKE_AFTER_S)
    assert not verdict.may_take
    assert verdict.reason.endswith("had it locked by a transaction, which was ended")
    assert lease.take_if_allowed().may_take
    write(database)
    assert notes(database) == 1


def test_two_standbys_that_saw_the_same_do_not_both_take_it(url: str, database: Database) -> None:
    clock = ManualClock()
    assert Lease(database, clock, process=ELSEWHERE).take_if_allowed().may_take
    others = [connect_database(url, "tester") for _ in range(2)]
    leases = [Lease(one, clock) for one in others]
    assert [lease.take_if_allowed().may_take for lease in leases] == [False, False]
    for _ in range(round(8 * TAKE_AFTER_S) - 1):
        clock.advance(0.125)
        assert [lease.take_if_allowed().may_take for lease in leases] == [False, False]
    clock.advance(0.125)
    assert [lease.take_if_allowed().may_take for lease in leases] == [True, False]
    write(others[0])
    for late in (database, others[1]):
        with pytest.raises(UnavailableError):
            write(late)
    for one in others:
        one.close()


@pytest.mark.parametrize("url", ["file"], indirect=True)
def test_a_file_that_another_machine_lives_by_is_refused(url: str, database: Database) -> None:
    """As long as its beat rests it may be this machine's own of before it was started anew."""
    other = connect_database(url, "tester")
    away = ProcessIdentity("away", "another-boot", "a-namespace", 7, "12345")
    holder, standby = Lease(database, ManualClock(), process=away), Lease(other, ManualClock())
    assert holder.take_if_allowed().may_take
    assert not standby.take_if_allowed().may_take
    assert holder.beat()
    with pytest.raises(FailedPreconditionError, match="in use on another machine") as raised:
        standby.take_if_allowed()
    assert raised.value.reason == "SQLITE_SHARED"
    other.close()


def test_a_beat_seen_in_time_puts_the_taking_off(url: str, database: Database) -> None:
    clock, other = ManualClock(), connect_database(url, "tester")
    holder, standby = Lease(database, clock, process=ELSEWHERE), Lease(other, clock)
    assert holder.take_if_allowed().may_take
    assert not standby.take_if_allowed().may_take
    assert not looks(standby, clock, TAKE_AFTER_S - 1).may_take
    assert holder.beat()
    assert not standby.take_if_allowed().may_take
    assert not looks(standby, clock, TAKE_AFTER_S - 1).may_take
    assert looks(standby, clock, 1).may_take
    assert not holder.beat()
    other.close()


def test_services_of_one_database_have_a_lease_each(url: str, database: Database) -> None:
    other = connect_database(url, "another")
    assert Lease(database, ManualClock()).take_if_allowed().may_take
    assert Lease(other, ManualClock()).take_if_allowed().may_take
    write(database)
    write(other)
    assert notes(database) == 2
    other.close()


async def test_keeping_a_lease_ends_when_somebody_else_has_it(
    url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peerloom.kit.lease.BEAT_INTERVAL_S", 0.01)
    clock, other = ManualClock(), connect_database(url, "tester")
    lease, standby = Lease(database, clock, process=ELSEWHERE), Lease(other, clock)
    assert (await lease.try_to_take()).may_take
    keeping = asyncio.create_task(lease.keep())
    assert not (await standby.try_to_take()).may_take
    with database.engine.begin() as connection:
        connection.execute(sa.text("UPDATE service_leases SET is_released = true"))
    async with asyncio.timeout(LIMIT_S):
        while not (await standby.try_to_take()).may_take:  # a beat may come between look and take
            pass
        with pytest.raises(UnavailableError, match="does not hold the lease"):
            await keeping
    await lease.release()
    assert not (await Lease(database, clock).try_to_take()).may_take, "it had nothing to release"
    await standby.release()
    other.close()


async def test_a_full_disk_does_not_end_the_keeping_of_a_lease(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peerloom.kit.lease.BEAT_INTERVAL_S", 0.01)
    lease, is_full, beats = Lease(database, ManualClock()), asyncio.Event(), asyncio.Event()
    assert (await lease.try_to_take()).may_take
    loop, beat = asyncio.get_running_loop(), lease.beat

    def beat_on_a_disk_that_is_full_at_first() -> bool:
        if not is_full.is_set():
            loop.call_soon_threadsafe(is_full.set)
            raise ResourceExhaustedError("the disk is full")
        loop.call_soon_threadsafe(beats.set)
        return beat()

    monkeypatch.setattr(lease, "beat", beat_on_a_disk_that_is_full_at_first)
    keeping = asyncio.create_task(lease.keep())
    async with asyncio.timeout(LIMIT_S):
        await is_full.wait()
        await beats.wait()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await lease.release()


@contextmanager
def row_locked(url: str) -> Iterator[None]:
    """While this lasts no renewal ends: a transaction of somebody else's has the lease's row."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        connection.execute(sa.text("UPDATE service_leases SET holder = holder"))
        yield
        connection.rollback()
    engine.dispose()


class WatchedBeats:
    """Tells when the beats of a lease begin, and when one has failed; calls `before` before each."""

    def __init__(self, lease: Lease, before: Callable[[], object] = lambda: None) -> None:
        self.begun, self.failed = asyncio.Event(), asyncio.Event()
        self._before, self._beat, self._loop = before, lease.beat, asyncio.get_running_loop()

    def __call__(self) -> bool:
        self._loop.call_soon_threadsafe(self.begun.set)
        try:
            self._before()
            return self._beat()
        except sa.exc.DBAPIError:
            self._loop.call_soon_threadsafe(self.failed.set)
            raise


async def test_a_renewal_that_hangs_keeps_no_leader_from_letting_go(
    url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peerloom.kit.lease.BEAT_INTERVAL_S", 0.01)
    clock, other = ManualClock(), connect_database(url, "tester")
    database.is_remote = True
    lease = Lease(database, clock)
    assert (await lease.try_to_take()).may_take
    beats = WatchedBeats(lease)
    monkeypatch.setattr(lease, "beat", beats)
    async with asyncio.timeout(LIMIT_S):
        with row_locked(url):
            keeping = asyncio.create_task(lease.keep())
            await beats.begun.wait()
            clock.advance(LEASE_S)
            with pytest.raises(UnavailableError, match=r"could not renew it for 2 s") as lost:
                await keeping
            assert lost.value.reason == "LEASE_LOST"
            database.let_go()
            with pytest.raises(UnavailableError, match="writes nothing"):
                write(database)
            # PostgreSQL would have it wait for as long as the row is locked; SQLite gives up by itself.
            await beats.failed.wait()
        await lease.release()
        assert (await Lease(other, clock).try_to_take()).reason.endswith("has released it")
    other.close()


async def test_a_lease_is_counted_from_when_its_renewal_began(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer comes 1.5 s later: by then the beat has been seen for up to 1.5 s."""
    monkeypatch.setattr("peerloom.kit.lease.BEAT_INTERVAL_S", 0.01)
    clock, ends = ManualClock(), threading.Event()
    database.is_remote = True
    lease = Lease(database, clock)
    assert (await lease.try_to_take()).may_take
    rest = iter([lambda: clock.advance(1.5), lambda: clock.advance(0.5) or ends.wait(LIMIT_S)])
    monkeypatch.setattr(lease, "beat", WatchedBeats(lease, lambda: next(rest)()))
    try:
        async with asyncio.timeout(LIMIT_S):
            with pytest.raises(UnavailableError, match="could not renew it"):
                await lease.keep()
    finally:
        ends.set()
    assert clock.monotonic_s() == LEASE_S
    await lease.release()


async def test_nobody_is_cut_from_a_file_alone(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peerloom.kit.lease.BEAT_INTERVAL_S", 0.01)
    database.is_remote = False
    clock = ManualClock()
    lease = Lease(database, clock)
    assert (await lease.try_to_take()).may_take
    clock.advance(60.0)
    beats = WatchedBeats(lease)
    monkeypatch.setattr(lease, "beat", beats)
    keeping = asyncio.create_task(lease.keep())
    async with asyncio.timeout(LIMIT_S):
        await beats.begun.wait()
    assert not keeping.done()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await lease.release()


def test_only_a_process_that_is_gone_from_this_machine_is_provably_dead() -> None:
    here = this_process()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        other = ProcessIdentity(here.host, here.boot, here.namespace, process.pid, "0")
        assert is_provably_dead(other), "another process has its number"
    gone = ProcessIdentity(here.host, here.boot, here.namespace, process.pid, "0")
    assert is_provably_dead(gone)
    assert not is_provably_dead(here)
    for unseen in ({"host": "x"}, {"boot": "x"}, {"namespace": "x"}):
        assert not is_provably_dead(ProcessIdentity(**{**gone.__dict__, **unseen}))


def test_an_identity_survives_the_database() -> None:
    assert ProcessIdentity.of_text(this_process().text()) == this_process()
