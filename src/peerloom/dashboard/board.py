"""The pages as texts: each is written once, however many look, and only when somebody does."""

import asyncio
import json
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any


class Board:
    """Named sections, each made by a function when it is read after it has changed."""

    def __init__(self) -> None:
        self._makers: dict[str, Callable[[], Any]] = {}
        self._versions: dict[str, int] = {}
        self._texts: dict[str, tuple[int, str]] = {}
        self._news = asyncio.Event()
        self.count = 0
        self.closed = False

    def pin(self, name: str, make: Callable[[], Any]) -> None:
        """Adds a section, or replaces it."""
        self._makers[name] = make
        self.touch(name)

    def show(self, name: str, value: Any) -> None:
        """Adds a section with this value, or replaces it."""
        self.pin(name, lambda: value)

    def unpin(self, name: str) -> None:
        """Takes a section away."""
        self._makers.pop(name, None)
        self._versions.pop(name, None)
        self._texts.pop(name, None)

    def touch(self, name: str) -> None:
        """Says that a section may have changed."""
        self.count += 1
        self._versions[name] = self.count
        # Who waits now is woken; who comes later waits for the next change.
        self._news.set()
        self._news = asyncio.Event()

    def text(self, name: str) -> str | None:
        """A section as JSON; None where there is none."""
        if name not in self._makers:
            return None
        version, text = self._texts.get(name, (0, ""))
        if version != self._versions[name]:
            text = as_json(self._makers[name]())
            self._texts[name] = self._versions[name], text
        return text

    def section(self, name: str) -> Any:
        """A section as values; None where there is none."""
        return self._makers[name]() if name in self._makers else None

    async def wait_beyond(self, count: int) -> None:
        """Returns once something has changed since `count`, or the board is closed."""
        while self.count <= count and not self.closed:
            await self._news.wait()

    def close(self) -> None:
        """Lets go of all who wait."""
        self.closed = True
        self._news.set()


def as_json(value: Any) -> str:
    """As browsers read it, which know no numbers that aren't finite: the loss of a training that diverged."""
    try:
        return json.dumps(value, default=_as_text, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), default=_as_text, separators=(",", ":"), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def _as_text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is nothing that a page shows")
