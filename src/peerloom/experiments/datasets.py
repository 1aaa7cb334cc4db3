"""Training data for the workloads: the user's own files, or generated ones in the official formats.

Generated samples are noise with random labels. A step costs the same on them, and nothing can be learnt from
them: they are for timing only, and every result says which kind it was made with.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from peerloom.experiments.workloads import WORKLOADS

_TEST_SHARE = 0.1
_IDX_BYTES = {1: 0x0801, 3: 0x0803}
_CIFAR_TRAIN_FILES = 5


@dataclass(frozen=True)
class Data:
    """A folder that a task can read; `kind` is "real" or "generated", `samples` the training samples (None:
    the user's, uncounted).
    """

    folder: Path
    kind: str
    samples: int | None

    def note(self) -> str:
        """A sentence for the report."""
        if self.kind == "real":
            return f"the user's files in {self.folder.name}"
        return f"{self.samples:,} generated samples: for timing only"


def provide(workload: str, data: Mapping[str, Path], scale: float, seed: int, folder: Path) -> Data:
    """The user's folder for the workload, or generated files in `folder`/WORKLOAD.

    `scale` times the official number of training samples are generated, 100 at least, repeatably by `seed`.
    """
    if workload in data:
        return Data(data[workload].expanduser().absolute(), "real", None)
    samples = max(100, round(WORKLOADS[workload].train_samples * scale))
    target = folder / workload
    target.mkdir(parents=True, exist_ok=True)
    _WRITERS[workload](target, samples, np.random.default_rng(seed))
    return Data(target, "generated", samples)


def write_mnist(folder: Path, samples: int, rng: np.random.Generator) -> None:
    """MNIST's four IDX files with so many training samples and a tenth as many for the test."""
    for part, count in (("train", samples), ("t10k", _test_samples(samples))):
        images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = rng.integers(0, 10, count, dtype=np.uint8)
        _write_idx(folder / f"{part}-images-idx3-ubyte", images)
        _write_idx(folder / f"{part}-labels-idx1-ubyte", labels)


def write_cifar10(folder: Path, samples: int, rng: np.random.Generator) -> None:
    """CIFAR-10's six binary files with so many training samples and a tenth as many for the test."""
    for number, part in enumerate(np.array_split(np.arange(samples), _CIFAR_TRAIN_FILES), start=1):
        _write_records(folder / f"data_batch_{number}.bin", len(part), rng)
    _write_records(folder / "test_batch.bin", _test_samples(samples), rng)


def _test_samples(samples: int) -> int:
    return max(10, round(samples * _TEST_SHARE))


def _write_idx(path: Path, values: npt.NDArray[np.uint8]) -> None:
    header = struct.pack(f">I{values.ndim}I", _IDX_BYTES[values.ndim], *values.shape)
    path.write_bytes(header + values.tobytes())


def _write_records(path: Path, count: int, rng: np.random.Generator) -> None:
    records = rng.integers(0, 256, (count, 3073), dtype=np.uint8)
    records[:, 0] = rng.integers(0, 10, count, dtype=np.uint8)
    records.tofile(path)


_WRITERS: Mapping[str, Callable[[Path, int, np.random.Generator], None]] = {
    "mnist": write_mnist,
    "cifar10": write_cifar10,
}
