"""What the dashboard may change, for who has its token: a node's draining, and the end of a job."""

import hmac
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.routing import Route

from peerloom.client.async_client import AsyncClient
from peerloom.dashboard.posted import posted_route, text_field
from peerloom.errors import InvalidArgumentError, PermissionDeniedError


async def _drain(client: AsyncClient, node: str) -> str:
    await client.drain(node)
    return f"{node} gets no new work."


async def _undrain(client: AsyncClient, node: str) -> str:
    await client.drain(node, undo=True)
    return f"{node} takes work again."


async def _cancel(client: AsyncClient, job_id: str) -> str:
    job = await (await client.job(job_id)).cancel()
    return f"{job.id} is {job.state}."


ACTIONS: Mapping[str, Callable[[AsyncClient, str], Awaitable[str]]] = {
    "drain": _drain,
    "undrain": _undrain,
    "cancel": _cancel,
}


def actions_route(client: AsyncClient, token: str) -> Route:
    """POST /act {"do", "what", "token"}: does it, and answers {"said": what came of it}.

    `do` is "drain" or "undrain" with a node as `what`, or "cancel" with a job.
    """

    async def act(posted: Mapping[str, Any]) -> dict[str, Any]:
        check_token(posted, token)
        do, what = text_field(posted, "do"), text_field(posted, "what")
        if do not in ACTIONS:
            raise InvalidArgumentError.of_field("do", do, f"one of {', '.join(ACTIONS)}")
        return {"said": await ACTIONS[do](client, what)}

    return posted_route("/act", act)


def check_token(posted: Mapping[str, Any], token: str) -> None:
    """Raises PermissionDeniedError unless "token" is this dashboard's."""
    if not hmac.compare_digest(text_field(posted, "token").encode(), token.encode()):
        raise PermissionDeniedError("That isn't the token: the dashboard printed it when it started.")
