"""What breaking a group takes: its connected sockets, and which errors tell of a peer that is lost."""

import os
import socket

import torch.distributed as dist

from peerloom.kit.logs import get_logger
from peerloom.worker.mesh.frames import MARK

# What gloo and NCCL say; DDP's hook passes on gloo's bare words, without its name.
_FAILURE_MARKS = (
    *("gloo", "NCCL", "ProcessGroup", "pair closure", MARK),
    *("Connection closed", "Connection reset", "Broken pipe", "Timed out waiting"),
)


_log = get_logger()


def is_collective_failure(error: BaseException) -> bool:
    """Whether an exception out of a training step comes from the network and not from the task's code."""
    text = str(error)
    return isinstance(error, dist.DistError) or any(mark in text for mark in _FAILURE_MARKS)


def leave_world(has_failed: bool) -> None:
    """Ends torch's process group, in which something `has_failed`; another can be formed afterwards.

    NCCL raises where a communicator that a peer's death has failed is destroyed rather than aborted, and the
    job would end with that. A peer may also die while this one leaves in good order.
    """
    if not has_failed:
        try:
            dist.destroy_process_group()
            return
        except RuntimeError as error:
            _log.info("group_aborted", reason=str(error).splitlines()[0])
    dist.distributed_c10d._abort_process_group()


def open_sockets() -> dict[str, int]:
    """Each socket's name in the kernel ("socket:[number]") with its descriptor.

    Descriptors don't tell sockets apart: the last generation's close late, and their numbers come again.
    """
    found = {}
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue  # closed since the listing, as the listing's own descriptor is
        if name.startswith("socket:"):
            found[name] = int(descriptor)
    return found


def shut_down(descriptor: int, spared_ports: set[int]) -> None:
    """Shuts a connected socket down, unless its peer has one of the spared ports; leaves others alone.

    So also those within the machine: a data loader's processes hand over samples by them.
    """
    try:
        # A duplicate: the group may close its own number meanwhile, and the system may give it anew.
        duplicate = socket.socket(fileno=os.dup(descriptor))
    except OSError:
        return
    with duplicate:
        if duplicate.family == socket.AF_UNIX:
            return
        try:
            listens = duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if listens or duplicate.getpeername()[1] in spared_ports:
                return
            duplicate.shutdown(socket.SHUT_RDWR)
        except (OSError, IndexError):
            return
