"""What happened in one simulated history, with virtual times."""

import hashlib
from collections.abc import Callable


class History:
    """A log for people, and a digest over every message for comparing two runs byte for byte."""

    def __init__(self, tells_messages: bool = False) -> None:
        self.clock: Callable[[], float] = lambda: 0.0
        self.lines: list[str] = []
        self.messages = 0
        self._tells_messages = tells_messages
        self._digest = hashlib.sha256()

    def note(self, text: str) -> None:
        """Something worth telling."""
        line = f"{self.clock():10.4f} {text}"
        self._digest.update(line.encode())
        self.lines.append(line)

    def message(self, source: str, target: str, what: str, size: int) -> None:
        """A message of a call was sent or came; told only if asked for, and always in the digest."""
        self.messages += 1
        line = f"{self.clock():.6f} {source} {target} {what} {size}"
        self._digest.update(line.encode())
        if self._tells_messages:
            self.lines.append(f"{self.clock():10.4f}     {source} - {target} {what} {size} bytes")

    @property
    def digest(self) -> str:
        """The same for the same history."""
        return self._digest.hexdigest()
