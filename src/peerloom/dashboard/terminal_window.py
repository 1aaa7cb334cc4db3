"""The window in a terminal: nodes above jobs, and all that happened to one of them on a screen of its own."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.screen import Screen
from textual.widgets import DataTable, Footer, RichLog, Sparkline, Static

from peerloom.client.async_client import AsyncClient
from peerloom.dashboard.board import Board
from peerloom.dashboard.following import SystemFollower, events_section
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
from peerloom.kit.clock import SystemClock
from peerloom.kit.printable import Column

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


class EventsScreen(Screen[None]):
    """What happened to one job or node, the newest at the end; of a job its loss too."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,backspace", "app.pop_screen", "Back")]

    def __init__(self, name: str, head: Callable[[], str], events: Callable[[], list[Any]]) -> None:
        super().__init__()
        self._name, self._head, self._events = name, head, events
        self._lines: list[str] = []

    def compose(self) -> ComposeResult:
        yield Static(id="head", markup=False)
        yield Sparkline(id="loss")
        yield RichLog(wrap=True, markup=False, id="events")
        yield Footer()

    def show(self, losses: Sequence[float]) -> None:
        """Draws what is news; nothing before there is something to draw on."""
        if not self.is_mounted:
            return
        self.query_one("#head", Static).update(f"{self._name}  {self._head()}")
        curve = self.query_one("#loss", Sparkline)
        curve.display = len(losses) > 1
        curve.data = list(losses)
        lines = [event_line(event) for event in self._events()]
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
        self._job = ""

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
            home.query_one("#summary", Static).update(summary_line(nodes, jobs))
            trouble = trouble_lines(section("services"), self.size.width)
            home.query_one("#trouble", Static).update("\n".join(trouble))
            home.query_one("#nodes", PageTable).show(nodes)
            home.query_one("#jobs", PageTable).show(jobs)
            if isinstance(self.screen, EventsScreen):
                page = section(self._job) if self._job else None
                self.screen.show(page["steps"]["loss"] if page and "steps" in page else [])

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter on a row: what happened to that node or job."""
        table = event.data_table
        if not isinstance(table, PageTable) or not table.chosen:
            return
        section, key = self._board.section, table.chosen
        if table.id == "jobs":
            self._job = name = self._look_at(key)
            screen = EventsScreen(
                key, lambda: job_line(section(name) or {}), lambda: section(events_section(key)) or []
            )
        else:
            self._job = ""
            node = next((row for row in section("nodes") if row["id"] == key), None)
            if node is None:
                return
            screen = EventsScreen(
                node["name"],
                lambda: f"{node['state']}: {node['reason']}",
                lambda: [one for one in reversed(section("events")) if one["node"] == node["name"]],
            )
        self.push_screen(screen)
        self.call_after_refresh(self.show)


async def show_in_terminal(connect: Callable[[], AsyncClient]) -> None:
    """Follows the system of a client and shows it until a key ends it."""
    board = Board()
    async with connect() as client:
        follower = SystemFollower(client, board, SystemClock())
        window = TerminalWindow(board, follower.look_at)
        following = asyncio.create_task(follower.run())
        # Without it the window would stand still and look alive.
        following.add_done_callback(lambda _: window.exit())
        try:
            await window.run_async()
        finally:
            board.close()
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
