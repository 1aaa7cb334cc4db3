"""Words of strangers, made harmless: what a terminal would obey is shown instead, as its escape."""


def printable(text: str) -> str:
    """The text with control characters and the like as escapes; line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(
        one if one in "\n\t" or one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )
