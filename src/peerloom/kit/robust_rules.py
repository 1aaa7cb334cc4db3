"""The words of a job's `robust`: what makes one gradient of those of its workers."""

from peerloom.errors import InvalidArgumentError, nearest

OFF, AUTO = "off", "auto"
TRIMMED_MEAN, MEDIAN, KRUM, CENTRED_CLIPPING = "trimmed-mean", "median", "krum", "centred-clipping"
ROBUST_RULES = (OFF, AUTO, TRIMMED_MEAN, MEDIAN, KRUM, CENTRED_CLIPPING)


def check_robust(field: str, word: str) -> None:
    """Raises InvalidArgumentError with the words that there are and the nearest one."""
    if word not in ROBUST_RULES:
        near = nearest(word, ROBUST_RULES)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise InvalidArgumentError.of_field(field, word, f"one of {', '.join(ROBUST_RULES)}{hint}")
