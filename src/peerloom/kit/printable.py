"""Words of strangers, made harmless: what a terminal would obey is shown instead, as its escape.

Names, reasons, log lines and messages come from machines that nobody checked. Control characters move the
cursor, retitle windows and hide text; format characters (bidirectional ones) show it in another order.
"""

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# Controls, formats, halves of pairs, and what ends a line or a paragraph.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


@dataclass(frozen=True)
class Column:
    """A table's column: its head, how a row becomes its text, and whether it holds numbers."""

    head: str
    text: Callable[[Any], str]
    right: bool = False


def escaped(text: str, keep: str = "\t") -> str:
    """The text with \\uXXXX, as JSON writes it, for each character that isn't seen and isn't in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        character if character in keep or unicodedata.category(character) not in _HIDDEN else _code(character)
        for character in text
    )


def _code(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
