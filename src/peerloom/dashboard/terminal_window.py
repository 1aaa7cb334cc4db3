"""The window in a terminal: nodes above jobs, and all that happened to one of them on a screen of its own."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.screen import Screen
from textual.widgets import DataTable, Footer, RichLog, Sparkline, Static

from peerloom.client.async_client import AsyncClient
from peerloom.dashboard.board import Board
from peerloom.dashboard.close_ups import events_section
from peerloom.dashboard.following import kept_following
from peerloom.dashboard.terminal_rows import (
    GAP,
    JOB_COLUMNS,
    NODE_COLUMNS,
    TROUBLED,
    TerminalTable,
    event_line,
    job_line,
    summary_line,
    table_within,
    trouble_lines,
)
from peerloom.kit.printable import Column, escaped

PAUSE_S = 0.25  # between two looks at the board: what changes more often is shown together
_SCROLLBAR = 2


class PageTable(DataTable[Text]):
    """A table of one of the board's sections, which keeps its cursor on the same row as rows come and go."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", "What happened")]

    def __init__(self, id: str, columns: Sequence[Column]) -> None:
        super().__init__(id=id, cursor_type="row", cell_padding=GAP // 2)
        self._all, self._shown = columns, TerminalTable((), (), (), ())

    def show(self, rows: Sequence[Any]) -> None:
        """Draws the rows in the present width."""
        room = self.app.size.width - _SCROLLBAR - GAP
        table = table_within(self._all, rows, room)
        if table == self._shown:
            return
        key, top = self.chosen, self.scroll_y
        self._shown = table
        self.clear(columns=True)
        for column, width in zip(table.columns, table.widths, strict=True):
            self.add_column(Text(column.head, justify="right" if column.right else "left"), width=width)
        for row in table.rows:
            style = "red" if TROUBLED.intersection(row) else ""
            self.add_row(
                *(
                    Text(cell, style, justify="right" if column.right else "left")
                    for column, cell in zip(table.columns, row, strict=True)
                )
            )
        if key in table.keys:
            self.cursor_coordinate = Coordinate(table.keys.index(key), 0)
        self.scroll_to(y=top, animate=False)

    @property
    def chosen(self) -> str:
        """The id of the row under the cursor, empty without one."""
        return self._shown.keys[self.cursor_row] if self.cursor_row < len(self._shown.keys) else ""


@dataclass(frozen=True)
class Happened:
    """What there is to show of one job or node: its head, its events, oldest first, and a job's losses."""

    head: str
    events: Sequence[Mapping[str, Any]]
    losses: Sequence[float] = ()


class EventsScreen(Screen[None]):
    """What happened to one job or node, the newest at the end; of a job its loss too."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,backspace", "app.pop_screen", "Back")]

    def __init__(self, name: str, look: Callable[[], Happened]) -> None:
        super().__init__()
        self._name, self._look = name, look
        self._lines: list[str] = []

    def compose(self) -> ComposeResult:
        yield Static(id="head", markup=False)
        yield Sparkline(id="loss")
        yield RichLog(wrap=True, markup=False, id="events")
        yield Footer()

    def show(self) -> None:
        """Draws what is news; nothing before there is something to draw on."""
        if not self.is_mounted:
            return
        happened = self._look()
        self.query_one("#head", Static).update(f"{self._name}  {happened.head}")
        curve = self.query_one("#loss", Sparkline)
        curve.display = len(happened.losses) > 1
        curve.data = list(happened.losses)
        lines = [event_line(event) for event in happened.events]
        if lines != self._lines:
            log = self.query_one("#events", RichLog)
            if lines[: len(self._lines)] != self._lines:  # the oldest were forgotten
                log.clear()
                self._lines = []
            for line in lines[len(self._lines) :]:
                log.write(line)
            self._lines = lines


class TerminalWindow(App[None]):
    """Shows a board; `look_at` has it filled with a job and gives the section's name."""

    TITLE = "Peerloom"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("tab", "app.focus_next", "Nodes, jobs"),
    ]
    CSS = """
    #summary, #head { height: auto; text-style: bold; }
    #trouble { height: auto; color: $error; }
    #nodes, #jobs { height: 1fr; }
    #loss { height: 3; }
    """

    def __init__(self, board: Board, look_at: Callable[[str], str]) -> None:
        super().__init__()
        self._board, self._look_at = board, look_at

    def compose(self) -> ComposeResult:
        yield Static(id="summary", markup=False)
        yield Static(id="trouble", markup=False)
        yield PageTable("nodes", NODE_COLUMNS)
        yield PageTable("jobs", JOB_COLUMNS)
        yield Footer()

    def on_mount(self) -> None:
        """Begins to show what changes."""
        self.run_worker(self._keep_showing(), exit_on_error=True)

    def on_resize(self) -> None:
        """Other columns may fit."""
        self.call_later(self.show)

    async def _keep_showing(self) -> None:
        while not self._board.closed:
            count = self._board.count
            self.show()
            await asyncio.sleep(PAUSE_S)
            await self._board.wait_beyond(count)

    def show(self) -> None:
        """Draws the board as it is now."""
        home, section = self.screen_stack[0], self._board.section
        nodes, jobs = section("nodes"), section("jobs")
        with self.batch_update():
            home.query_one("#summary", Static).update(summary_line(section))
            trouble = trouble_lines(section("services"), self.size.width)
            home.query_one("#trouble", Static).update("\n".join(trouble))
            home.query_one("#nodes", PageTable).show(nodes)
            home.query_one("#jobs", PageTable).show(jobs)
            if isinstance(self.screen, EventsScreen):
                self.screen.show()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter on a row: what happened to that node or job."""
        table = event.data_table
        if not isinstance(table, PageTable) or not table.chosen:
            return
        key = table.chosen
        if table.id == "jobs":
            section = self._look_at(key)
            screen = EventsScreen(key, lambda: self._of_job(section, key))
        else:
            node = self._node(key)
            if node is None:
                return
            screen = EventsScreen(node["name"], lambda: self._of_node(key, node["name"]))
        self.push_screen(screen)
        self.call_after_refresh(self.show)

    def _of_job(self, section: str, job_id: str) -> Happened:
        page = self._board.section(section) or {}
        losses = page["steps"]["loss"] if "steps" in page else ()
        return Happened(job_line(page), self._board.section(events_section(job_id)) or (), losses)

    def _of_node(self, node_id: str, name: str) -> Happened:
        """As it is now, and not as it was when it was chosen."""
        node = self._node(node_id)
        events = [one for one in reversed(self._board.section("events")) if one["node"] == name]
        head = f"{node['state']}: {node['reason']}" if node else "The registry knows it no more."
        return Happened(escaped(head, ""), events)

    def _node(self, node_id: str) -> Mapping[str, Any] | None:
        return next((row for row in self._board.section("nodes") if row["id"] == node_id), None)


async def show_in_terminal(connect: Callable[[], AsyncClient]) -> None:
    """Follows the system of a client and shows it until a key ends it."""
    async with kept_following(connect) as followed:
        window = TerminalWindow(followed.board, followed.follower.close_ups.look_at)
        followed.task.add_done_callback(lambda _: window.exit())
        await window.run_async()
