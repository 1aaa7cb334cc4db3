"""The wall clock that all processes of a database share: its server's, by each process's own monotonic clock.

What one process stores another compares with its own time, once it has taken over. On machines whose clocks
are minutes apart that would make a session minutes longer, or end it before it began.
"""

from peerloom.kit.clock import Clock


class DatabaseClock:
    """Wall times of the database's server, as far as its answers tell; before the first, the machine's own.

    Monotonic times are the machine's. Read and followed from any thread.
    """

    def __init__(self, own: Clock) -> None:
        self._own = own
        self._zero_s: float | None = None  # the server's time when our monotonic clock was 0

    def wall_s(self) -> float:
        """Seconds since 1970; may jump."""
        return self._own.wall_s() if self._zero_s is None else self._zero_s + self._own.monotonic_s()

    def monotonic_s(self) -> float:
        """Seconds since some start of this machine; never goes back."""
        return self._own.monotonic_s()

    def follow(self, server_s: float, asked_s: float, answered_s: float) -> None:
        """The server read `server_s` (since 1970) at some moment between two of our monotonic times."""
        self._zero_s = corrected_s(self._zero_s, server_s - answered_s, server_s - asked_s)


def corrected_s(known_s: float | None, low_s: float, high_s: float) -> float:
    """What is known within what an answer leaves possible, `low_s` to `high_s`; their middle at first.

    So an answer that took long moves nothing that it doesn't prove wrong.
    """
    return (low_s + high_s) / 2 if known_s is None else min(max(known_s, low_s), high_s)
