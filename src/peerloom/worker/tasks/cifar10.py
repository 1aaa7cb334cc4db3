"""Photographs of 32x32 pixels from CIFAR-10's official binary files (Krizhevsky, 2009)."""

from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import nn

from peerloom.errors import DataLossError, FailedPreconditionError, NotFoundError
from peerloom.worker.data_roots import inside
from peerloom.worker.task import Split, Task
from peerloom.worker.tasks.built_in import BUILT_IN
from peerloom.worker.tasks.images import data_folder, image_input, image_split

# Of the 50,000 training images' red, green and blue pixels, scaled to 0 to 1; known of this set everywhere.
MEAN = (0.4914, 0.4822, 0.4465)
DEVIATION = (0.2470, 0.2435, 0.2616)
# In the order of the labels' numbers.
LABELS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

TRAIN_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST_FILES = ("test_batch.bin",)
# A label, then 1,024 bytes each of red, green and blue, row by row.
RECORD_BYTES = 3073

_ENTRY = BUILT_IN["cifar10"]


class Cifar10(Task):
    """10 classes of 32x32 pixels in colour.

    `data` is the folder of data_batch_1.bin to data_batch_5.bin and test_batch.bin, or the one that holds
    it under the name the archive gives it, cifar-10-batches-bin. A file may hold any number of whole records.
    """

    epochs = _ENTRY.epochs
    batch_size = _ENTRY.batch_size
    learning_rate = _ENTRY.learning_rate
    raw_input = image_input((3, 32, 32), MEAN, DEVIATION, LABELS)

    def __init__(self, data: str) -> None:
        self._data = data

    @cached_property
    def folder(self) -> Path:
        """Looked for when it is read: a node that only answers with the model needs no data."""
        folder = data_folder(self._data)
        inner = folder / "cifar-10-batches-bin"
        return inside(folder, inner) if inner.is_dir() else folder

    def model(self) -> nn.Module:
        """A CNN of 62,006 parameters: two convolutions, each halved by pooling, and three linear layers."""
        return nn.Sequential(
            nn.Conv2d(3, 6, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(400, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, 10),
        )

    def data(self) -> tuple[Split, Split]:
        """Inputs [n, 3, 32, 32] as bytes, and labels [n].

        Raises NotFoundError, DataLossError or FailedPreconditionError naming the file.
        """
        missing = [name for name in TRAIN_FILES + TEST_FILES if not (self.folder / name).is_file()]
        if missing:
            raise NotFoundError(
                f"The folder {self.folder} lacks {', '.join(missing)} of CIFAR-10's binary version. "
                "Unpack cifar-10-binary.tar.gz, and name the folder that it makes.",
                reason="DATA_FILE_NOT_FOUND",
                metadata={"folder": str(self.folder), "names": ",".join(missing)},
            )
        return self._read(TRAIN_FILES), self._read(TEST_FILES)

    def _read(self, names: tuple[str, ...]) -> Split:
        records = np.concatenate([read_records(inside(self.folder, self.folder / name)) for name in names])
        return image_split(records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0])


def read_records(path: Path) -> npt.NDArray[np.uint8]:
    """The records [n, 3073] of one binary file, at least one.

    Raises DataLossError for a file that doesn't consist of whole records or has a label above 9,
    FailedPreconditionError when the system doesn't let us read it.
    """
    try:
        values = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise FailedPreconditionError(f"{path} can't be read: {error.strerror or error}.") from error
    if not len(values) or len(values) % RECORD_BYTES:
        expected = f"a multiple of {RECORD_BYTES:,} and not empty (30,730,000 in the official files)"
        raise DataLossError(f"{path} holds {len(values):,} bytes, expected {expected}. Get the file again.")
    records = values.reshape(-1, RECORD_BYTES)
    wrong = np.flatnonzero(records[:, 0] > 9)
    if len(wrong):
        first = f"the first in record {wrong[0]}: {records[wrong[0], 0]}"
        raise DataLossError(f"{path} holds {len(wrong)} labels outside 0 to 9, {first}.")
    return records
