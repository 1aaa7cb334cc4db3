"""What the store asks of its tables, so that each answer comes by an index however many jobs there were."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from peerloom.kit.limits import ENDED_STATES
from peerloom.services.trainer.tables import job_events, jobs

_FOUND = sa.select(jobs.c.job_id, jobs.c.record, jobs.c.last_sequence)
_HAS_ENDED = jobs.c.state.in_(ENDED_STATES)
_LAST_OF_ASCII = "~"  # greater than whatever an id may have


def jobs_called(job_id: str) -> sa.Select[Any]:
    """The job of exactly this id."""
    return _FOUND.where(jobs.c.job_id == job_id)


def jobs_beginning(connection: sa.Connection, beginning: str) -> sa.Select[Any]:
    """At most two jobs whose ids begin so: more than one is too many."""
    if connection.dialect.name == "sqlite":  # its LIKE looks at every row
        begins = sa.and_(jobs.c.job_id >= beginning, jobs.c.job_id < beginning + _LAST_OF_ASCII)
    else:
        begins = jobs.c.job_id.startswith(beginning, autoescape=True)
    return _FOUND.where(begins).limit(2)


def newest_jobs(states: Sequence[int], limit: int, before: int | None) -> sa.Select[Any]:
    """The `limit` newest jobs, numbered below `before`; with `states`, those in one of them."""
    query = sa.select(jobs.c.number, jobs.c.record).order_by(jobs.c.number.desc())
    if not states:
        return query.where(_is_before(before)).limit(limit)
    # The newest of each state, by its index, and of these the newest: only their records are read.
    of_each = [_newest_numbers(state, limit, before) for state in sorted(set(states))]
    numbers = sa.union_all(*of_each).subquery()
    newest = sa.select(numbers.c.number).order_by(numbers.c.number.desc()).limit(limit).subquery()
    return query.join(newest, newest.c.number == jobs.c.number)


def oldest_kept(ended_jobs: int) -> sa.Select[Any]:
    """The number of the newest ended job but `ended_jobs`: it, and those before it, keep no events."""
    newest = sa.select(jobs.c.number).where(_HAS_ENDED).order_by(jobs.c.number.desc())
    return newest.offset(ended_jobs).limit(1)


def ended_with_events(after: int, through: int, limit: int) -> sa.Select[Any]:
    """At most `limit` ended jobs that have events, the first ones numbered above `after` up to `through`."""
    has_events = sa.exists().where(job_events.c.job_id == jobs.c.job_id)
    query = sa.select(jobs.c.job_id, jobs.c.number).where(_HAS_ENDED, has_events, *_between(after, through))
    return query.order_by(jobs.c.number).limit(limit)


def longer_than(events: int, last: int, after: int, through: int) -> sa.Select[Any]:
    """Of jobs numbered above `after` up to `through` those with more events; up to `last` only what runs."""
    keeps = sa.or_(jobs.c.number > last, sa.not_(_HAS_ENDED))
    spent = sa.exists().where(
        job_events.c.job_id == jobs.c.job_id, job_events.c.sequence <= jobs.c.last_sequence - events
    )
    is_long = jobs.c.last_sequence > events  # most aren't, and their events needn't be looked for
    query = sa.select(jobs.c.job_id, jobs.c.last_sequence)
    return query.where(keeps, is_long, spent, *_between(after, through))


def _between(after: int, through: int) -> tuple[sa.ColumnElement[bool], ...]:
    return jobs.c.number > after, jobs.c.number <= through


def _newest_numbers(state: int, limit: int, before: int | None) -> sa.Select[Any]:
    of_state = sa.select(jobs.c.number).where(jobs.c.state == state, _is_before(before))
    return sa.select(of_state.order_by(jobs.c.number.desc()).limit(limit).subquery())


def _is_before(before: int | None) -> sa.ColumnElement[bool]:
    return sa.true() if before is None else jobs.c.number < before
