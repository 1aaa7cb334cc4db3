"""The web server: files, and one stream of server-sent events for each browser that looks.

No page asks anything of another place: the browser is told to refuse that. The server answers only to names
that are its own, so that no page from elsewhere reads it by a name that was turned to this address.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from peerloom.client.async_client import AsyncClient
from peerloom.dashboard.board import Board
from peerloom.dashboard.following import kept_following
from peerloom.dashboard.log_tails import logs_route
from peerloom.dashboard.own_names import OwnNames
from peerloom.dashboard.permitted_actions import actions_route
from peerloom.dashboard.questions import questions_route
from peerloom.errors import UnavailableError
from peerloom.kit.lifeline import watch_lifeline

STATIC = Path(__file__).parent / "static"
SECTIONS = ("window", "services", "nodes", "events", "jobs", "models", "beliefs", "testbed")
PAUSE_S = 0.25  # between two looks at the board: what changes more often is shown together
SIGN_OF_LIFE_S = 15.0
UNBUFFERED = {"X-Accel-Buffering": "no"}  # nginx, and those that follow it, would keep a stream back
HEADERS = (
    (b"content-security-policy", b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
)


class SafeHeaders:
    """Adds what keeps a browser from asking elsewhere to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        await self._app(scope, receive, send_with)


def web_application(
    board: Board,
    looking: Callable[[str, str], AbstractContextManager[list[str]]],
    base_path: str,
    hosts: Iterable[str],
    posts: Sequence[BaseRoute] = (),
) -> Starlette:
    """The pages below `base_path` ("" or "/x"), for requests that name one of the `hosts`.

    `looking` has the board filled with what one page shows of one item, and names its sections; `posts` are
    what pages may ask beside.
    """

    async def index(_: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    async def stream(request: Request) -> Response:
        page, item = (request.query_params.get(name, "") for name in ("page", "item"))
        changes = _changes(board, looking(page, item))
        return StreamingResponse(changes, media_type="text/event-stream", headers=UNBUFFERED)

    pages: list[BaseRoute] = [
        Route("/", index),
        Route("/stream", stream),
        Mount("/static", StaticFiles(directory=STATIC)),
        *posts,
    ]
    routes: list[BaseRoute] = [Mount(base_path, routes=pages)]
    if base_path:
        routes.insert(0, Route(base_path, lambda _: RedirectResponse(f"{base_path}/")))
    return Starlette(routes=routes, middleware=[Middleware(SafeHeaders), Middleware(OwnNames, hosts=hosts)])


async def _changes(board: Board, looking: AbstractContextManager[list[str]]) -> AsyncGenerator[str, None]:
    """The sections as events, all at first, then those that differ from what was sent."""
    with looking as more:
        async for text in _news(board, [*SECTIONS, *more]):
            yield text


async def _news(board: Board, names: Sequence[str]) -> AsyncGenerator[str, None]:
    sent: dict[str, str] = {}
    while not board.closed:
        count = board.count
        for name in names:
            text = board.text(name)
            if text is not None and text != sent.get(name):
                sent[name] = text
                yield f"event: {name.partition(':')[0]}\ndata: {text}\n\n"
        await asyncio.sleep(PAUSE_S)
        try:
            await asyncio.wait_for(board.wait_beyond(count), SIGN_OF_LIFE_S)
        except TimeoutError:
            yield ": nothing new\n\n"


class WebServer(uvicorn.Server):
    """Ends the streams, which would never end by themselves, when it is told to stop."""

    def __init__(self, config: uvicorn.Config, board: Board) -> None:
        super().__init__(config)
        self._board = board

    def end(self) -> None:
        """Has it stop as soon as it has answered what it was asked."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._board.close()
        await super().shutdown(sockets)


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0: a free one. Raises UnavailableError."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise UnavailableError(
            f"can't listen on {host}:{port} ({error.strerror or error}): another program may hold the port; "
            "choose another with --listen, port 0 takes a free one."
        ) from error


async def serve_window(
    connect: Callable[[], AsyncClient],
    listener: socket.socket,
    base_path: str,
    hosts: Iterable[str],
    token: str = "",
    look_beside: Callable[[], dict[str, Any]] | None = None,
) -> None:
    """Follows the system of a client and shows it until a signal, which is then raised again.

    Who has the `token` may drain nodes, cancel jobs and read their logs; without one nobody may.
    `look_beside` tells, in a thread and once a second, of the network that a testbed emulates, if there is
    one.
    """
    async with kept_following(connect, look_beside) as followed:
        board, client = followed.board, followed.client
        board.pin("window", lambda: {"acts": bool(token)})
        guarded = [actions_route(client, token), logs_route(client, token)] if token else []
        posts = [questions_route(client), *guarded]
        app = web_application(board, followed.follower.close_ups.looking, base_path, hosts, posts)
        config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")
        server = WebServer(config, board)
        followed.task.add_done_callback(lambda _: server.end())
        loop = asyncio.get_running_loop()
        watch_lifeline(lambda: loop.call_soon_threadsafe(server.end))
        await server.serve([listener])
