"""The 1,797 handwritten digits that come with scikit-learn (Alpaydin and Kaynak, 1998; UCI's test part).

The file is read straight from scikit-learn's folder: importing scikit-learn would cost each worker over
a second. Training and test part share writers, as in the usual random split of this set, so the accuracy
tells of new drawings by known hands.
"""

import gzip
import importlib.util
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from peerloom.errors import DataLossError, NotFoundError
from peerloom.kit.raw_input import RawInput, Standardise
from peerloom.worker.task import Split, Task
from peerloom.worker.tasks.built_in import BUILT_IN
from peerloom.worker.tasks.images import stratified

# Of the 1,437 training digits' pixels, scaled to 0 to 1, as this module splits them.
MEAN = 0.3055
DEVIATION = 0.3762

_ENTRY = BUILT_IN["digits"]
_SHAPE = (1797, 65)
_BRIGHTEST = 16
_TEST_COUNT = 360


class Digits(Task):
    """10 classes of 8x8 pixels: 1,437 digits to train on, 360 to test on, 36 of each class or next to it."""

    epochs = _ENTRY.epochs
    batch_size = _ENTRY.batch_size
    learning_rate = _ENTRY.learning_rate
    raw_input = RawInput(
        (1, 8, 8), "uint8", 0, _BRIGHTEST, Standardise((MEAN,), (DEVIATION,), _BRIGHTEST), tuple("0123456789")
    )

    def model(self) -> nn.Module:
        """A CNN of 6,090 parameters: two 3x3 convolutions, each halved by pooling, and one linear layer."""
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(128, 10),
        )

    def data(self) -> tuple[Split, Split]:
        """Inputs [n, 1, 8, 8] as bytes from 0 to 16, and labels [n].

        Raises NotFoundError without scikit-learn, DataLossError when its file isn't what it should be.
        """
        table = read_digits(digits_path())
        train, test = stratified(table[:, -1], _TEST_COUNT)
        return _split(table[train]), _split(table[test])


def digits_path() -> Path:
    """Where scikit-learn keeps the file; NotFoundError says what to install."""
    found = importlib.util.find_spec("sklearn")
    for folder in (found.submodule_search_locations or []) if found else []:
        path = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if path.is_file():
            return path
    raise NotFoundError(
        "The task 'digits' needs the file datasets/data/digits.csv.gz of scikit-learn, which isn't on this "
        "node: install scikit-learn into the node agent's environment (it is part of peerloom[train]).",
        reason="DATA_SET_NOT_FOUND",
    )


def read_digits(path: Path) -> npt.NDArray[np.int64]:
    """The table [1797, 65]: each digit's 64 pixels from 0 to 16 and its label; else DataLossError."""
    try:
        lines = gzip.decompress(path.read_bytes()).decode("ascii").splitlines()
        table = np.loadtxt(lines, delimiter=",", dtype=np.int64, ndmin=2)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise DataLossError(f"{path} can't be read as the table of digits: {error}. {_REINSTALL}") from error
    if table.shape != _SHAPE:
        raise DataLossError(f"{path} holds a table of {table.shape}, expected {_SHAPE}. {_REINSTALL}")
    pixels, labels = table[:, :-1], table[:, -1]
    if pixels.min() < 0 or pixels.max() > _BRIGHTEST or labels.min() < 0 or labels.max() > 9:
        raise DataLossError(f"{path} holds pixels outside 0 to 16 or labels outside 0 to 9. {_REINSTALL}")
    return table


_REINSTALL = "Install scikit-learn again."


def _split(table: npt.NDArray[np.int64]) -> Split:
    inputs = torch.from_numpy(table[:, :-1]).byte()
    return Split(inputs.view(-1, 1, 8, 8), torch.from_numpy(table[:, -1].copy()))
