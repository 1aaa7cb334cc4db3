"""Brings the tables of one service up to date, also where several services share a database.

Each service has a version table of its own, `alembic_version_SERVICE`. Databases of a time when there was
one `alembic_version` for whoever came first are taken over if the version in it is this service's.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from peerloom.errors import FailedPreconditionError

if TYPE_CHECKING:
    from alembic.config import Config

_FORMER_TABLE = "alembic_version"
_MIGRATION_LOCK = 7_400_000_000  # any number, as long as nobody else locks it in our databases
_PAUSE_LIMIT = "10s"


def lock_schema(connection: sa.Connection) -> None:
    """Keeps others from changing tables until the end of this transaction.

    PostgreSQL ends it if it pauses for long, as whoever takes the lease of a frozen process waits for this.
    On SQLite there is nothing to do: a transaction that may write locks the whole file.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text(f"SET LOCAL idle_in_transaction_session_timeout = '{_PAUSE_LIMIT}'"))
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})


def load_alembic() -> None:
    """Imports what `migrate` needs: a third of a second and more, taken before it is needed. Blocks."""
    import alembic.command  # noqa: F401  # for its import


def migrate(connection: sa.Connection, service: str, migrations: str) -> None:
    """Applies what is missing of the package folder `migrations`, within the caller's transaction.

    Raises FailedPreconditionError when a newer version of Peerloom has migrated the database.
    """
    from alembic import command  # a third of a second to import, and only needed here
    from alembic.util import CommandError

    lock_schema(connection)
    config = _config(connection, f"alembic_version_{service}", migrations)
    _take_over(connection, config)
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise FailedPreconditionError(
            f"the database {connection.engine.url.render_as_string()} was migrated by a newer version of "
            f"Peerloom ({error}). Start that version, or give another database or state folder.",
            reason="DATABASE_IS_NEWER",
        ) from error


def _config(connection: sa.Connection, version_table: str, migrations: str) -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("version_locations", migrations)
    config.set_main_option("path_separator", "newline")
    config.attributes["connection"] = connection
    config.attributes["version_table"] = version_table
    return config


def _take_over(connection: sa.Connection, config: "Config") -> None:
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    tables = sa.inspect(connection).get_table_names()
    version_table = config.attributes["version_table"]
    if version_table in tables or _FORMER_TABLE not in tables:
        return
    scripts = ScriptDirectory.from_config(config)
    version = connection.scalar(sa.text(f"SELECT version_num FROM {_FORMER_TABLE}"))
    if version not in {script.revision for script in scripts.walk_revisions()}:
        return  # another service's, which was here first
    MigrationContext.configure(connection, opts={"version_table": version_table}).stamp(scripts, version)
    connection.execute(sa.text(f"DROP TABLE {_FORMER_TABLE}"))
