"""What tasks on images share: their folder, the split into training and test part, and pixels.

Images stay bytes in memory, a quarter of 32-bit floats, and are scaled as declared when a batch is taken.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from peerloom.errors import InvalidArgumentError, NotFoundError
from peerloom.kit.raw_input import RawInput, ScaleShift
from peerloom.worker.task import Split

Indices = npt.NDArray[np.int64]


def data_folder(text: str) -> Path:
    """The folder named by the argument `data`.

    Raises InvalidArgumentError for an empty or relative one, as workers have no useful working folder, and
    NotFoundError when this node doesn't have it.
    """
    path = Path(text).expanduser()
    if not path.is_absolute():
        raise InvalidArgumentError.of_field("data", text, "an absolute path of a folder on the nodes")
    if not path.is_dir():
        what = "is a file, not a folder" if path.exists() else "isn't on this node"
        text = f"The folder {path}, given as argument data, {what}."
        raise NotFoundError(text, reason="DATA_FOLDER_NOT_FOUND", metadata={"folder": str(path)})
    return path


def stratified(labels: npt.NDArray[np.integer], test_count: int) -> tuple[Indices, Indices]:
    """Indices of the training and of the `test_count` test samples, both ascending; 1 <= test_count < n.

    The samples are put in the order of their labels and the test part is taken from it at even distances,
    so each class, and each stretch of the original order within a class, gives its share. No random
    numbers: the split is the same with every version of every library.
    """
    order = np.argsort(labels, kind="stable")
    picked = np.arange(test_count, dtype=np.int64) * len(labels) // test_count
    is_test = np.zeros(len(labels), dtype=bool)
    is_test[order[picked]] = True
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)


def image_split(images: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8]) -> Split:
    """Images [n, channels, rows, columns] and labels [n] as tensors: uint8 and int64."""
    return Split(torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64)))


def image_input(
    shape: tuple[int, int, int], mean: Sequence[float], deviation: Sequence[float], labels: Sequence[str]
) -> RawInput:
    """Bytes [channels, rows, columns] that become (byte / 255 - mean) / deviation, by channel."""
    scale = tuple(1 / (255 * each) for each in deviation)
    shift = tuple(-m / d for m, d in zip(mean, deviation, strict=True))
    return RawInput(shape, "uint8", 0, 255, ScaleShift(scale, shift), tuple(labels))
