"""The ends of what a job's workers printed, for those who have the token: logs may hold what is secret."""

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

from starlette.routing import Route

from peerloom.client.async_client import AsyncClient
from peerloom.client.types import LogLine
from peerloom.dashboard.permitted_actions import check_token
from peerloom.dashboard.posted import posted_route, text_field
from peerloom.kit.printable import escaped

LINES_EACH, WORKERS_SHOWN = 100, 32
LINE_LIMIT = 400  # characters of one line: a page isn't where a tensor is read
LIMIT_S = 15.0  # a node that hangs must not keep back what the others told


def logs_route(client: AsyncClient, token: str) -> Route:
    """POST /logs {"what": a job's id, "token"}: {"tails": one a worker, "more": whether some are left out}.

    A tail has "node", "worker" and "lines": at most 100, of at most 400 characters, the newest last. There
    are at most 32, of the workers that were told of first.
    """

    async def read(posted: Mapping[str, Any]) -> dict[str, Any]:
        check_token(posted, token)
        return await _tails(client, text_field(posted, "what"))

    return posted_route("/logs", read)


async def _tails(client: AsyncClient, job_id: str) -> dict[str, Any]:
    found: dict[tuple[str, str], deque[str]] = {}
    more = False
    job = await client.job(job_id)
    try:
        async with asyncio.timeout(LIMIT_S), aclosing(job.logs(tail=LINES_EACH)) as lines:
            async for line in lines:
                key = line.node_name, line.worker_id
                if key in found or len(found) < WORKERS_SHOWN:
                    found.setdefault(key, deque(maxlen=LINES_EACH)).append(shown_line(line))
                else:
                    more = True
    except TimeoutError:
        more = True
    tails = [{"node": node, "worker": worker, "lines": [*kept]} for (node, worker), kept in found.items()]
    return {"tails": tails, "more": more}


def shown_line(line: LogLine) -> str:
    """Its text behind the rank of a script's process, cut to the limit; control characters as escapes."""
    rank = "" if line.rank is None else f"[{line.rank}] "
    text = escaped(rank + line.line[: LINE_LIMIT + 1], "\t")
    return text if len(text) <= LINE_LIMIT else text[: LINE_LIMIT - 1] + "…"
