"""What peers say reaches a terminal as text and as nothing else."""

import json

import click
import pytest
import yaml
from click.testing import CliRunner

from peerloom import NodeAnswer, NodeAnswered
from peerloom.cli.escaping import escaped_lines
from peerloom.cli.events import describe
from peerloom.cli.group import RootGroup
from peerloom.cli.output import print_document, print_fields, say, table_lines
from peerloom.errors import UnavailableError
from peerloom.kit.printable import Column, escaped

# Clears the screen, retitles the window, returns to the line's begin, turns the order of letters around.
NASTY = "\x1b[2J\x1b]0;title\x07a\rb\u202exe\u2066\x9b31m\u2028"
SHOWN = r"\u001b[2J\u001b]0;title\u0007a\u000db\u202exe\u2066\u009b31m\u2028"


@pytest.mark.parametrize("text", ["", "plain", "Grüße an 東京, 5 °C", "a\tb", "emoji 🙂"])
def test_what_can_be_seen_stays(text: str) -> None:
    assert escaped(text) == text


def test_what_cannot_be_seen_is_written_out() -> None:
    assert escaped(NASTY) == SHOWN
    assert escaped("a\nb") == r"a\u000ab", "a value makes no lines of its own"
    assert escaped("\U000e0041") == r"\udb40\udc41", "as JSON writes it"


def test_our_own_lines_and_styles_stay() -> None:
    ours = click.style("name", bold=True) + "\n"
    assert escaped_lines(ours) == ours
    assert escaped_lines(ours + "\x1b[31m") == ours + r"\u001b[31m"


def test_tables_and_fields_hold_one_line_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    lines = table_lines([f"evil\nforged {NASTY}"], [Column("NAME", str)])
    assert [click.unstyle(line) for line in lines][1] == rf"evil\u000aforged {SHOWN}"
    print_fields([("reason", f"evil\n{NASTY}")])
    assert capsys.readouterr().out == rf"reason  evil\u000a{SHOWN}" + "\n"


def test_documents_read_back_as_they_were(capsys: pytest.CaptureFixture[str]) -> None:
    for output, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        print_document({"name": NASTY, "other": "Grüße"}, output)
        text = capsys.readouterr().out
        assert escaped_lines(text) == text
        assert read(text) == {"name": NASTY, "other": "Grüße"}


def test_a_jobs_events_are_escaped() -> None:
    answer = NodeAnswer("node-1", "n", "n:1", 1, 1.0, "chosen", 1, NASTY, 0.1)
    assert describe(NodeAnswered(1, "job-1", None, answer)).endswith(SHOWN)


def test_errors_are_escaped() -> None:
    @click.group(cls=RootGroup, table={})
    def root() -> None:
        pass

    @root.command()
    def fail() -> None:
        say(NASTY)
        raise UnavailableError(f"node {NASTY} is away")

    found = CliRunner().invoke(root, ["fail"])
    assert found.output == f"{SHOWN}\nerror: node {SHOWN} is away\n"
