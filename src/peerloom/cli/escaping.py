"""Text from peers on a terminal: what can't be seen, or changes what is seen, is escaped.

Names, reasons, log lines and messages come from machines that nobody checked. Control characters move the
cursor, retitle windows and hide text; format characters (bidirectional ones) show it in another order.
"""

import re
import unicodedata

# Controls, formats, halves of pairs, and what ends a line or a paragraph.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# What click.style makes of our own words: reset, bold, dim, green and yellow.
_OUR_STYLES = re.compile("(\x1b\\[(?:[012]|3[23])m)")


def escaped(text: str, keep: str = "\t") -> str:
    """The text with \\uXXXX, as JSON writes it, for each character that isn't seen and isn't in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        character if character in keep or unicodedata.category(character) not in _HIDDEN else _code(character)
        for character in text
    )


def escaped_lines(text: str) -> str:
    """The same for text of our own with others' words in it: lines, tabs and our styles stay."""
    parts = _OUR_STYLES.split(text)
    return "".join(part if number % 2 else escaped(part, "\t\n") for number, part in enumerate(parts))


def _code(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
