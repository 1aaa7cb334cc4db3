"""A question through the page: what was written becomes inputs, and answers are told with their classes."""

import asyncio
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from starlette.requests import Request
from starlette.routing import Route

from peerloom import NotFoundError, RawInput, ResourceExhaustedError
from peerloom.client.types.inference import Inference
from peerloom.dashboard.posted import MOST_BYTES, posted_route
from peerloom.dashboard.questions import AT_ONCE, questions_route, shown, values_of
from peerloom.errors import InvalidArgumentError

PAIR = RawInput((2, 2), "uint8", 0, 9)


def test_a_line_of_numbers_is_an_input_of_the_model_s_shape() -> None:
    assert values_of("1 2,3;4\n\n5 6 7 8.5", PAIR) == [[[1, 2], [3, 4]], [[5, 6], [7, 8.5]]]
    assert values_of("[[1, 2]]", PAIR) == [[1, 2]], "JSON is taken as it is"
    assert values_of("1 2", None) == [[1, 2]]
    assert values_of("To be", RawInput.of_text(64)) == "To be"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 2 3", "how many numbers line 1 has is 3, but must be 4, for an input of 2 x 2"),
        ("1 2 3 x", "something else than numbers"),
        ("[1,", "isn't JSON"),
        ("  ", "Write an input's numbers"),
    ],
)
def test_what_can_t_be_an_input_is_said(text: str, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        values_of(text, PAIR)


def test_an_answer_has_its_classes_the_most_probable_first() -> None:
    answer = Inference(
        outputs=np.array([[0.0, 1.0]]),
        mode="remote",
        reason="",
        nodes=("anna",),
        seconds=0.5,
        labels=("yes",),
        probabilities=np.array([[0.25, 0.75]]),
        classes=("no", "yes"),
    )
    classes = [{"name": "yes", "probability": 0.75}, {"name": "no", "probability": 0.25}]
    assert shown(answer) == {
        "answers": [{"label": "yes", "classes": classes, "outputs": [0.0, 1.0]}],
        "inputs": 1,
        "mode": "remote",
        "nodes": ("anna",),
        "seconds": 0.5,
    }


async def answered(route: Route, body: bytes, **headers: str) -> tuple[int, bytes]:
    """Status and body of what a route answers to a post."""
    given = {"content-type": "application/json", "host": "127.0.0.1:1", **headers}
    pairs = [(name.encode(), value.encode()) for name, value in given.items()]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    scope = {"type": "http", "method": "POST", "path": "/", "headers": pairs}
    answer = await route.endpoint(Request(scope, receive))
    return answer.status_code, bytes(answer.body)


async def test_only_json_of_bounded_size_from_its_own_pages_is_read() -> None:
    async def fail(posted: Mapping[str, Any]) -> dict[str, Any]:
        raise NotFoundError(f"no {posted['what']}")

    route = posted_route("/x", fail)
    assert await answered(route, b'{"what": "node"}') == (404, b'{"error":"no node"}')
    assert (await answered(route, b"[]"))[0] == 400
    assert (await answered(route, b"\xff"))[0] == 400
    assert (await answered(route, b" " * (MOST_BYTES + 1)))[0] == 400
    assert (await answered(route, b"{}", origin="http://127.0.0.1:2"))[0] == 403
    assert (await answered(route, b"{}", origin="null"))[0] == 403
    assert (await answered(route, b"{}", **{"content-type": "text/plain"}))[0] == 400


class SlowClient:
    """A client whose look for a model never ends."""

    def __init__(self) -> None:
        self.asked = asyncio.Semaphore(0)

    async def model(self, _: str) -> None:
        self.asked.release()
        await asyncio.Event().wait()


async def test_more_questions_than_a_few_at_once_are_refused() -> None:
    client = SlowClient()
    route = questions_route(client)  # type: ignore[arg-type]  # it is asked for a model, and no more
    waiting = [asyncio.create_task(answered(route, b'{"model": "digits"}')) for _ in range(AT_ONCE)]
    for _ in waiting:
        await asyncio.wait_for(client.asked.acquire(), 60)
    status, body = await answered(route, b'{"model": "digits"}')
    assert (status, b"ask again in a moment" in body) == (429, True)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


class FullNodes:
    """A client of nodes none of which holds the model alone."""

    def __init__(self) -> None:
        self.modes: list[str] = []

    async def model(self, _: str) -> Any:
        return type("Found", (), {"digest": "d", "raw_input": None})

    async def infer(self, _: str, __: object, mode: str) -> Inference:
        self.modes.append(mode)
        if mode == "remote":
            raise ResourceExhaustedError("too large")
        return Inference(np.array([[1.0]]), "split", "", ("anna", "berta"), 0.1)


async def test_a_model_that_fits_no_node_is_asked_in_parts() -> None:
    client = FullNodes()
    status, _ = await answered(questions_route(client), b'{"model": "m", "text": "1"}')  # type: ignore[arg-type]
    assert (status, client.modes) == (200, ["remote", "split"])
