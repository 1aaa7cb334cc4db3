"""When to come again to a node that is busy: what it said, drawn out so that a crowd doesn't come at once."""

LONGEST_S = 2.0
_MOST_DOUBLINGS = 16


def pause_s(hint_s: float, refusals: int, chance: float) -> float:
    """Seconds until the next try after `refusals` in a row, the last of which said to come in `hint_s`.

    Never sooner than it said. All who were sent away heard about the same, and it was meant for one: the
    pause doubles with each refusal, up to 2 s or what was said if that is longer, and grows by up to as much
    again by `chance` (0 to 1).
    """
    grown_s = max(hint_s, min(LONGEST_S, hint_s * 2 ** min(refusals - 1, _MOST_DOUBLINGS)))
    return float(grown_s * (1 + chance))
