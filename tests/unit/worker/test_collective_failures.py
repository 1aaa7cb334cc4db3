"""Which errors out of a step mean a lost peer, and which the user's own mistake; in torch's own words."""

import os
import socket

import pytest

from peerloom.worker.group.breaking import is_collective_failure, shut_down


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


def test_a_socket_within_the_machine_is_left_alone() -> None:
    """Samples of a data loader's processes come by such ones."""
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(f"\0peerloom-test-{os.getpid()}")
        listener.listen()
        client.connect(listener.getsockname())
        server, _ = listener.accept()
        with server:
            shut_down(client.fileno(), set())
            client.send(b"x")
            assert server.recv(1) == b"x"
