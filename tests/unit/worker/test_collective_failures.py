"""Which errors out of a step mean a lost peer, and which the user's own mistake; in torch's own words."""

import pytest

from peerloom.worker.group.breaking import is_collective_failure


@pytest.mark.parametrize(
    "text",
    [
        "[/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:23427",
        "Unable to cast Application timeout caused pair closure to Tensor",
        "NCCL communicator was aborted on rank 1.",
    ],
)
def test_a_lost_peer_breaks_the_generation(text: str) -> None:
    assert is_collective_failure(RuntimeError(text))


@pytest.mark.parametrize("text", ["shape '[3]' is invalid for input of size 4", "CUDA out of memory"])
def test_a_mistake_of_the_task_s_does_not(text: str) -> None:
    assert not is_collective_failure(RuntimeError(text))
