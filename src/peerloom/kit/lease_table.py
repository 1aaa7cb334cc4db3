"""The rows behind leases, and whose system each is: made when a database is opened, outside migrations."""

import hashlib

import sqlalchemy as sa

from peerloom.kit.lease_rules import LeaseRow
from peerloom.kit.schema import lock_schema

_metadata = sa.MetaData()
leases = sa.Table(
    "service_leases",
    _metadata,
    sa.Column("service", sa.String(32), primary_key=True),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("beat", sa.BigInteger, nullable=False),
    sa.Column("is_released", sa.Boolean, nullable=False),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("process", sa.Text, nullable=False),
)
systems = sa.Table(
    "service_systems",
    _metadata,
    sa.Column("service", sa.String(32), primary_key=True),
    sa.Column("registry_id", sa.String(128), nullable=False),
)
# On PostgreSQL it waits for a taker, and a taker for it, until the transaction's end; SQLite has one writer.
_OF = leases.c.service == sa.bindparam("of")
_EPOCH = sa.select(leases.c.epoch).where(_OF).with_for_update(read=True)
# Made once: these three are all that an idle service asks, several times a second.
_ROW = sa.select(leases).where(_OF)
_BEAT = sa.update(leases).where(_OF, leases.c.epoch == sa.bindparam("held")).values(beat=leases.c.beat + 1)
_TIME = sa.text("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS double precision)")
_LOCK_LIMIT = "200ms"  # a holder that writes has the row for as long as a transaction takes
_LOCK_NOT_AVAILABLE = "55P03"


def session_name(service: str, process: str) -> str:
    """What PostgreSQL shows of a process's connections, and knows them by; at most 63 bytes."""
    return f"peerloom {service} {hashlib.sha256(process.encode()).hexdigest()[:16]}"


def create_leases(engine: sa.Engine) -> None:
    """Makes the tables, unless they are there."""
    known = sa.inspect(engine)
    if known.has_table(leases.name) and known.has_table(systems.name):
        return
    with engine.begin() as connection:
        lock_schema(connection)
        _metadata.create_all(connection)


def epoch_for_writing(connection: sa.Connection, service: str) -> int:
    """The epoch in force, which then stays so until the end of this transaction; 0 before the first."""
    return connection.scalar(_EPOCH, {"of": service}) or 0


def read_lease(connection: sa.Connection, service: str) -> LeaseRow | None:
    """The service's lease, unless nobody has ever taken it."""
    row = connection.execute(_ROW, {"of": service}).one_or_none()
    return LeaseRow(row.epoch, row.beat, row.is_released, row.holder, row.process) if row else None


def take_lease(connection: sa.Connection, service: str, seen: LeaseRow | None, taken: LeaseRow) -> bool:
    """Puts `taken` in the place of what was seen; False when that is no longer so."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text(f"SET LOCAL lock_timeout = '{_LOCK_LIMIT}'"))
    values = {
        "epoch": taken.epoch,
        "beat": taken.beat,
        "is_released": taken.is_released,
        "holder": taken.holder,
        "process": taken.process,
    }
    if seen is None:
        lock_schema(connection)
        if read_lease(connection, service) is not None:
            return False
        connection.execute(sa.insert(leases).values(service=service, **values))
        return True
    is_as_seen = (leases.c.epoch == seen.epoch) & (leases.c.beat == seen.beat)
    update = sa.update(leases).where(leases.c.service == service, is_as_seen)
    return connection.execute(update.values(values)).rowcount == 1


def is_locked_out(error: sa.exc.DBAPIError) -> bool:
    """Whether `take_lease` failed because another transaction keeps locked what it needs.

    That is the row, and for the first one the schema.
    """
    return getattr(error.orig, "sqlstate", "") == _LOCK_NOT_AVAILABLE


def end_sessions(connection: sa.Connection, service: str, process: str) -> None:
    """Ends another process's connections to PostgreSQL, with whatever they were about to write.

    A process that is frozen, or cut off, within a transaction keeps its locks. PostgreSQL has a limit for
    such pauses, but counts none between the parts of a batch.
    """
    of_process = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = :name AND datname = current_database() AND pid <> pg_backend_pid()"
    )
    connection.execute(sa.text(of_process), {"name": session_name(service, process)})


def move_beat(connection: sa.Connection, service: str, epoch: int) -> bool:
    """Shows that the holder of this epoch is there; False when another epoch is in force."""
    return connection.execute(_BEAT, {"of": service, "held": epoch}).rowcount == 1


def server_time_s(connection: sa.Connection) -> float | None:
    """What the server has on its clock, in seconds since 1970; None of a file, which has its machine's."""
    if connection.dialect.name != "postgresql":
        return None
    return float(connection.execute(_TIME).scalar_one())


def release_lease(connection: sa.Connection, service: str, epoch: int) -> None:
    """Lets anybody take the lease, if this epoch is still in force."""
    held = sa.update(leases).where(leases.c.service == service, leases.c.epoch == epoch)
    connection.execute(held.values(is_released=True))


def system_of(connection: sa.Connection, service: str) -> str:
    """The id of the registry that the service's leader knew; empty before any leader noted it."""
    found = sa.select(systems.c.registry_id).where(systems.c.service == service)
    return str(connection.scalar(found) or "")


def note_system(connection: sa.Connection, service: str, registry_id: str) -> None:
    """Notes which registry the service's leader knows."""
    connection.execute(sa.delete(systems).where(systems.c.service == service))
    connection.execute(sa.insert(systems).values(service=service, registry_id=registry_id))
