"""Aim: a batch may be any nest of tensors, of samples of any kind; what can't be is told with the way out."""

from collections import UserDict, namedtuple
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from peerloom.errors import InvalidArgumentError
from peerloom.worker.batches import call_model, collated, logits_of, moved, sample_count
from peerloom.worker.task import Samples, Split, Task, load_batch, sample_losses, sample_scores
from peerloom.worker.task_checks import check_all_used

IDS = torch.tensor([[1, 2], [3, 4], [5, 6]])
LABELS = torch.tensor([1, 0, 1])
ROWS = [
    {"ids": ids.tolist(), "weight": 0.5, "labels": int(label)} for ids, label in zip(IDS, LABELS, strict=True)
]
Pair = namedtuple("Pair", "one two")


class Given(Task):
    """A task with the samples given."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples

    def model(self) -> nn.Module:
        return Adding()

    def data(self) -> tuple[Samples, Samples]:
        return self.samples, self.samples


class Adding(nn.Module):
    """Logits [n, 2] as an entry of a mapping: the ids, times their weights."""

    def forward(self, ids: Tensor, weight: Tensor) -> dict[str, Tensor]:
        return {"hidden": ids, "logits": ids * weight[:, None]}


def test_a_model_is_called_as_its_inputs_are() -> None:
    def model(*places: int, **names: int) -> tuple[tuple[int, ...], dict[str, int]]:
        return places, names

    assert call_model(model, 1) == ((1,), {})
    assert call_model(model, (1, 2)) == call_model(model, [1, 2]) == ((1, 2), {})
    assert call_model(model, UserDict(a=1, b=2)) == ((), {"a": 1, "b": 2})


def test_a_nest_moves_as_a_whole_and_keeps_its_form() -> None:
    nest = {"ids": IDS, "more": Pair([IDS, IDS], "text"), "none": None}
    away = moved(nest, torch.device("meta"))
    assert away["ids"].is_meta
    assert away["more"].one[1].is_meta
    assert (away["more"].two, away["none"]) == ("text", None)


@pytest.mark.parametrize(
    "nest",
    [{"ids": IDS, "mask": IDS[:2]}, (IDS, torch.tensor(1.0)), [], {"text": "abc"}],
    ids=["lengths", "0-d", "empty", "no-tensor"],
)
def test_samples_that_do_not_agree_are_told_with_the_form(nest: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"batch\(\) is .* of the same n samples"):
        sample_count(nest, "batch()")


def test_the_form_is_told_by_names_and_shapes() -> None:
    with pytest.raises(InvalidArgumentError, match=r"\{ids: \[3, 2\], more: \(\[2\], NoneType\)\}"):
        sample_count({"ids": IDS, "more": (LABELS[:2], None)}, "batch()")


@pytest.mark.parametrize(
    "samples",
    [
        ROWS,
        [({"ids": row["ids"], "weight": 0.5}, row["labels"]) for row in ROWS],
        Split({"ids": IDS, "weight": torch.full((3,), 0.5, dtype=torch.float64)}, LABELS),
    ],
    ids=["hugging-face", "pairs", "split"],
)
def test_named_inputs_come_from_every_kind_of_samples(samples: Samples) -> None:
    """Losses by hand: logits (2.5, 3) of class 1 and (0.5, 1) of class 1: log(1 + e^-0.5) each."""
    task = Given(samples)
    inputs, targets = load_batch(task, samples, torch.tensor([2, 0]))
    assert inputs["ids"].tolist() == [[5, 6], [1, 2]]
    assert inputs["weight"].tolist() == [0.5, 0.5]
    assert targets.tolist() == [1, 1]
    outputs = call_model(task.model(), inputs)
    assert sample_losses(task, outputs, targets).tolist() == pytest.approx([0.474077] * 2, abs=1e-6)
    assert sample_scores(task, outputs, targets).tolist() == [1.0, 1.0]


def test_another_entry_may_be_the_target() -> None:
    inputs, targets = collated(ROWS, "weight", "Mine")
    assert sorted(inputs) == ["ids", "labels"]
    assert targets.tolist() == [0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"ids": [1], "label": 1}], r"mappings with the keys ids, label\. .*Mine\.targets_key"),
        ([(IDS[0], IDS[0], 1)], r"tuples of 3\. They must be pairs .* override Mine\.collate\(rows\)"),
        ([IDS[0]], r"are Tensors\."),
        ([{"ids": [1, 2], "labels": 1}, {"ids": [1], "labels": 1}], r"can't be put together .* to pad them"),
        ([(IDS[0], 1), (IDS[0, :1], 1)], r"can't be put together .* override Mine\.collate\(rows\)"),
    ],
    ids=["no-target", "triple", "alone", "ragged-rows", "ragged-pairs"],
)
def test_samples_without_a_pair_are_told_with_what_to_override(rows: list[Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        collated(rows, "labels", "Mine")


def test_an_own_way_to_collate_is_asked_for_samples_of_any_form() -> None:
    class Triples(Given):
        def collate(self, rows: list[Any]) -> tuple[Any, Any]:
            ids, weights, labels = zip(*rows, strict=True)
            return (torch.stack(ids), torch.stack(weights)), torch.stack(labels)

    samples = TensorDataset(IDS, torch.full((3,), 0.5), LABELS)
    inputs, targets = load_batch(Triples(samples), samples, torch.tensor([1]))
    assert (inputs[0].tolist(), inputs[1].tolist(), targets.tolist()) == ([[3, 4]], [0.5], [0])


def test_a_batch_that_is_no_pair_is_refused() -> None:
    class Alone(Given):
        def batch(self, split: Samples, indices: Tensor) -> Any:
            return IDS

    with pytest.raises(InvalidArgumentError, match=r"Alone\.batch\(\) is '\[3, 2\]', but must be a pair"):
        load_batch(Alone(ROWS), ROWS, torch.tensor([0]))


def test_logits_are_the_outputs_or_what_they_call_so() -> None:
    assert logits_of(IDS) is IDS
    assert logits_of({"loss": None, "logits": IDS}) is IDS
    assert logits_of(namedtuple("Output", "logits")(IDS)) is IDS
    with pytest.raises(InvalidArgumentError, match=r"gave \(\[3, 2\], \[3\]\).*loss\(\) and metric\(\)"):
        logits_of((IDS, LABELS))


def test_parameters_that_the_loss_does_not_use_are_named() -> None:
    model = nn.ModuleDict({name: nn.Linear(2, 2) for name in ("used", "forgotten", "frozen")})
    model["frozen"].requires_grad_(False)
    model["used"](torch.ones(1, 2)).sum().backward()
    with pytest.raises(InvalidArgumentError, match=r"forgotten\.weight, forgotten\.bias: with more than one"):
        check_all_used(Given([]), model)
    model["forgotten"](torch.ones(1, 2)).sum().backward()
    check_all_used(Given([]), model)
