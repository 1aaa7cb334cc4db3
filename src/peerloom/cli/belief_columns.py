"""The terms of a belief as columns of a table."""

from peerloom.kit.printable import Column


def _term(head: str, name: str, form: str) -> Column:
    return Column(head, lambda b: format(getattr(b.terms, name), form) if b.terms else "-", right=True)


TERM_COLUMNS = (
    _term("OLD", "score_old", ".4f"),
    _term("SENT", "transmissions", "d"),
    _term("TRAINED", "trainings", "d"),
    _term("DELAY", "delay_s", ".4f"),
    _term("LOST", "interruptions", "d"),
    _term("REFUSED", "unfinished", "d"),
    _term("LIES", "lies", "d"),
    _term("NEW", "score_new", ".4f"),
    _term("TIME", "time_score", ".4f"),
    _term("REDUCE", "score_reduce", ".4f"),
)
