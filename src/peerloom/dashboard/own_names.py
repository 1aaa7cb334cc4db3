"""Answers to a server's own names only: pages from elsewhere may turn theirs to our address."""

from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class OwnNames:
    """Refuses requests whose Host is none of the `hosts`, in words that say how a name becomes one."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = frozenset(host.strip("[]").lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = host_of(Headers(scope=scope).get("host", ""))
        if asked in self._hosts:
            await self._app(scope, receive, send)
            return
        refusal = (
            f"This dashboard is not called {asked or 'by an unreadable name'!r}. If browsers should call it "
            "so, as behind a proxy, start it with: peerloom dashboard --host NAME\n"
        )
        await PlainTextResponse(refusal, status_code=400)(scope, receive, send)


def host_of(header: str) -> str:
    """The name in a Host header, in small letters and without the port; "" where it can't be read."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:  # an address of IPv6 without its end
        return ""
