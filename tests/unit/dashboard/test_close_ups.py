"""What is asked only while somebody looks: once for all who do, and no longer than the last of them."""

import asyncio
from collections.abc import Sequence
from typing import Any

from peerloom import KeptArtifact, Node, UnavailableError
from peerloom.dashboard.board import Board
from peerloom.dashboard.close_ups import CloseUps
from peerloom.dashboard.listings import artifact_rows


class Artifacts:
    """Artifacts that can't be listed from the second time on."""

    def __init__(self) -> None:
        self.asked = 0

    async def list(self) -> Sequence[KeptArtifact]:
        self.asked += 1
        if self.asked > 1:
            raise UnavailableError("the registry is away")
        return [kept("model", 10)]


class Client:
    """Has artifacts and a registry that answers, and nothing else is asked."""

    def __init__(self) -> None:
        self.artifacts = Artifacts()

    async def nodes(self) -> Sequence[Node]:
        return ()


def kept(kind: Any, size_bytes: int) -> KeptArtifact:
    return KeptArtifact(f"{kind}{size_bytes}", size_bytes, "x", kind, "", "", ("anna",), (), ())


async def section(board: Board) -> Any:
    async with asyncio.timeout(60):
        while not board.section("artifacts"):
            await board.wait_beyond(board.count)
    return board.section("artifacts")


async def test_two_who_look_are_one_question_and_it_ends_with_the_last() -> None:
    board, client = Board(), Client()
    async with asyncio.TaskGroup() as tasks:
        close_ups = CloseUps(client, board, tasks)  # type: ignore[arg-type]  # it has what is asked
        with close_ups.looking("artifacts", "") as names:
            assert names == ["artifacts"]
            with close_ups.looking("artifacts", ""):
                assert [row["digest"] for row in (await section(board))["rows"]] == ["model10"]
                assert client.artifacts.asked == 1
            assert board.section("artifacts") is not None
        assert board.section("artifacts") is None


async def test_a_page_without_more_than_lists_follows_nothing() -> None:
    async with asyncio.TaskGroup() as tasks:
        close_ups = CloseUps(Client(), Board(), tasks)  # type: ignore[arg-type]  # nothing is asked
        with close_ups.looking("events", "") as names:
            assert names == []


def test_models_stand_before_data_and_the_large_before_the_small() -> None:
    rows = artifact_rows([kept("checkpoint", 9), kept("data_set", 5), kept("model", 1), kept("model", 2)])
    assert [row["digest"] for row in rows] == ["model2", "model1", "data_set5", "checkpoint9"]
