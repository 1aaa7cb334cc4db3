"""Handwritten digits of 28x28 pixels from MNIST's four official IDX files (LeCun, Cortes, Burges, 1998)."""

from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import nn

from peerloom.errors import DataLossError, InvalidArgumentError, NotFoundError
from peerloom.worker.task import Split, Task
from peerloom.worker.tasks.built_in import BUILT_IN
from peerloom.worker.tasks.idx import find_file, read_images, read_labels
from peerloom.worker.tasks.images import data_folder, image_input, image_split, stratified

# Of the 60,000 training images' pixels, scaled to 0 to 1; known of this set everywhere.
MEAN = (0.1307,)
DEVIATION = (0.3081,)

_ENTRY = BUILT_IN["mnist"]
_Samples = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]


class Mnist(Task):
    """10 classes of 28x28 pixels.

    `data` is the folder of the files train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte
    and t10k-labels-idx1-ubyte, each plain or with .gz, also with a dot before "idx". `test_fraction`, above 0
    and below 1, is for a folder that has only the t10k files: that part of them is tested on and the rest
    trained on, split by class. The result isn't comparable with one on the whole set.
    """

    epochs = _ENTRY.epochs
    batch_size = _ENTRY.batch_size
    learning_rate = _ENTRY.learning_rate
    raw_input = image_input((1, 28, 28), MEAN, DEVIATION, "0123456789")

    def __init__(self, data: str, test_fraction: str = "") -> None:
        self._data = data
        self.test_fraction = _fraction(test_fraction) if test_fraction else None

    @cached_property
    def folder(self) -> Path:
        """Looked for when it is read: a node that only answers with the model needs no data."""
        return data_folder(self._data)

    def model(self) -> nn.Module:
        """A CNN of 50,914 parameters: two convolutions, each halved by pooling, and two linear layers."""
        return nn.Sequential(
            nn.Conv2d(1, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(512, 72),
            nn.ReLU(),
            nn.Linear(72, 10),
        )

    def data(self) -> tuple[Split, Split]:
        """Inputs [n, 1, 28, 28] as bytes, and labels [n].

        Raises NotFoundError, DataLossError or FailedPreconditionError naming the file, and
        InvalidArgumentError for a test_fraction that can't be used.
        """
        if self.test_fraction is not None:
            return self._divided(self.test_fraction)
        try:
            train = self._read("train")
        except NotFoundError as error:
            hint = "A folder with only the t10k files can be used with the argument test_fraction, e.g. 0.1."
            raise NotFoundError(
                f"{error.message} {hint}", reason=error.reason, metadata=error.metadata
            ) from error
        return image_split(*train), image_split(*self._read("t10k"))

    def _divided(self, fraction: float) -> tuple[Split, Split]:
        if _has_training_files(self.folder):
            raise InvalidArgumentError(
                f"test_fraction is for a folder without training files, but {self.folder} has them: "
                "leave it out."
            )
        images, labels = self._read("t10k")
        test_count = round(len(labels) * fraction)
        if not 0 < test_count < len(labels):
            limit = f"a part of {len(labels)} samples that leaves at least one on both sides"
            raise InvalidArgumentError.of_field("test_fraction", fraction, limit)
        train, test = stratified(labels, test_count)
        return image_split(images[train], labels[train]), image_split(images[test], labels[test])

    def _read(self, part: str) -> _Samples:
        images_path = find_file(self.folder, _names(part, "images", 3))
        labels_path = find_file(self.folder, _names(part, "labels", 1))
        images, labels = read_images(images_path, 28, 28), read_labels(labels_path, 10)
        if len(images) != len(labels):
            found = f"{images_path} holds {len(images)} images, but {labels_path} {len(labels)} labels"
            raise DataLossError(f"{found}: these files don't belong together.")
        return images[:, None], labels


def _names(part: str, kind: str, dimensions: int) -> tuple[str, str]:
    return f"{part}-{kind}-idx{dimensions}-ubyte", f"{part}-{kind}.idx{dimensions}-ubyte"


def _has_training_files(folder: Path) -> bool:
    try:
        find_file(folder, _names("train", "images", 3))
    except NotFoundError:
        return False
    return True


def _fraction(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise InvalidArgumentError.of_field("test_fraction", text, "a number above 0 and below 1")
    return value
