"""What makes a notebook show values as tables; nothing of it is loaded before one does."""

from typing import TypeVar

T = TypeVar("T")


class ShownInNotebooks:
    """A value that a notebook shows with its fields below each other."""

    def _repr_html_(self) -> str:
        from peerloom.client.notebook.html_tables import html_of

        return html_of(self)


class Listing(list[T]):
    """A list that a notebook shows as a table; else a list as any other."""

    def _repr_html_(self) -> str:
        from peerloom.client.notebook.html_tables import html_of_list

        return html_of_list(self)
