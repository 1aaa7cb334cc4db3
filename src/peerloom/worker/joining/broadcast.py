"""How the newest state travels: whether all wait for a broadcast of it, and the broadcast itself."""

import math
from dataclasses import dataclass

import torch
import torch.distributed as dist

from peerloom.worker.group.process_group import Group
from peerloom.worker.training_state import TrainingState

SMALL_BYTES = 1 << 20  # soon there whatever the network
PART_OF_A_STEP = 0.5  # that a broadcast may take: opening the group's connections costs time too


@dataclass(frozen=True)
class TransferPlan:
    """Whether newcomers catch up while the others train on, and why."""

    catches_up: bool
    reason: str


def plan_transfer(state_bytes: int, bytes_per_s: float, step_s: float) -> TransferPlan:
    """A broadcast when the state travels in less than half a step, else a catch-up; `step_s` 0: unknown."""
    if state_bytes < SMALL_BYTES:
        return TransferPlan(False, f"the state has only {state_bytes:,} bytes")
    transfer_s = state_bytes / bytes_per_s if bytes_per_s > 0 else math.inf
    takes = f"{state_bytes:,} bytes at {bytes_per_s / 1e6:,.1f} MB/s take {transfer_s:.3f} s"
    if transfer_s <= PART_OF_A_STEP * step_s:
        return TransferPlan(False, f"{takes}, less than half a step of {step_s:.3f} s")
    return TransferPlan(True, f"{takes}, more than half a step of {step_s:.3f} s")


def take_newest_state(state: TrainingState, group: Group, source: int) -> None:
    """All take the state of rank `source`. Raises GenerationBrokenError when the group breaks."""
    try:
        data = state.to_bytes() if group.rank == source else b""
        size = torch.tensor([len(data)], dtype=torch.int64, device=group.device)
        group.wait(dist.broadcast(size, source, async_op=True))
        content = torch.zeros(int(size), dtype=torch.uint8)
        if data:
            content = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        content = content.to(group.device)
        group.wait(dist.broadcast(content, source, async_op=True))
    except RuntimeError as error:
        raise group.broken(error) from error
    group.check()
    if group.rank != source:
        state.from_bytes(content.cpu().numpy().tobytes())
