"""The window in a terminal, driven by Textual's own pilot over a board that the test fills."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from terminal_pages import AWAY, TIME, job, node
from textual.pilot import Pilot
from textual.widgets import RichLog, Static

from peerloom.dashboard.board import Board
from peerloom.dashboard.terminal_window import EventsScreen, PageTable, TerminalWindow


class Pages:
    """A board's sections, and which jobs were looked at."""

    def __init__(self, nodes: int = 3) -> None:
        self.board = Board()
        self.asked: list[str] = []
        self.nodes = [node(f"anna-{number:03}") for number in range(nodes)]
        self.jobs = [job("job-1"), job("job-2", state="failed", ended=True)]
        self.happened: list[dict[str, Any]] = [{"time": TIME, "text": "lost [b]a worker\x1b"}]
        self.board.pin("nodes", lambda: self.nodes)
        self.board.pin("jobs", lambda: self.jobs)
        self.board.pin("services", lambda: AWAY)
        suspected = {"time": TIME, "node": "anna-001", "kind": "suspected", "reason": ""}
        self.board.pin("events", lambda: [suspected])

    def look_at(self, job_id: str) -> str:
        self.asked.append(job_id)
        page = {"id": job_id, "state": "failed", "task": "digits", "progress": None}
        self.board.pin(f"job:{job_id}", lambda: {**page, "steps": {"loss": [2.0, 1.0, 0.5]}})
        self.board.pin(f"events:{job_id}", lambda: self.happened)
        return f"job:{job_id}"


@asynccontextmanager
async def window(pages: Pages, width: int = 80, height: int = 24) -> AsyncIterator[Pilot[None]]:
    app = TerminalWindow(pages.board, pages.look_at)
    async with app.run_test(size=(width, height)) as pilot:
        await pilot.pause()
        app.show()
        await pilot.pause()
        yield pilot
        pages.board.close()


def table(pilot: Pilot[None], name: str) -> PageTable:
    return pilot.app.screen_stack[0].query_one(f"#{name}", PageTable)


def redraw(pilot: Pilot[None]) -> None:
    assert isinstance(pilot.app, TerminalWindow)
    pilot.app.show()


@pytest.mark.parametrize("width", [40, 60, 200])
async def test_a_hundred_nodes_fit_any_width_without_scrolling_sideways(width: int) -> None:
    async with window(Pages(nodes=100), width, 20) as pilot:
        for name, rows in (("nodes", 100), ("jobs", 2)):
            shown = table(pilot, name)
            assert shown.row_count == rows
            assert shown.virtual_size.width <= width
        assert table(pilot, "nodes").size.height >= 5


async def test_the_cursor_stays_on_its_node_as_others_come_and_go() -> None:
    pages = Pages()
    async with window(pages) as pilot:
        await pilot.press("down", "down")
        assert table(pilot, "nodes").chosen == "node-anna-002"
        pages.nodes.insert(0, node("aaron"))
        redraw(pilot)
        assert table(pilot, "nodes").chosen == "node-anna-002"
        del pages.nodes[1:]
        redraw(pilot)
        assert table(pilot, "nodes").chosen == "node-aaron"


async def test_tab_and_enter_show_what_happened_to_a_job_and_escape_goes_back() -> None:
    pages = Pages()
    async with window(pages) as pilot:
        await pilot.press("tab", "down", "enter")
        await pilot.pause()
        screen = pilot.app.screen
        assert isinstance(screen, EventsScreen)
        assert pages.asked == ["job-2"]
        assert str(screen.query_one("#head", Static).render()) == "job-2  digits, failed"
        log = screen.query_one("#events", RichLog)
        assert [line.text.split("  ", 1)[1] for line in log.lines] == ["lost [b]a worker\\u001b"]
        pages.happened.append({"time": TIME, "text": "failed: no workers"})
        redraw(pilot)
        assert [line.text.split("  ", 1)[1] for line in log.lines][1:] == ["failed: no workers"]
        await pilot.press("escape")
        assert not isinstance(pilot.app.screen, EventsScreen)


async def test_enter_on_a_node_shows_what_happened_to_it() -> None:
    pages = Pages()
    async with window(pages) as pilot:
        await pilot.press("down", "enter")
        await pilot.pause()
        log = pilot.app.screen.query_one("#events", RichLog)
        assert [line.text.split("  ", 1)[1] for line in log.lines] == ["suspected"]
        head = pilot.app.screen.query_one("#head", Static)
        assert str(head.render()) == "anna-001  alive: Registered for the first time."
        pages.nodes[1] = node("anna-001", state="dead", reason="silent")
        redraw(pilot)
        assert str(head.render()) == "anna-001  dead: silent"
        del pages.nodes[1]
        redraw(pilot)
        assert str(head.render()) == "anna-001  The registry knows it no more."


async def test_words_of_others_are_no_markup_and_a_service_that_is_away_is_said_to_be() -> None:
    pages = Pages()
    pages.nodes = [node("[red]x[/"), node("y\x1b[2J")]
    async with window(pages) as pilot:
        shown = table(pilot, "nodes")
        assert [str(shown.get_row_at(at)[0]) for at in (0, 1)] == ["[red]x[/", "y\\u001b[2J"]
        trouble = str(pilot.app.query_one("#trouble", Static).render())
        assert trouble.startswith("trainer away since ")


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_it_ends_by_its_keys(key: str) -> None:
    async with window(Pages()) as pilot:
        await pilot.press(key)
        assert pilot.app._exit
