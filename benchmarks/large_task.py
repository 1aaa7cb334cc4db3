"""A transformer of 100 million parameters, as a Peerloom task of few and short samples."""

import torch
from torch import Tensor, nn

from peerloom.worker.task import Split, Task

WORDS, LENGTH, WIDTH, HEADS, LAYERS, CLASSES = 2048, 16, 768, 12, 14, 10


class Words(nn.Module):
    """What stands for each word, and where it is."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Parameter(torch.zeros(LENGTH, WIDTH))

    def forward(self, words: Tensor) -> Tensor:
        """[n, length, width] of numbers [n, length]."""
        placed: Tensor = self.words(words) + self.places
        return placed


class Sorted(nn.Module):
    """Logits [n, classes] by the mean over all places."""

    def __init__(self) -> None:
        super().__init__()
        self.classes = nn.Linear(WIDTH, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        """Of [n, length, width]."""
        logits: Tensor = self.classes(inputs.mean(1))
        return logits


class LargeTransformer(Task):
    """Sequences of random words, sorted into random classes."""

    epochs = 1
    batch_size = 16
    learning_rate = 0.01

    def model(self) -> nn.Module:
        """A chain of layers, each with parameters of its own."""
        layers = [
            nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True)
            for _ in range(LAYERS)
        ]
        return nn.Sequential(Words(), *layers, Sorted())

    def data(self) -> tuple[Split, Split]:
        """The same everywhere."""
        return self._split(16 * 8, 1), self._split(8, 2)

    def _split(self, count: int, seed: int) -> Split:
        chance = torch.Generator().manual_seed(seed)
        inputs = torch.randint(WORDS, (count, LENGTH), generator=chance)
        return Split(inputs, torch.randint(CLASSES, (count,), generator=chance))
