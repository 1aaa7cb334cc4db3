"""What a terminal shows of the pages: whatever its width, and whatever words are in them."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from terminal_pages import AWAY, GONE, HERE, TIME, job, node, section_of

from peerloom.dashboard.terminal_rows import (
    JOB_COLUMNS,
    NODE_COLUMNS,
    TerminalTable,
    event_line,
    job_line,
    snapshot_lines,
    summary_line,
    table_within,
    trouble_lines,
)
from peerloom.kit.printable import escaped


def heads(table: TerminalTable) -> list[str]:
    return [column.head for column in table.columns]


def test_sixty_columns_show_what_matters_most_and_more_shows_more() -> None:
    nodes, jobs = [node("anna", jobs=["job-0123456789ab"])], [job("job-0123456789ab")]
    assert heads(table_within(NODE_COLUMNS, nodes, 60))[:5] == ["NODE", "STATE", "USED", "BELIEF", "JOBS"]
    assert heads(table_within(JOB_COLUMNS, jobs, 60)) == ["JOB", "STATE", "STEP", "LOSS", "TEST", "TASK"]
    assert heads(table_within(NODE_COLUMNS, nodes, 160)) == [column.head for column in NODE_COLUMNS]


@given(st.lists(st.text(max_size=60), max_size=5), st.integers(4, 200))
def test_a_table_fits_its_room_and_has_a_line_a_row(names: list[str], width: int) -> None:
    nodes = [node(name, owner=name) for name in names]
    section = section_of(nodes=nodes, jobs=[])
    lines = snapshot_lines(section, width)[2:]
    assert len(lines) == (len(names) + 1 if names else 0)
    assert all(cell_len(line) <= width for line in lines)
    assert [escaped(line, "") for line in lines] == lines


def test_a_row_has_its_figures_and_what_is_not_known_is_a_dash() -> None:
    away = node("bert", state="dead", used=None, belief=None, gflops=None, load=None)
    table = table_within(NODE_COLUMNS[:9], [node("anna", jobs=["job-1", "job-2"]), away], 80)
    assert table.rows == (
        ("anna", "alive", "1/2", "1.500", "job-1 +1", "34%", "50%", "-", "40"),
        ("bert", "dead", "-/2", "-", "-", "-", "-", "-", "-"),
    )
    assert table.keys == ("node-anna", "node-bert")
    waiting = job("job-1", state="no_compute", step=None, loss=None, metric=None, samples_per_s=None)
    assert table_within(JOB_COLUMNS[:5], [waiting], 80).rows == (("job-1", "no compute", "-", "-", "-"),)


def test_the_summary_counts_slots_of_those_that_live() -> None:
    nodes = [node("anna"), node("bert"), node("carl", state="dead", used=None)]
    jobs = [job("job-1"), job("job-2", ended=True)]
    assert summary_line(section_of(nodes, jobs)) == (
        "2 of 3 nodes alive, 2 of 4 slots in use, 1 job going on"
    )


def test_the_summary_claims_nothing_of_what_nobody_told() -> None:
    untold = {"address": "127.0.0.1:1", "services": {"registry": HERE, "trainer": {**GONE, "told": False}}}
    silent = [node("anna", used=None)]
    assert summary_line(section_of(silent, [], untold)) == (
        "1 of 1 nodes alive, slots in use unknown, jobs unknown"
    )
    untold["services"] = {"registry": {**GONE, "told": False}, "trainer": HERE}
    assert summary_line(section_of([], [], untold)) == "nodes unknown, 0 jobs going on"


def test_who_is_away_is_named_within_the_width() -> None:
    clock = f"{TIME.astimezone():%H:%M:%S}"
    assert trouble_lines(AWAY, 80) == [
        f"trainer away since {clock} (shown as of {clock}): it can't be reached\\u001b"
    ]
    assert trouble_lines(AWAY, 20) == ["trainer away since…"]


def test_events_and_a_job_s_head_are_one_line_each() -> None:
    clock = f"{TIME.astimezone():%H:%M:%S}"
    assert event_line({"time": TIME, "text": "lost\nanna"}) == f"{clock}  lost\\u000aanna"
    measured = {"time": None, "node": "anna", "kind": "drain_changed", "reason": "by its owner"}
    assert event_line(measured) == "-  drain changed: by its owner"
    progress = {"step": 3, "total_steps": None}
    page: dict[str, Any] = {"task": "digits", "state": "running", "progress": progress}
    assert job_line(page) == "digits, running, step 3 of ?"
    assert job_line({}) == "asking the trainer"
    assert job_line({"trouble": "no such job", "id": "job-1"}) == "no such job"


def test_times_are_those_of_who_looks() -> None:
    midnight = datetime(2026, 1, 1, tzinfo=UTC)
    assert event_line({"time": midnight, "text": "x"}) == f"{midnight.astimezone():%H:%M:%S}  x"
