"""Which errors are want of memory, or of room on a disk: those that are raised, also behind another one."""

import mmap
import threading
from collections.abc import Callable

import pytest
import torch

from peerloom.errors import NotFoundError, ResourceExhaustedError
from peerloom.worker.failures import failure_of, why_unfit

MUCH = 1 << 60
TOO_LITTLE = "its slot has too little memory for this job"


def start_thread() -> None:
    before = threading.stack_size(1 << 46)  # more than there are addresses
    try:
        threading.Thread(target=int).start()
    finally:
        threading.stack_size(before)


@pytest.mark.parametrize(
    "allocate",
    [lambda: torch.empty(MUCH), lambda: bytearray(MUCH), lambda: mmap.mmap(-1, MUCH), start_thread],
)
def test_what_can_not_be_allocated_is_want_of_memory(allocate: Callable[[], object]) -> None:
    with pytest.raises((RuntimeError, MemoryError, OSError)) as raised:
        allocate()
    failed = failure_of(raised.value)
    assert (failed.reason.split(": ")[0], failed.is_permanent) == (TOO_LITTLE, False)
    wrapped = ValueError("the data can't be read")
    wrapped.__cause__ = raised.value
    assert failure_of(wrapped) == failed


def test_what_torch_could_not_have_is_told_in_bytes() -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.empty(MUCH)
    assert why_unfit(raised.value) == f"{TOO_LITTLE}: there are no {4 * MUCH:,} bytes more"


def test_a_gpu_without_room_is_too() -> None:
    said = "CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has 1 GiB."
    told = f"{TOO_LITTLE}: CUDA out of memory. Tried to allocate 2.00 GiB."
    assert why_unfit(torch.OutOfMemoryError(said)) == told


def test_a_full_disk_is_its_nodes_too() -> None:
    with pytest.raises(OSError, match="No space left") as raised, open("/dev/full", "w") as full:
        full.write("a checkpoint")
    failed = failure_of(raised.value)
    assert failed.reason.startswith("its disk has too little room for this job: [Errno 28]")
    assert not failed.is_permanent


def test_so_is_an_agent_without_room_for_an_artifact() -> None:
    said = "25,200 bytes don't fit: the artifact limit of 2,000,000 bytes leaves 9,107."
    failed = failure_of(ResourceExhaustedError(said))
    assert (failed.reason, failed.is_permanent) == (said, False)


def test_other_errors_are_not() -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.ones(2) @ torch.ones(3)
    assert why_unfit(raised.value) == ""
    assert failure_of(raised.value).is_permanent
    refused = failure_of(NotFoundError("There is no file /data."))
    assert (refused.reason, refused.is_permanent) == ("There is no file /data.", True)
