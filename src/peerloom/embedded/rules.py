"""What to do when a child process has ended: start it again, or give up."""

from collections.abc import Sequence
from dataclasses import dataclass

RESTART_LIMIT = 5
RESTART_WINDOW_S = 60.0
FIRST_DELAY_S = 0.1
LONGEST_DELAY_S = 5.0


@dataclass(frozen=True)
class Restart:
    """Start it again after `delay_s` seconds."""

    delay_s: float
    reason: str


@dataclass(frozen=True)
class GiveUp:
    """Stop the whole system: starting it again doesn't help."""

    reason: str


def decide_restart(ends_s: Sequence[float], now_s: float, exit_code: int) -> Restart | GiveUp:
    """Decides after an end; `ends_s` are the times of all ends of this child, the present one included.

    The pause doubles with each end within RESTART_WINDOW_S, from FIRST_DELAY_S to LONGEST_DELAY_S. The end
    that comes after RESTART_LIMIT restarts within the window is the last.
    """
    recent = sum(1 for end_s in ends_s if now_s - end_s < RESTART_WINDOW_S)
    how = describe_exit(exit_code)
    if recent > RESTART_LIMIT:
        return GiveUp(f"it {how}, for the {recent}th time within {RESTART_WINDOW_S:.0f} s")
    delay_s = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** max(0, recent - 1))
    return Restart(delay_s, f"it {how} (end {recent} of {RESTART_LIMIT} allowed in {RESTART_WINDOW_S:.0f} s)")


def describe_exit(exit_code: int) -> str:
    """An exit status in words; negative: the signal that ended it."""
    if exit_code < 0:
        return f"was killed by signal {-exit_code}"
    return f"ended with status {exit_code}"
