"""Actions as people type them: `leave host-1`, `rate 10Mbps host-2`, `partition a,b c,d`."""

from collections.abc import Sequence

from peerloom.errors import InvalidArgumentError
from peerloom.testbed.plan import Action
from peerloom.testbed.reading import value_of

_WHOLE_LAN = ("rate", "delay")


def action_of(do: str, words: Sequence[str]) -> Action:
    """The action that these words name. Raises InvalidArgumentError for too few, or a wrong value."""
    if do == "heal":
        if words:
            raise InvalidArgumentError(f"'heal' takes nothing, but got {' '.join(words)!r}.")
        return Action(do)
    if do == "partition":
        sets = tuple(tuple(word.split(",")) for word in words)
        if len(sets) < 2:
            raise InvalidArgumentError(
                "'partition' takes two or more sets of hosts, such as: host-1,host-2 host-3."
            )
        return Action(do, sets=sets)
    value = 0.0
    if do in ("loss", "rate", "delay"):
        if not words:
            raise InvalidArgumentError(f"'{do}' takes how much, then hosts.")
        value, words = _value(do, words[0]), words[1:]
    if not words and do not in _WHOLE_LAN:
        raise InvalidArgumentError(f"'{do}' names no host.")
    return Action(do, tuple(words), value)


def _value(do: str, word: str) -> float:
    try:
        value = value_of(do, word)
    except ValueError:
        raise InvalidArgumentError(f"'{do}' takes a number such as 0.05, not {word!r}.") from None
    if do == "loss" and not 0 <= value <= 1:
        raise InvalidArgumentError.of_field("loss", value, "from 0 to 1")
    return value
