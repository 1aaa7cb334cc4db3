"""Measures this machine once at the start, for about a fifth of a second."""

import os
import time
from pathlib import Path

from peerloom.v1.common_pb2 import MachineSpeed

_MATMUL_S = 0.06
_MATMUL_SIZE = 384
_COPY_BYTES = 16 * 1024**2
_COPIES = 3
_DISK_S = 0.05
_DISK_PIECE_BYTES = 1024**2
_DISK_LIMIT_BYTES = 64 * 1024**2


def measure_speed(state: Path, threads: int) -> MachineSpeed:
    """Speeds of one slot's share of the processor, of memory and of the disk below `state`.

    Blocks; run it in a thread. A disk that can't be written has speed 0.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(threads))  # read when numpy loads its library
    return MachineSpeed(
        matmul_gflops=_matmul_gflops(),
        memory_bytes_per_s=_memory_bytes_per_s(),
        disk_bytes_per_s=_disk_bytes_per_s(state / "speed.part"),
    )


def _matmul_gflops() -> float:
    import numpy as np  # a tenth of a second to import, and only needed here

    left = np.ones((_MATMUL_SIZE, _MATMUL_SIZE), np.float32)
    right, result = left.copy(), left.copy()
    best_s, end_s = float("inf"), time.perf_counter() + _MATMUL_S
    while (start_s := time.perf_counter()) < end_s:
        np.matmul(left, right, out=result)
        best_s = min(best_s, time.perf_counter() - start_s)
    return float(2 * _MATMUL_SIZE**3 / best_s / 1e9)


def _memory_bytes_per_s() -> float:
    import numpy as np

    source = np.ones(_COPY_BYTES, np.uint8)
    target = np.zeros_like(source)
    best_s = float("inf")
    for _ in range(_COPIES):
        start_s = time.perf_counter()
        np.copyto(target, source)
        best_s = min(best_s, time.perf_counter() - start_s)
    return _COPY_BYTES / best_s


def _disk_bytes_per_s(path: Path) -> float:
    piece, written_bytes, start_s = os.urandom(_DISK_PIECE_BYTES), 0, time.perf_counter()
    try:
        with path.open("wb", buffering=0) as file:
            while written_bytes < _DISK_LIMIT_BYTES and time.perf_counter() - start_s < _DISK_S:
                written_bytes += file.write(piece)
                os.fdatasync(file.fileno())
        return written_bytes / (time.perf_counter() - start_s)
    except OSError:
        return 0.0
    finally:
        path.unlink(missing_ok=True)
