"""Actions are done for who has the token, and for nobody else."""

import json
from typing import Any

import pytest
from starlette.requests import Request

from peerloom.dashboard.permitted_actions import actions_route


class Client:
    """Notes what was asked of it."""

    def __init__(self) -> None:
        self.done: list[tuple[str, bool]] = []

    async def drain(self, node: str, *, undo: bool = False) -> None:
        self.done.append((node, undo))


@pytest.mark.parametrize(
    ("posted", "status", "words", "done"),
    [
        ({"do": "drain", "what": "anna", "token": "right"}, 200, "anna gets no new work", [("anna", False)]),
        ({"do": "undrain", "what": "anna", "token": "right"}, 200, "takes work again", [("anna", True)]),
        ({"do": "drain", "what": "anna", "token": "wrong"}, 403, "isn't the token", []),
        ({"do": "drain", "what": "anna", "token": "t\u00f6ken"}, 403, "isn't the token", []),
        ({"do": "drain", "what": "anna"}, 403, "isn't the token", []),
        ({"do": "drain", "what": "anna", "token": 7}, 400, "must be text", []),
        ({"do": "remove", "what": "anna", "token": "right"}, 400, "one of drain, undrain, cancel", []),
    ],
)
async def test_an_action(posted: dict[str, Any], status: int, words: str, done: list[Any]) -> None:
    client = Client()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(posted).encode()}

    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", b"application/json")]}
    answer = await actions_route(client, "right").endpoint(Request(scope, receive))  # type: ignore[arg-type]
    assert answer.status_code == status
    assert words in json.loads(answer.body).get("said" if status == 200 else "error")
    assert client.done == done
