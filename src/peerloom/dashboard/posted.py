"""What a page of ours may send: JSON, from its own origin, of bounded size; refusals are answered in words.

A page from elsewhere can't send JSON without being allowed to first, which nothing here does; its Origin is
looked at nevertheless.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from peerloom.dashboard.board import as_json
from peerloom.errors import (
    DeadlineError,
    InvalidArgumentError,
    NotFoundError,
    PeerloomError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnavailableError,
)

MOST_BYTES = 4 << 20  # a question with a file; more than that is for the command line
_STATUSES: tuple[tuple[type[PeerloomError], int], ...] = (
    (InvalidArgumentError, 400),
    (PermissionDeniedError, 403),
    (NotFoundError, 404),
    (ResourceExhaustedError, 429),
    (UnavailableError, 503),
    (DeadlineError, 504),
)


def posted_route(path: str, answer: Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]) -> Route:
    """Answers what is posted there, JSON with JSON; a PeerloomError as {"error": its words}."""

    async def respond(request: Request) -> Response:
        try:
            return Response(as_json(await answer(await _posted(request))), media_type="application/json")
        except PeerloomError as error:
            status = next((code for kind, code in _STATUSES if isinstance(error, kind)), 409)
            return JSONResponse({"error": error.message}, status)

    return Route(path, respond, methods=["POST"])


def text_field(posted: Mapping[str, Any], name: str) -> str:
    """A field that is text, "" where there is none. Raises InvalidArgumentError for anything else."""
    value = posted.get(name, "")
    if not isinstance(value, str):
        raise InvalidArgumentError.of_field(name, value, "text")
    return value


async def _posted(request: Request) -> Mapping[str, Any]:
    _check_origin(request)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise InvalidArgumentError(
                f"That is more than {MOST_BYTES:,} bytes: ask with `peerloom infer` instead."
            )
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:  # bytes that are no text, or lists in lists without end
        raise InvalidArgumentError(f"What was posted isn't JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidArgumentError("What was posted isn't a JSON object.")
    return found


def _check_origin(request: Request) -> None:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise InvalidArgumentError("What is posted here has to be application/json.")
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise PermissionDeniedError(
            f"A page of {origin} may not ask this of the dashboard, which is {request.headers.get('host')} "
            "here. If a proxy shows it there, have the proxy pass the browser's Host on."
        )
