"""Memory that is left for a training."""

import psutil
import torch

from peerloom.sandbox.cgroup_usage import memory_limit


def free_bytes(device: torch.device) -> int:
    """Memory that a training may still take on its accelerator, or else in this process's group and node."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    available = int(psutil.virtual_memory().available)
    limit = memory_limit()
    return available if limit is None else max(0, min(available, limit.limit_bytes - limit.used_bytes))
