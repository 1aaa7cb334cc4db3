"""Aim: what a divided model's layers took is the system's again when they are released."""

import psutil
import pytest
import torch
from stages_in_threads import Waves, training_of

from peerloom.worker.plan import pipeline_training, slot_memory
from peerloom.worker.plan.slot_memory import give_back_large

BYTES, COUNT = 20 * 2**20, 8  # each below the 32 MB up to which glibc learns to keep what is freed


def test_large_blocks_go_back_to_the_system() -> None:
    give_back_large()
    process = psutil.Process()
    before = process.memory_info().rss
    for _ in range(3):
        blocks = [torch.ones(BYTES, dtype=torch.uint8) for _ in range(COUNT)]
        assert process.memory_info().rss - before > BYTES * COUNT // 2
        del blocks
    assert process.memory_info().rss - before < BYTES


@pytest.mark.parametrize(
    ("plan", "left", "gives"), [("pipeline=2", 0, False), ("pipeline=2", -1, True), ("sharded=2", 0, True)]
)
def test_only_shards_and_a_stage_with_little_room_pay_for_it(
    monkeypatch: pytest.MonkeyPatch, plan: str, left: int, gives: bool
) -> None:
    """48 bytes a parameter are enough."""
    calls: list[bool] = []
    monkeypatch.setattr(pipeline_training, "give_back_large", lambda: calls.append(True))
    training = training_of(Waves(), plan)
    free = 48 * training.blueprint.parameters(0) + left
    monkeypatch.setattr(slot_memory, "free_bytes", lambda device: free)
    training.enter(0)
    assert bool(calls) is gives
