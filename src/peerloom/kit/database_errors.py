"""What a failure of a database means to whoever reads it: which database, what is wrong, what to do next.

PostgreSQL says what failed by a SQLSTATE, but not when a connection is refused; SQLite by its words.
Decisions only.
"""

from dataclasses import dataclass

import sqlalchemy as sa

from peerloom.errors import (
    FailedPreconditionError,
    PeerloomError,
    ResourceExhaustedError,
    UnavailableError,
)

CONNECTIONS = 3  # of a process: its SQL's, its lease's, and one for a standby's look at the system's id
OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
READ_ONLY = "25006"
_WRITABLE = (
    "For PostgreSQL that fails over, name all servers in --database and add target_session_attrs=read-write "
    "to it: docs/postgresql.md"
)


@dataclass(frozen=True)
class _Failure:
    """What a kind of failure is raised as, what is wrong then, and what helps."""

    error: type[PeerloomError]
    reason: str
    wrong: str
    advice: str


_FULL = _Failure(
    ResourceExhaustedError, "STORAGE_FULL", "its disk is full", "Make room and try again. Nothing was changed"
)
_READ_ONLY = _Failure(
    UnavailableError,
    "DATABASE_READ_ONLY",
    "it can only be read, as a standby of PostgreSQL, one with default_transaction_read_only, or a file "
    "without write permission",
    f"Make it writable, or give --database the server that is. {_WRITABLE}",
)
_NO_CONNECTIONS = _Failure(
    UnavailableError,
    "DATABASE_CONNECTIONS",
    "it takes no more connections",
    f"Each process of Peerloom's needs up to {CONNECTIONS}. Raise max_connections (or CONNECTION LIMIT of "
    "the user or database), or end other programs' connections",
)
_NOT_ALLOWED = _Failure(
    UnavailableError,
    "DATABASE_NOT_ALLOWED",
    "its user may not do this",
    "Make the user of --database the owner of the database, or GRANT it what is missing",
)
_AWAY = _Failure(
    UnavailableError,
    "STORAGE_UNAVAILABLE",
    "it can't be reached, or has just ended the connection",
    "Try again: the service connects anew by itself. If it goes on, see whether the database runs there",
)
_FOREIGN = _Failure(
    FailedPreconditionError,
    "DATABASE_OF_ANOTHER",
    "it has a table of a name that Peerloom uses, which isn't Peerloom's, or was changed",
    "Give --database one that is empty, or has only what Peerloom made",
)
_OTHER = _Failure(UnavailableError, "STORAGE_UNAVAILABLE", "it failed", "Try again, and look into its log")

_BY_STATE = {
    "53100": _FULL,
    "53300": _NO_CONNECTIONS,
    READ_ONLY: _READ_ONLY,
    "42501": _NOT_ALLOWED,
    "57P01": _AWAY,
    "57P02": _AWAY,
    "57P03": _AWAY,
    "25P03": _AWAY,
    # Our statements are right for our tables; so the tables aren't ours.
    "42P01": _FOREIGN,
    "42P07": _FOREIGN,
    "42701": _FOREIGN,
    "42703": _FOREIGN,
    "42804": _FOREIGN,
}
_BY_WORDS = (
    ("disk is full", _FULL),
    ("readonly database", _READ_ONLY),
    ("too many clients", _NO_CONNECTIONS),
    ("too many connections", _NO_CONNECTIONS),
    ("remaining connection slots", _NO_CONNECTIONS),
    ("already exists", _FOREIGN),
    ("no such column", _FOREIGN),
    ("no such table", _FOREIGN),
    ("has no column named", _FOREIGN),
    ("connection failed", _AWAY),
)


def place_of(url: sa.URL) -> str:
    """Which database a URL names, and where, without user or password."""
    if url.get_backend_name() == "sqlite":
        return url.database or "in memory"
    named = url.query.get("host", ())
    hosts = [named] if isinstance(named, str) else list(named)
    default = url.port or 5432
    if not hosts:
        hosts = [f"{url.host or 'localhost'}:{default}"]
    at = " or ".join(host if ":" in host else f"{host}:{default}" for host in hosts)
    return f"{url.database or '(none given)'} at {at}"


def words_of(error: BaseException) -> str:
    """What a driver said, in one line."""
    cause = getattr(error, "orig", None) or error
    return " ".join(str(cause).split()).rstrip(".?")


def is_storage_failure(error: sa.exc.DBAPIError) -> bool:
    """Whether the database failed, rather than a statement of ours."""
    if isinstance(error, (sa.exc.IntegrityError, sa.exc.DataError)):
        return False
    is_failing = isinstance(error, (sa.exc.OperationalError, sa.exc.InternalError))
    return is_failing or error.connection_invalidated or _state_of(error) in _BY_STATE


def is_outcome_unknown(error: sa.exc.DBAPIError) -> bool:
    """Whether a commit that raised this may have succeeded: the connection broke before its answer came."""
    state = _state_of(error)
    return error.connection_invalidated and (state is None or state[:2] in ("08", "57"))


def explain(error: sa.exc.DBAPIError, where: str, cannot: str) -> PeerloomError:
    """The failure as our exception; `where` names the database, `cannot` what it can't do now."""
    failure = _failure_of(error)
    said = words_of(error)
    message = f"{where} can't {cannot}: {failure.wrong} ({said}). {failure.advice}."
    return failure.error(message, reason=failure.reason)


def outcome_unknown(where: str, error: sa.exc.DBAPIError) -> UnavailableError:
    """What is raised when a commit's answer was lost."""
    return UnavailableError(
        f"the connection to {where} broke while it was storing this ({words_of(error)}), so it may be stored "
        "or not. Ask again: what has a request id is not done twice.",
        reason=OUTCOME_UNKNOWN,
    )


def is_specific(error: sa.exc.DBAPIError) -> bool:
    """Whether more is known than that the database can't be reached or failed."""
    return _failure_of(error) not in (_AWAY, _OTHER)


def _failure_of(error: sa.exc.DBAPIError) -> _Failure:
    state = _state_of(error)
    if state is not None:
        found = _BY_STATE.get(state)
        return found or (_AWAY if state.startswith("08") else _OTHER)
    text = words_of(error)
    by_words = next((failure for words, failure in _BY_WORDS if words in text), None)
    return by_words or (_AWAY if error.connection_invalidated else _OTHER)


def _state_of(error: sa.exc.DBAPIError) -> str | None:
    state = getattr(error.orig, "sqlstate", None)
    return str(state) if state else None
