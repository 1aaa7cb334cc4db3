"""A process leaves a group that a peer's death has failed, and can form the next one."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from peerloom.worker.group.breaking import leave_world


@pytest.fixture
def alone() -> Iterator[None]:
    """No process group before, and none left."""
    assert not dist.is_initialized()
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def form_alone() -> None:
    dist.init_process_group(
        "gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=10)
    )


def sums_up() -> bool:
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    return tensor.tolist() == [1, 1]


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("has_failed", [False, True])
def test_another_group_can_be_formed(has_failed: bool) -> None:
    form_alone()
    assert sums_up()
    leave_world(has_failed)
    assert not dist.is_initialized()
    form_alone()
    assert sums_up()


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("alone")
def test_a_peer_that_dies_while_the_group_is_left_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    form_alone()

    def failed(_: object) -> None:
        raise dist.DistBackendError("NCCL error: remote process exited")

    with monkeypatch.context() as patched:
        patched.setattr(dist.ProcessGroup, "shutdown", failed)
        leave_world(has_failed=False)
    assert not dist.is_initialized()
    form_alone()
    assert sums_up()
