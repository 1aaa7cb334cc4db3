"""Text of our own on a terminal, with words of peers in it."""

import re

from peerloom.kit.printable import escaped

# What click.style makes of our own words: reset, bold, dim, green and yellow.
_OUR_STYLES = re.compile("(\x1b\\[(?:[012]|3[23])m)")


def escaped_lines(text: str) -> str:
    """The same for text of our own with others' words in it: lines, tabs and our styles stay."""
    parts = _OUR_STYLES.split(text)
    return "".join(part if number % 2 else escaped(part, "\t\n") for number, part in enumerate(parts))
