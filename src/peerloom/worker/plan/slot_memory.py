"""Memory that is left for a training, and what is given back of it."""

import ctypes

import psutil
import torch

from peerloom.kit.plan_model.plan_setting import STATE_BYTES
from peerloom.sandbox.cgroup_usage import memory_limit

# Times its state: a stage with so much free memory needn't save any, for a shadow's and activations.
ROOMY = 3
_M_MMAP_THRESHOLD, _LARGE_BYTES = -3, 1 << 20  # of glibc's mallopt


def give_back_large() -> None:
    """From now on large tensors' memory goes back to the system when they are gone.

    By itself glibc keeps what was freed for the next one, of up to 32 MB each and for each thread: several
    times what a model in shards holds. Other C libraries have no such setting. It costs time: the system
    fills what it gives with zeros, which made the arithmetic of layers of 2 million parameters half as slow
    again.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def is_tight(parameters: int) -> bool:
    """Whether a stage of so many parameters has too little memory here to keep any that it has freed."""
    return free_bytes(torch.device("cpu")) < ROOMY * STATE_BYTES * parameters


def used_bytes() -> int:
    """Memory of its node that this process uses by itself, not together with that it was forked from."""
    return int(psutil.Process().memory_full_info().uss)


def free_bytes(device: torch.device) -> int:
    """Memory that a training may still take on its accelerator, or else in this process's group and node."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    available = int(psutil.virtual_memory().available)
    limit = memory_limit()
    return available if limit is None else max(0, min(available, limit.limit_bytes - limit.used_bytes))
