"""The board: a page is written once for all who look, and whoever waits hears of the next change."""

import asyncio
import json
from datetime import UTC, datetime

from peerloom.dashboard.board import Board


def test_a_section_is_made_again_only_after_it_was_touched() -> None:
    board, made = Board(), list[int]()

    def make() -> dict[str, object]:
        made.append(1)
        return {"time": datetime(2026, 3, 1, tzinfo=UTC), "number": len(made)}

    board.pin("nodes", make)
    first = board.text("nodes")
    assert first == board.text("nodes") == '{"time":"2026-03-01T00:00:00+00:00","number":1}'
    board.touch("nodes")
    assert json.loads(board.text("nodes") or "")["number"] == 2


def test_a_section_that_nobody_pinned_has_no_text() -> None:
    board = Board()
    board.touch("job:1")
    assert board.text("job:1") is None
    board.pin("job:1", dict)
    board.unpin("job:1")
    assert board.text("job:1") is None


def test_numbers_that_no_browser_reads_are_none() -> None:
    board = Board()
    columns = {"step": (1, 2), "loss": [float("nan"), float("-inf")], "name": "nan", "time": None}
    board.pin("job:1", lambda: [columns, 0.5])
    assert board.text("job:1") == '[{"step":[1,2],"loss":[null,null],"name":"nan","time":null},0.5]'


async def test_who_waits_hears_of_a_change_and_of_the_end() -> None:
    board = Board()
    waiting = asyncio.create_task(board.wait_beyond(board.count))
    await asyncio.sleep(0)
    board.touch("nodes")
    await asyncio.wait_for(waiting, 60)
    waiting = asyncio.create_task(board.wait_beyond(board.count))
    await asyncio.sleep(0)
    board.close()
    await asyncio.wait_for(waiting, 60)


async def test_a_change_before_the_waiting_isn_t_missed() -> None:
    board = Board()
    board.touch("nodes")
    await asyncio.wait_for(board.wait_beyond(0), 60)
