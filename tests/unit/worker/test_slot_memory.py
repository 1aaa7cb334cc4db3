"""Aim: what a divided model's layers took is the system's again when they are released."""

import psutil
import torch

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
