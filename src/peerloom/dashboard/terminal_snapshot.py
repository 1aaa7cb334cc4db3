"""What the window in a terminal shows at once, as plain lines: for pipes, and where nothing can be drawn."""

from collections.abc import Callable

from peerloom.client.async_client import AsyncClient
from peerloom.dashboard.board import Board
from peerloom.dashboard.following import SystemFollower
from peerloom.dashboard.terminal_rows import snapshot_lines, trouble_lines
from peerloom.kit.clock import SystemClock


async def take_snapshot(connect: Callable[[], AsyncClient], width: int) -> tuple[list[str], bool]:
    """The lines in a width, and whether all services answered."""
    board = Board()
    async with connect() as client:
        await SystemFollower(client, board, SystemClock()).ask_once()
        return snapshot_lines(board.section, width), not trouble_lines(board.section("services"), width)
