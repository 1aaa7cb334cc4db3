"""The model and the data that both sides of the GPU benchmark train: torch and nothing else."""

import torch
from torch import Tensor, nn

WORDS, LENGTH, WIDTH, HEADS, LAYERS, CLASSES, POOL = 1024, 128, 384, 6, 6, 10, 4096
BATCH, LEARNING_RATE, SEED = 512, 0.01, 7


class Encoder(nn.Module):
    """A transformer of 11 million parameters that sorts sequences into classes."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.classes = nn.Linear(WIDTH, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        """Logits [n, classes] of sequences [n, length]."""
        logits: Tensor = self.classes(self.layers(self.words(words) + self.places).mean(1))
        return logits


def make_model() -> nn.Module:
    """On the CPU."""
    return Encoder()


def make_pool() -> tuple[Tensor, Tensor]:
    """Inputs int64 [4096, 128] and targets [4096]; sample i of a longer set is i modulo 4096."""
    chance = torch.Generator().manual_seed(SEED)
    inputs = torch.randint(WORDS, (POOL, LENGTH), generator=chance)
    return inputs, torch.randint(CLASSES, (POOL,), generator=chance)
