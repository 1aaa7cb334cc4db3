"""Who may write: one process a service and database, by a lease with a fencing epoch.

The lease is a row. Its holder moves the row's beat every 0.4 s. Whoever wants it instead stands by, and takes
it by raising the epoch when the holder has released it, is provably dead, or was not seen to move the beat
for `TAKE_AFTER_S` of the standby's own clock. A holder that can't move it for `LEASE_S` lets go before that:
`lease_rules` says why in time. Each transaction that writes compares the row's epoch with the one its process
took (`Database.write`), so a holder that was frozen and wakes up deposed writes nothing.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import sqlalchemy as sa

from peerloom.errors import FailedPreconditionError, PeerloomError
from peerloom.kit.clock import Clock
from peerloom.kit.database import Database, SqlThread
from peerloom.kit.database_clock import DatabaseClock
from peerloom.kit.lease_rules import NO_EPOCH, LeaseRow, Sighting, Verdict, judge, left_s, see
from peerloom.kit.lease_table import (
    end_sessions,
    is_locked_out,
    move_beat,
    read_lease,
    release_lease,
    server_time_s,
    take_lease,
)
from peerloom.kit.liveness import ProcessIdentity, is_provably_dead, this_process
from peerloom.kit.logs import get_logger

BEAT_INTERVAL_S = 0.4
LOOK_INTERVAL_S = 0.1

_log = get_logger()


class Lease:
    """One process's part in the lease of a database's service. Its SQL runs on a thread of its own.

    `clock` is the machine's; the lease's own `clock` is the one that all who take this lease share. `place`
    tells people where the process serves; `process`, `is_dead` and `read_time_s` are what a simulation
    invents.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        place: str = "",
        process: ProcessIdentity | None = None,
        is_dead: Callable[[ProcessIdentity], bool] = is_provably_dead,
        read_time_s: Callable[[sa.Connection], float | None] = server_time_s,
    ) -> None:
        self._database = database
        self.service = database.service
        self._sql = SqlThread(database)
        self._clock = clock
        self.clock = DatabaseClock(clock)
        self._read_time_s = read_time_s
        self._process = process or this_process()
        self._place = place
        self._is_dead = is_dead
        self._sighting: Sighting | None = None
        self._held = NO_EPOCH
        self._renewed_s = 0.0  # when the last renewal that succeeded began, of which taking it is the first

    async def try_to_take(self) -> Verdict:
        """Takes the lease if it may be taken; says why, or who holds it.

        Raises what storage raises, and FailedPreconditionError (SQLITE_SHARED) when a process on another
        machine lives by the lease of a SQLite file.
        """
        return await self._sql.run(self.take_if_allowed)

    def take_if_allowed(self) -> Verdict:
        """What `try_to_take` does, on this thread."""
        began_s = self._clock.monotonic_s()
        with self._database.read() as connection:
            row = read_lease(connection, self.service)
        verdict = self._judge(row)
        if not verdict.may_take:
            return verdict
        taken = LeaseRow((row.epoch if row else 0) + 1, 0, False, self._describe(), self._process.text())
        try:
            with self._database.engine.begin() as connection:
                is_taken = take_lease(connection, self.service, row, taken)
                self._follow_clock(connection)
        except sa.exc.OperationalError as error:
            if not is_locked_out(error):
                raise
            if row is None:
                return Verdict(False, "another service is just changing the database's tables")
            with self._database.engine.begin() as connection:
                end_sessions(connection, self.service, row.process)
            return Verdict(False, f"{row.holder} had it locked by a transaction, which was ended")
        if not is_taken:
            return Verdict(False, "another process has just taken the lease")
        self._database.admit(taken.epoch)
        self._held, self._renewed_s = self._database.epoch, began_s
        _log.info("lease_taken", of=self.service, epoch=taken.epoch, reason=verdict.reason)
        return verdict

    async def keep(self) -> None:
        """Moves the beat until cancelled.

        Raises UnavailableError (LEASE_LOST) once somebody else has the lease, or may soon take it since the
        database could not be told for `LEASE_S`. That is watched beside the renewal, which may hang.
        """
        renewing = asyncio.create_task(self._renew_forever())
        try:
            while not renewing.done():
                limit_s = self._left_s()
                if limit_s is not None and limit_s <= 0:
                    raise self._database.lapsed()
                await asyncio.wait([renewing], timeout=limit_s)
            await renewing
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    def _left_s(self) -> float | None:
        # Nobody is cut from a file alone: who would take its lease can't reach it either.
        return left_s(self._renewed_s, self._clock.monotonic_s()) if self._database.is_remote else None

    async def _renew_forever(self) -> None:
        while True:
            await asyncio.sleep(BEAT_INTERVAL_S)
            began_s = self._clock.monotonic_s()
            try:
                is_ours = await self._sql.run(self.beat)
            except PeerloomError as error:
                _log.warning("lease_not_renewed", of=self.service, reason=error.message)
                continue
            if not is_ours:
                raise self._database.deposed()
            self._renewed_s = began_s

    def beat(self) -> bool:
        """Shows, on this thread, that we are there; False when somebody else has the lease."""
        with self._database.engine.begin() as connection:
            is_ours = move_beat(connection, self.service, self._held)
            self._follow_clock(connection)
            return is_ours

    def _follow_clock(self, connection: sa.Connection) -> None:
        asked_s = self._clock.monotonic_s()
        server_s = self._read_time_s(connection)
        if server_s is not None:
            self.clock.follow(server_s, asked_s, self._clock.monotonic_s())

    async def release(self) -> None:
        """Lets others take the lease at once; from now on this process writes nothing."""
        try:
            await self._sql.run(self.give_up)
        except PeerloomError as error:
            _log.warning("lease_not_released", of=self.service, reason=error.message)
        self._sql.close()

    def give_up(self) -> None:
        """What `release` does, on this thread."""
        epoch, self._held = self._held, NO_EPOCH
        self._database.admit(NO_EPOCH)
        if epoch != NO_EPOCH:
            with self._database.engine.begin() as connection:
                release_lease(connection, self.service, epoch)

    def _judge(self, row: LeaseRow | None) -> Verdict:
        if row is None:
            return judge(None, is_dead=False, unmoved_s=0.0)
        now_s, holder, before = (
            self._clock.monotonic_s(),
            ProcessIdentity.of_text(row.process),
            self._sighting,
        )
        self._sighting = see(before, row, now_s)
        if before is not None and (before.epoch, before.beat) != (row.epoch, row.beat):
            self._refuse_shared_file(row, holder)
        is_dead = self._is_dead(holder)
        return judge(row, is_dead=is_dead, unmoved_s=self._sighting.unmoved_s)

    def _refuse_shared_file(self, row: LeaseRow, alive: ProcessIdentity) -> None:
        if self._database.engine.dialect.name == "sqlite" and alive.boot != self._process.boot:
            raise FailedPreconditionError(
                f"the SQLite file {self._database.engine.url.database} is in use on another machine: "
                f"{row.holder} holds it. SQLite's locks don't hold over a network disk, so two machines "
                f"can't share the file. Give all of this {self.service}'s processes one PostgreSQL with "
                "--database, or start this one with a --state of its own.",
                reason="SQLITE_SHARED",
                metadata={"holder": row.holder},
            )

    def _describe(self) -> str:
        since = datetime.fromtimestamp(self._clock.wall_s(), UTC)
        at = f" at {self._place}" if self._place else ""
        return (
            f"the {self.service}{at} (process {self._process.pid} on {self._process.host}, "
            f"since {since:%Y-%m-%d %H:%M:%S} UTC)"
        )
