"""The ends of workers' logs: for who has the token, bounded, and as text whatever they say."""

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from starlette.requests import Request

from peerloom import LogLine
from peerloom.dashboard.log_tails import LINE_LIMIT, LINES_EACH, WORKERS_SHOWN, logs_route, shown_line
from peerloom.errors import NotFoundError


class Client:
    """Knows one job, whose workers printed `lines`."""

    def __init__(self, lines: Sequence[LogLine]) -> None:
        self.lines = lines
        self.asked: list[int] = []

    async def job(self, job_id: str) -> "Client":
        if job_id != "job-1":
            raise NotFoundError.of_name("job", job_id, ["job-1"])
        return self

    async def logs(self, *, follow: bool = False, tail: int = 0) -> AsyncGenerator[LogLine, None]:
        self.asked.append(tail)
        for line in self.lines:
            yield line


async def read(client: Any, what: str = "job-1", token: str = "right") -> tuple[int, dict[str, Any]]:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps({"what": what, "token": token}).encode()}

    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", b"application/json")]}
    answer = await logs_route(client, "right").endpoint(Request(scope, receive))
    return answer.status_code, json.loads(answer.body)


async def test_each_worker_has_its_lines_in_order() -> None:
    lines = [
        LogLine("anna", "w1", "loading"),
        LogLine("berta", "w2", "step 1", rank=1, stream="out"),
        LogLine("anna", "w1", "ready"),
    ]
    assert await read(Client(lines)) == (
        200,
        {
            "tails": [
                {"node": "anna", "worker": "w1", "lines": ["loading", "ready"]},
                {"node": "berta", "worker": "w2", "lines": ["[1] step 1"]},
            ],
            "more": False,
        },
    )


async def test_without_the_token_nothing_is_asked() -> None:
    client = Client([LogLine("anna", "w1", "PASSWORD=secret")])
    status, found = await read(client, token="wrong")
    assert (status, list(found), client.asked) == (403, ["error"], [])


async def test_a_job_that_nobody_knows_is_said_to_be_none() -> None:
    status, found = await read(Client([]), what="job-9")
    assert status == 404
    assert "job-9" in found["error"]


async def test_lines_and_workers_are_bounded() -> None:
    lines = [LogLine("anna", "w0", f"line {number}") for number in range(LINES_EACH + 5)]
    lines += [LogLine("anna", f"w{number}", "hello") for number in range(1, WORKERS_SHOWN + 2)]
    client = Client(lines)
    _, found = await read(client)
    assert client.asked == [LINES_EACH]
    assert found["tails"][0]["lines"][0] == "line 5"
    assert len(found["tails"][0]["lines"]) == LINES_EACH
    assert (len(found["tails"]), found["more"]) == (WORKERS_SHOWN, True)


def test_a_line_is_cut_and_what_can_t_be_seen_is_shown_as_its_escape() -> None:
    assert shown_line(LogLine("a", "w", "red \x1b[31m\tx\u202e")) == "red \\u001b[31m\tx\\u202e"
    long = shown_line(LogLine("a", "w", "x" * 10_000_000))
    assert (len(long), long[-2:]) == (LINE_LIMIT, "x…")
