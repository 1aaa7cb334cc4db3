"""What a notebook shows of values and lists of them: whole, and with nobody's words as markup."""

from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peerloom import (
    Belief,
    Job,
    JobResult,
    JobSpec,
    Model,
    Node,
    NodeAnswer,
    Policy,
    ServiceEndpoint,
    Session,
    Worker,
)
from peerloom.client.notebook.html_tables import COLUMNS
from peerloom.client.types import Progress
from peerloom.client.types.shown import Listing
from peerloom.kit.printable import escaped

TIME = datetime(2026, 3, 1, 12, tzinfo=UTC)
TAGS = {"table", "thead", "tbody", "tr", "th", "td", "p"}


class Reading(HTMLParser):
    """What a browser would make of it: elements with their attributes, and the text of each cell."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.cells = list[str](), set[str](), list[str]()
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data


def node(name: str = "anna", **others: Any) -> Node:
    known = {"state": "alive", "reason": "", "labels": {}, **others}
    return Node(
        "node-1", name, "127.0.0.1:1", slots=2, free_slots=1, accelerators=(), speed=None, draining=False,
        incarnation=1, registered_time=TIME, last_seen_time=TIME, online_s=75.0, **known,
    )  # fmt: skip


def job(text: str = "x") -> Job:
    answer = NodeAnswer("node-1", text, "127.0.0.1:1", 2, 1.5, text, 1, text, 0.1)
    worker = Worker("worker-1", "node-1", text, 0, True, text)
    progress = Progress(3, None, 1, 2, 0.5, 640.0, 0.75, text)
    spec = JobSpec("digits", name=text, arguments={text: text})
    return Job(
        "job-1", spec, "failed", text, (answer,), (worker,), 1, "gloo", progress, None, TIME, TIME, TIME
    )


def values(text: str = "x") -> list[Any]:
    return [
        node(text, owner=text, reason=text, labels={text: text}),
        Belief("node-1", text, 1.5, None, 3, TIME, None),
        job(text),
        JobResult("job-1", "failed", text, None, None, (), 0.5, text, 1.0, 64, 64.0, 0.1, 0.2, 3, None),
        Model("0" * 64, 1234, text, 2, "job-1", text, 0.75, text, TIME),
        Session("s", "node-1", text, TIME, None, 3.0, False, text),
        ServiceEndpoint("trainer", text, False, text, TIME),
        Policy(text, text, text, True),
        NodeAnswer("node-1", text, text, 2, 1.5, text, 0, text, 0.1),
        Worker("worker-1", "node-1", text, 0, True, text),
    ]


def test_every_type_that_has_columns_is_tried_here() -> None:
    assert {type(value) for value in values()} == set(COLUMNS)


def test_ipython_shows_a_list_as_a_table_and_a_value_by_its_fields() -> None:
    from IPython.core.formatters import HTMLFormatter

    shown = Reading(HTMLFormatter()(Listing([node(), node("bert", state="dead")])))
    assert shown.cells[:4] == ["node", "state", "draining", "free"]
    assert shown.cells[11:15] == ["anna", "alive", "-", "1/2"]
    assert shown.cells[22:24] == ["bert", "dead"]
    single = Reading(HTMLFormatter()(node(reason="Registered.")))
    assert dict(zip(single.cells[::2], single.cells[1::2], strict=True)) == {
        "node": "anna",
        "state": "alive",
        "free": "1/2",
        "online": "75.0 s",
        "address": "127.0.0.1:1",
        "reason": "Registered.",
        "last seen": "2026-03-01 12:00:00 UTC",
    }


def test_a_job_shows_who_was_asked_and_who_works_too() -> None:
    shown = Reading(job("anna")._repr_html_())
    assert shown.tags.count("table") == 3
    assert shown.cells[shown.cells.index("step") :][:2] == ["step", "3/?"]
    assert shown.cells[-4:] == ["0", "worker-1", "anna", "anna"]


@settings(max_examples=40)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_nobody_s_words_are_markup(drawn: str) -> None:
    text = f"x{drawn}"
    for value in values(text):
        for html in (value._repr_html_(), Listing([value])._repr_html_()):
            shown = Reading(html)
            assert set(shown.tags) <= TAGS
            assert shown.attributes <= {"style"}
            assert any(escaped(text, "\t\n") in cell for cell in shown.cells), type(value)


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "&lt;b&gt;"])
def test_what_would_be_markup_is_shown_as_it_was_written(text: str) -> None:
    shown = Reading(node(text)._repr_html_())
    assert shown.cells[1] == text


def test_a_long_list_is_cut_with_the_rest_counted_and_an_empty_one_says_so() -> None:
    html = Listing([node()] * 1205)._repr_html_()
    assert html.count("<tr>") == 201
    assert html.endswith("<p>and 1,005 more</p>")
    assert Listing[Node]()._repr_html_() == "<p>none</p>"


def test_a_listing_is_a_list_in_all_else() -> None:
    listing = Listing([1, 2])
    assert isinstance(listing, list)
    assert (listing, repr(listing), listing[:1]) == ([1, 2], "[1, 2]", [1])
