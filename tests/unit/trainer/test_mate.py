"""What the trainer makes of a worker's word on a generation."""

import pytest

from peerloom.services.trainer.mate import Mate
from peerloom.services.trainer.members import Phase
from peerloom.v1.trainer_pb2 import Worker


@pytest.mark.parametrize(
    ("phase", "left", "is_idle"),
    [
        (Phase.WORKING, 3, True),
        # It was announced generation 3 while it still left 2: it enters 3 next.
        (Phase.WORKING, 2, False),
        (Phase.LEAVING, 3, True),
        # One that was frozen wakes and leaves a generation that is long over.
        (Phase.SILENT, 1, True),
        (Phase.IDLE, 2, True),
    ],
)
def test_leaving_a_generation_leaves_a_worker_idle_unless_it_is_on_its_way_into_the_next(
    phase: Phase, left: int, is_idle: bool
) -> None:
    mate = Mate(Worker(worker_id="worker-1"), phase, None)
    assert mate.is_let_go_by(left, newest=3) is is_idle
