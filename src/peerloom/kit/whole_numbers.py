"""Whole numbers as a method's text has them. Pure functions."""

from peerloom.errors import InvalidArgumentError


def whole_number(field: str, text: str, form: str, number: str, least: int, most: int) -> int:
    """The `number` in a `text` whose `form` says what it counts. Raises InvalidArgumentError."""
    value = int(number) if number.isascii() and number.isdecimal() and len(number) <= len(str(most)) else -1
    if not least <= value <= most:
        limit = f"{form} with a whole number from {least} to {most}"
        raise InvalidArgumentError.of_field(field, text, limit)
    return value
