"""Whole numbers as a method's text has them. Pure functions."""

from peerloom.errors import InvalidArgumentError


def whole_number(field: str, text: str, form: str, number: str, least: int, most: int) -> int:
    """The `number` in a `text` whose `form` says what it counts. Raises InvalidArgumentError."""
    value = as_whole(number, len(str(most)))
    if not least <= value <= most:
        limit = f"{form} with a whole number from {least} to {most}"
        raise InvalidArgumentError.of_field(field, text, limit)
    return value


def as_whole(text: str, most_digits: int = 9) -> int:
    """The whole number that a text is, of at most so many digits; -1 for any other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= most_digits else -1
