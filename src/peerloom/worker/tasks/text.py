"""A small transformer that learns to continue text byte by byte (after Vaswani et al. 2017; GPT-2, 2019)."""

import importlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from peerloom.errors import InvalidArgumentError, NotFoundError
from peerloom.kit.raw_input import RawInput
from peerloom.worker.data_roots import inside
from peerloom.worker.plan.cut_layers import DividedLinears
from peerloom.worker.task import Split, Task
from peerloom.worker.tasks.built_in import BUILT_IN
from peerloom.worker.tasks.numbers import whole

VOCABULARY = 256
_ENTRY = BUILT_IN["text"]
_TEST_PART = 10  # one window in ten
_LIMIT_BYTES = 64 * 1024 * 1024
_Cache = tuple[Tensor, Tensor]


class Text(Task):
    """Windows of `context` bytes and the bytes that follow them; the last tenth of the text is tested on.

    `data` is a file of text, or a folder whose *.txt files are read in the order of their names, at most
    64 MiB in all. Without it: the language reference that comes with Python. `width` is the length of a
    byte's vector, `depth` the number of blocks, `heads` divides `width`.
    """

    epochs = _ENTRY.epochs
    batch_size = _ENTRY.batch_size
    learning_rate = _ENTRY.learning_rate
    metric_name = "next-byte accuracy"

    def __init__(
        self, data: str = "", context: str = "64", width: str = "64", depth: str = "3", heads: str = "4"
    ) -> None:
        self.path = Path(data).expanduser() if data else None
        self.context = whole("context", context, 2, 4096)
        self.width = whole("width", width, 1, 8192)
        self.depth = whole("depth", depth, 1, 256)
        self.heads = whole("heads", heads, 1, 256)
        if self.width % self.heads:
            raise InvalidArgumentError.of_field("width", self.width, f"a multiple of heads, {self.heads}")
        self.raw_input = RawInput.of_text(self.context)

    def model(self) -> nn.Module:
        """A decoder-only transformer with learned positions and blocks that normalise first."""
        return Transformer(self.context, self.width, self.depth, self.heads)

    def data(self) -> tuple[Split, Split]:
        """Inputs (uint8) and targets (int64) [n, context], each target the byte after its input."""
        text = read_text(self.path)
        count = (len(text) - 1) // self.context
        if count < 2:
            limit = f"at least {2 * self.context + 1} bytes long for a context of {self.context}"
            raise InvalidArgumentError.of_field("data", f"{len(text)} bytes", limit)
        symbols = torch.from_numpy(np.frombuffer(text, dtype=np.uint8).copy())
        inputs = symbols[: count * self.context].view(count, self.context)
        targets = symbols[1 : count * self.context + 1].long().view(count, self.context)
        train = count - max(1, count // _TEST_PART)
        return Split(inputs[:train], targets[:train]), Split(inputs[train:], targets[train:])

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean cross-entropy over the window's bytes, in nats, for each window."""
        return functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none").mean(dim=1)

    def metric(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The part of the window's bytes that were the most probable ones."""
        return (outputs.argmax(dim=2) == targets).float().mean(dim=1)

    def optimiser(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
        """AdamW, whose steps suit attention's unequal gradients better than SGD's."""
        return torch.optim.AdamW(parameters, lr=learning_rate)


class Transformer(nn.Module):
    """Logits [n, t, 256] of the byte after each of the `t` tokens [n, t]."""

    def __init__(self, context: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.context = context
        self.embedding = Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.head = Head(width)

    def forward(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(x)
        return logits

    def incremental_layers(self) -> list[nn.Module]:
        """The layers that continue a sequence by `step`."""
        return [self.embedding, *self.blocks, self.head]


class Embedding(nn.Module):
    """A vector for each byte and each place."""

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.context = context
        self.bytes = nn.Embedding(VOCABULARY, width)
        self.places = nn.Embedding(context, width)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.step(tokens, None)[0]

    def step(self, tokens: Tensor, cache: int | None) -> tuple[Tensor, int]:
        """Vectors [n, t, width] of tokens that follow `cache` others, and the count with them."""
        start, end = cache or 0, (cache or 0) + tokens.shape[1]
        if end > self.context:
            raise InvalidArgumentError.of_field("tokens", end, f"at most {self.context}, the model's context")
        return self.bytes(tokens) + self.places(torch.arange(start, end, device=tokens.device)), end


class Block(nn.Module):
    """Attention to all that came before, then two linear layers, each added to what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.projections = nn.Linear(width, 3 * width)
        self.mixing = nn.Linear(width, width)
        self.thought_norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def divided_linears(self) -> list[DividedLinears]:
        """What plan `tensor` divides together: attention by heads, and the two layers after it."""
        by_heads = DividedLinears({"projections": 3}, "mixing", heads="heads")
        return [by_heads, DividedLinears({"wide": 1}, "narrow")]

    def forward(self, x: Tensor) -> Tensor:
        return self.step(x, None)[0]

    def step(self, x: Tensor, cache: _Cache | None) -> tuple[Tensor, _Cache]:
        """Outputs [n, t, width] of tokens that follow those in `cache`, and the keys and values of all."""
        mixed, cache = self._attend(self.attention_norm(x), cache)
        x = x + mixed
        x = x + self.narrow(functional.gelu(self.wide(self.thought_norm(x))))
        return x, cache

    def _attend(self, x: Tensor, cache: _Cache | None) -> tuple[Tensor, _Cache]:
        n, t = x.shape[:2]
        parts = self.projections(x).view(n, t, 3, self.heads, -1)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        if cache is not None:
            keys, values = torch.cat([cache[0], keys], dim=2), torch.cat([cache[1], values], dim=2)
        seen = torch.ones(t, keys.shape[2], dtype=torch.bool, device=x.device).tril(keys.shape[2] - t)
        attended = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=seen)
        return self.mixing(attended.transpose(1, 2).reshape(n, t, -1)), (keys, values)


class Head(nn.Module):
    """From vectors to logits."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.logits = nn.Linear(width, VOCABULARY)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.logits(self.norm(x))
        return logits

    def step(self, x: Tensor, cache: None) -> tuple[Tensor, None]:
        """Logits [n, 256] after the last token only: the others' are known to whoever sent them."""
        logits: Tensor = self.logits(self.norm(x[:, -1]))
        return logits, None


def read_text(path: Path | None) -> bytes:
    """The text of a file or of a folder's *.txt files; of Python's own reference without a path.

    Raises NotFoundError when nothing is there, InvalidArgumentError for more than 64 MiB.
    """
    if path is None:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
        return "\n".join(topics[name] for name in sorted(topics)).encode()
    files = [inside(path, file) for file in sorted(path.glob("*.txt"))] if path.is_dir() else [path]
    try:
        size_bytes = sum(file.stat().st_size for file in files)
        if size_bytes > _LIMIT_BYTES:
            raise InvalidArgumentError.of_field(
                "data", f"{size_bytes:,} bytes", f"at most {_LIMIT_BYTES:,} bytes"
            )
        text = b"\n".join(file.read_bytes() for file in files)
    except OSError as error:
        raise NotFoundError(
            f"The task 'text' can't read {error.filename} on this node: {error.strerror}.",
            reason="DATA_SET_NOT_FOUND",
        ) from error
    if not files:
        raise NotFoundError(
            f"The folder {path} has no *.txt files on this node. Put some there, or name another.",
            reason="DATA_SET_NOT_FOUND",
        )
    return text
