"""What to do when a commit's answer was lost: ask the database until it says whether the commit was made."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from peerloom.errors import PeerloomError
from peerloom.kit.backoff import Backoff
from peerloom.kit.database_errors import OUTCOME_UNKNOWN
from peerloom.kit.lease_rules import LEASE_LOST
from peerloom.kit.logs import get_logger

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.0
_log = get_logger()


def is_in_doubt(error: Exception) -> bool:
    """Whether a write that raised this may have been made all the same."""
    return isinstance(error, PeerloomError) and error.reason == OUTCOME_UNKNOWN


async def ask_until_known(
    run_sql: Callable[..., Awaitable[Any]], ask: Callable[..., Any], *arguments: object
) -> Any:
    """What a store's method `ask`, which settles first, answers once the database does, however late.

    Raises UnavailableError (LEASE_LOST) when this process writes no more.
    """
    backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
    while True:
        try:
            return await run_sql(ask, *arguments)
        except PeerloomError as error:
            if error.reason == LEASE_LOST:
                raise
            _log.warning("outcome_still_unknown", reason=error.message)
        await asyncio.sleep(backoff.next_pause_s())
