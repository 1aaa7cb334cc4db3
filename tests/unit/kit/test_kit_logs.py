"""What a log says of an exception: where in our code it arose, unless nothing there can be at fault."""

import json
from collections.abc import Iterator

import pytest
import structlog

from peerloom.errors import InternalError, UnavailableError
from peerloom.kit.logs import configure_logs, get_logger


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)
    structlog.contextvars.clear_contextvars()


@pytest.mark.parametrize(
    ("error", "is_placed"),
    [(UnavailableError("away"), False), (InternalError("odd"), True), (KeyError("x"), True)],
)
def test_what_is_away_has_no_traceback_and_a_fault_has(
    error: Exception, is_placed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs("registry")
    try:
        raise error
    except Exception as raised:
        get_logger().error("background_task_ended", how=f"failed: {raised}", exc_info=raised)
    told = json.loads(capsys.readouterr().err)
    assert told["how"] == f"failed: {error}"
    assert ("Traceback" in told.get("exception", "")) == is_placed
