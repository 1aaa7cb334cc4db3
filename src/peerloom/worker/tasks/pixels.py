"""Images as bytes in memory, scaled when a batch is taken: a quarter of the memory of 32-bit floats."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from peerloom.worker.task import Split


def image_split(images: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8]) -> Split:
    """Images [n, channels, rows, columns] and labels [n] as tensors: uint8 and int64."""
    return Split(torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64)))


def normalise(images: Tensor, mean: Sequence[float], deviation: Sequence[float]) -> Tensor:
    """Bytes [n, channels, rows, columns] as float32: (byte / 255 - mean) / deviation, by channel."""
    scale = torch.tensor([1 / (255 * each) for each in deviation]).view(-1, 1, 1)
    shift = torch.tensor([-m / d for m, d in zip(mean, deviation, strict=True)]).view(-1, 1, 1)
    return torch.addcmul(shift, images.float(), scale)
