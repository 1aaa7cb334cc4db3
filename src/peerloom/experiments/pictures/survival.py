"""How long nodes stay: survival curves of their sessions by Kaplan and Meier (1958)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from peerloom.client.types import Session
from peerloom.errors import FailedPreconditionError
from peerloom.experiments.pictures.beliefs import time_unit
from peerloom.experiments.pictures.canvas import canvas, label, marks


def survival_curve(sessions: Sequence[tuple[float, bool]]) -> list[tuple[float, float]]:
    """The share of sessions that last longer than a time, as (seconds, share) from (0, 1) on.

    `sessions` are (length in seconds, whether it was interrupted); others, ended with notice or still open,
    are censored: it is known only that they lasted so long. The product-limit estimate of Kaplan and Meier
    (1958).
    """
    curve, share, left = [(0.0, 1.0)], 1.0, len(sessions)
    lengths: dict[float, list[bool]] = defaultdict(list)
    for length_s, interrupted in sessions:
        lengths[length_s].append(interrupted)
    for length_s in sorted(lengths):
        lost = sum(lengths[length_s])
        if lost:
            share *= 1 - lost / left
            curve.append((length_s, share))
        left -= len(lengths[length_s])
    return curve


def draw_survival(sessions: Mapping[str, Sequence[Session]]) -> Any:
    """A curve for each group of sessions. Raises FailedPreconditionError when there are none."""
    told = {name: group for name, group in sessions.items() if group}
    if not told:
        raise FailedPreconditionError(
            "The registry knows no sessions yet. Start a node: peerloom node", reason="NO_SESSIONS"
        )
    longest_s = max(one.online_s for group in told.values() for one in group)
    unit_s, unit = time_unit(longest_s)
    figure, (axis,) = canvas(size=(8.0, 4.0))
    for (name, group), mark in zip(told.items(), marks(len(told)), strict=True):
        curve = survival_curve([(one.online_s, one.interrupted) for one in group])
        last_s = max(one.online_s for one in group)
        x = [length_s / unit_s for length_s, _ in curve] + [last_s / unit_s]
        y = [100 * share for _, share in curve] + [100 * curve[-1][1]]
        lost = sum(one.interrupted for one in group)
        words = f"{name}: {lost} of {len(group)} interrupted"
        axis.step(x, y, where="post", color=mark.colour, ls=mark.dashes, label=words)
        open_x = [one.online_s / unit_s for one in group if not one.interrupted]
        axis.plot(open_x, [_at(curve, u * unit_s) for u in open_x], "|", color=mark.colour, ms=9)
    label(
        axis,
        "Sessions that last (| : left with notice, or still there)",
        f"time online ({unit})",
        "sessions that last longer (%)",
    )
    axis.set_ylim(0, 105)
    axis.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _at(curve: Sequence[tuple[float, float]], length_s: float) -> float:
    return 100 * [share for begin_s, share in curve if begin_s <= length_s][-1]
