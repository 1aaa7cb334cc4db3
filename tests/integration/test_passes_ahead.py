"""Three real processes begin forward passes while sums still come: the same bits, and no trace of a break.

They are started once and go through all methods, one after the other; the tests look at what they said.
"""

from pathlib import Path
from typing import Any

import pytest
from ahead_member import EPOCHS, RANKS
from member_processes import printed_by_ranks

DEADLINE_S = 100
SCRIPT = Path(__file__).parent / "ahead_member.py"
STEPS_PER_EPOCH = 6
METHODS = [
    *("schedule=cut:1024", "schedule=cut:1024,topology=ps", "schedule=cut:1024,topology=doubling"),
    *("schedule=cut:1024,topology=hierarchy", "schedule=cut:1024,codec=int4"),
    *("schedule=cut:1024,topology=ps,codec=int8,codec_from=1024", "schedule=cut:1024,codec=powersgd:2"),
]
OTHERS = ["schedule=wfbp,topology=direct", "schedule=merged:1024", "schedule=bsp"]
DIES = "schedule=cut:1024,codec=int8"


NOBODY, ALL, ONE = (), tuple(range(RANKS)), (1,)
IN_TURN = list(range(1, EPOCHS * STEPS_PER_EPOCH + 1))
Said = dict[tuple[str, tuple[int, ...]], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Said:
    """What each rank said of each method, by the ranks that waited for all sums; at last by DIES."""
    runs = [(method, waiting) for method in METHODS for waiting in (NOBODY, ALL, ONE)]
    runs += [(method, NOBODY) for method in OTHERS]
    asked = [{"sync": method, "waiting": waiting} for method, waiting in runs]
    folder = tmp_path_factory.mktemp("hub")
    lines, _ = printed_by_ranks(SCRIPT, {"runs": asked, "dies": DIES}, RANKS, folder, DEADLINE_S)
    found = {run: [rank[number] for rank in lines] for number, run in enumerate(runs)}
    return {**found, (DIES, NOBODY): [rank[len(runs)] for rank in lines[:-1]]}


@pytest.mark.parametrize("method", METHODS)
def test_all_come_to_the_bits_of_waiting(said: Said, method: str) -> None:
    made = [one for waiting in (NOBODY, ALL, ONE) for one in said[method, waiting]]
    assert len({one["parameters"] for one in made}) == 1
    assert len({tuple(one["states"]) for one in made}) == 1


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_begins_before_the_one_before_it_is_committed(said: Said, method: str) -> None:
    """But for an epoch's first, and the second of a generation: DDP cuts its buckets anew before that."""
    expected, begun = [], 0
    for epoch in range(EPOCHS):
        for step in range(STEPS_PER_EPOCH):
            is_waited_for = step == STEPS_PER_EPOCH - 1 or (epoch, step) == (0, 0)
            begun += 1
            expected.append(begun if is_waited_for else begun + 1)
    for waiting in (NOBODY, ALL, ONE):
        wanted = [IN_TURN if rank in waiting else expected for rank in range(RANKS)]
        assert [one["begun"] for one in said[method, waiting]] == wanted


@pytest.mark.parametrize("method", OTHERS)
def test_other_schedules_wait_for_all_sums(said: Said, method: str) -> None:
    assert [one["begun"] for one in said[method, NOBODY]] == [IN_TURN] * RANKS


def test_a_break_leaves_the_last_committed_step(said: Said) -> None:
    """Rank 2 ends as it begins its eighth batch: it has made six steps, and sent its part of the seventh.

    Whoever has all sums of the seventh commits it, and who lacks one has nothing of it.
    """
    survivors = said[DIES, NOBODY]
    assert len(survivors) == RANKS - 1
    for one in survivors:
        assert one["broken"]
        assert len(one["states"]) - 1 in (6, 7)
        assert one["left"] == one["states"][-1]
    shorter, longer = sorted((one["states"] for one in survivors), key=len)
    assert longer[: len(shorter)] == shorter
