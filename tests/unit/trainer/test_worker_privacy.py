"""Workers whose gradients travel by TLS, and those whose don't, never exchange them."""

import pytest

from peerloom.services.trainer.workers.reports import why_not_together
from peerloom.services.trainer.workers.state import Idle, Lost, Starting, WorkerState

SECOND = WorkerState("worker-2", Starting(0.0))


@pytest.mark.parametrize("is_tls", [True, False])
def test_who_comes_first_decides_and_whoever_would_do_otherwise_is_told_what_to_do(is_tls: bool) -> None:
    first = WorkerState("worker-1", Idle(), is_tls=is_tls)
    silent = WorkerState("worker-3", Starting(0.0))
    assert why_not_together(is_tls, SECOND, [first, SECOND, silent]) == ""
    reason = why_not_together(not is_tls, SECOND, [first, SECOND, silent])
    assert "worker-1" in reason
    assert "--plain-collectives" in reason


def test_who_is_lost_or_alone_decides_for_nobody() -> None:
    lost = WorkerState("worker-1", Lost(), is_tls=False)
    again = WorkerState("worker-2", Idle(), is_tls=False)
    assert why_not_together(True, again, [lost, again]) == ""
