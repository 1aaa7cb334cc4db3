"""Aim: workers that have a piece of each layer train as one process does, and hold no whole layers.

Method: they are threads joined by queues, beside the same training in one piece.
"""

from collections.abc import Callable, Iterable

import pytest
import torch
from stages_in_threads import Pipeline, Waves, check_near, in_one_piece, steps, task_of, training_of
from torch import Tensor, nn

from peerloom.errors import InvalidArgumentError
from peerloom.worker.task import Split, Task
from peerloom.worker.tasks.text import Transformer


def equal_to_one_piece(task: Task, plan: str, count: int = 50) -> Pipeline:
    expected, losses = in_one_piece(task, count)
    pieces = Pipeline(task, plan)
    told = pieces.work(steps(count))
    assert torch.allclose(torch.tensor(told[0]), torch.tensor(losses), rtol=0, atol=1e-5)
    assert losses[-1] < losses[0]
    check_near(pieces.parameters(), expected.state.model.state_dict())
    return pieces


@pytest.mark.parametrize(
    "plan",
    [
        "tensor=2",
        "tensor=3,micro_batches=3",
        "pipeline=2,tensor=2,micro_batches=4",
        "pipeline=2,tensor=2,micro_batches=3,order=zb-h1",
    ],
)
def test_it_trains_as_one_process_does(plan: str) -> None:
    equal_to_one_piece(Waves(), plan)


def test_an_optimiser_that_looks_at_whole_tensors_is_refused() -> None:
    task = task_of(Waves().model, optimiser=lambda self, parameters, rate: torch.optim.Adafactor(parameters))
    with pytest.raises(InvalidArgumentError, match="Adafactor, which looks at each parameter as a whole"):
        training_of(task, "tensor=2").enter(0)


def test_no_worker_holds_what_is_cut_as_a_whole() -> None:
    """Also of its moments; what isn't cut all hold, and the first of each team counts."""
    pipeline = Pipeline(Waves(), "tensor=2")
    pipeline.work(steps(1))
    whole = {name: each.numel() for name, each in in_one_piece(Waves(), 0)[0].state.model.named_parameters()}
    for training in pipeline.trainings:
        for name, parameter in training.stage_model.named_parameters():
            is_cut = name in training.pieces.cuts
            assert (parameter.numel() < whole[name]) == is_cut, name
            moments = training.state.updater.state()[1]
            assert moments[f"optimiser.{name}.exp_avg"].shape == parameter.shape
    first, second = pipeline.trainings
    assert first.piece is not None
    assert second.piece is not None
    assert first.piece.counted_elsewhere == set()
    # Of the last pair's second layer only the bias is with both, and all of the norm.
    assert second.piece.counted_elsewhere == {"2.0.bias", "2.2.weight", "2.2.bias"}


class Words(Waves):
    """Windows of eight symbols, each of which is to be said again.

    Of keys' biases the gradients are nothing but rounding, which Adam would make steps of.
    """

    batch_size = 10
    learning_rate = 0.3

    def optimiser(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=learning_rate, momentum=0.9)

    def data(self) -> tuple[Split, Split]:
        inputs = torch.randint(0, 50, (60, 8), generator=torch.Generator().manual_seed(4))
        return Split(inputs[:40], inputs[:40]), Split(inputs[40:], inputs[40:])

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none").mean(dim=1)

    def metric(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.argmax(dim=2) == targets).float().mean(dim=1)


class Tied(nn.Module):
    """An embedding whose tensor the last layer has too, gates, and torch's own attention."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 12, padding_idx=3)
        self.attention = nn.TransformerEncoderLayer(12, 3, 20, dropout=0.0, batch_first=True)
        self.gate = nn.Linear(12, 20)
        self.up = nn.Linear(12, 20, bias=False)
        self.down = nn.Linear(20, 12)
        self.head = nn.Linear(12, 50)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.attention(self.embedding(tokens))
        x = x + self.down(nn.functional.silu(self.gate(x)) * self.up(x))
        logits: Tensor = self.head(x)
        return logits


class Seen(nn.Module):
    """Attention with both kinds of masks, the batch in the second place, and a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 12)
        self.attention = nn.MultiheadAttention(12, 4, bias=False)
        self.near = nn.Conv1d(12, 7, 3, padding=1)
        self.head = nn.Linear(7, 50)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens).transpose(0, 1)
        later = torch.ones(8, 8, dtype=torch.bool).triu(1)
        x = (
            x
            + self.attention(
                x, x, x, key_padding_mask=tokens.eq(4).logical_and(tokens[:, :1].ne(4)), attn_mask=later
            )[0]
        )
        near: Tensor = self.near(x.permute(1, 2, 0))
        logits: Tensor = self.head(near.transpose(1, 2))
        return logits


def words_of(model: Callable[[], nn.Module]) -> Task:
    made: Task = type("Modelled", (Words,), {"model": lambda self: model()})()
    return made


@pytest.mark.parametrize(
    "model", [lambda: Transformer(8, 12, 2, 3), Tied, Seen], ids=["said", "tied", "seen"]
)
@pytest.mark.parametrize("plan", ["tensor=2", "tensor=3"])
def test_models_that_read_train_as_in_one_process(model: Callable[[], nn.Module], plan: str) -> None:
    equal_to_one_piece(words_of(model), plan, 30)


def test_a_sparse_gradient_is_refused() -> None:
    task = words_of(lambda: nn.Sequential(nn.Embedding(50, 4, sparse=True), nn.Linear(4, 50)))
    with pytest.raises(InvalidArgumentError, match=r"The gradient of 0\.weight is sparse"):
        Pipeline(task, "tensor=2").work(steps(1))
