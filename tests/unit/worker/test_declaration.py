"""A declaration becomes tensors by its formula, and one that isn't true is told before training."""

from dataclasses import replace

import pytest
import torch

from peerloom.errors import InvalidArgumentError
from peerloom.kit.raw_input import RawInput, ScaleShift, Standardise
from peerloom.worker.declaration import check_declaration
from peerloom.worker.preparing import prepared
from peerloom.worker.task import Split, Task

SAMPLES = torch.tensor([[0, 4], [8, 16]], dtype=torch.uint8)
GOOD = RawInput((2,), "uint8", 0, 16, Standardise((0.5,), (0.25,), 16), ("in", "out"))


class Declared(Task):
    """Two numbers from 0 to 16, of two classes."""

    raw_input = GOOD

    def model(self) -> torch.nn.Module:
        return torch.nn.Linear(2, 2)

    def data(self) -> tuple[Split, Split]:
        split = Split(SAMPLES, torch.tensor([0, 1]))
        return split, split


class Doubled(Declared):
    """Its batches have another type."""

    def batch(self, split: object, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        inputs, targets = super().batch(split, indices)  # type: ignore[arg-type]  # a Split
        return inputs.double(), targets


def check(task: Task) -> None:
    check_declaration(task, task.data()[0], task.model(), torch.device("cpu"))


def test_numbers_become_what_the_formula_gives_by_hand() -> None:
    """(8 / 16 - 0.5) / 0.25 = 0, and 16 gives 2; by channel 2 * 1 + 3 and 10 * 1 + 20; then each its own."""
    assert prepared(SAMPLES, GOOD).tolist() == [[-2.0, -1.0], [0.0, 2.0]]
    channels = RawInput((2, 1, 2), "uint8", 0, 9, ScaleShift((2.0, 10.0), (3.0, 20.0)))
    ones = torch.ones(1, 2, 1, 2, dtype=torch.uint8)
    assert prepared(ones, channels).tolist() == [[[[5.0, 5.0]], [[30.0, 30.0]]]]
    values = RawInput((2, 1, 2), "uint8", 0, 9, ScaleShift((1.0, 2.0, 3.0, 4.0), (0.0,) * 4))
    assert prepared(ones, values).tolist() == [[[[1.0, 2.0]], [[3.0, 4.0]]]]
    assert prepared(SAMPLES, RawInput.of_text(2)).dtype == torch.int64
    assert prepared(SAMPLES, None) is SAMPLES


def test_a_batch_is_prepared_and_chance_stays_untouched() -> None:
    task = Declared()
    torch.manual_seed(3)
    model, expected = task.model(), torch.randn(3)
    torch.manual_seed(3)
    model = task.model()
    check_declaration(task, task.data()[0], model, torch.device("cpu"))
    assert torch.equal(torch.randn(3), expected)
    assert model.training
    assert task.batch(task.data()[0], torch.tensor([1]))[0].tolist() == [[0.0, 2.0]]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (replace(GOOD, labels=("a", "b", "c")), r"raw_input.labels is '3 labels', .* outputs \[2\]"),
        (replace(GOOD, shape=(3,)), r"for uint8\[2\], which data\(\) gave"),
        (replace(GOOD, dtype="int64"), r"for uint8\[2\], which data\(\) gave"),
        (replace(GOOD, high=15), r"from 0 to 16, which data\(\) gave"),
        (replace(GOOD, transform=Standardise((0.5,), (0.0,))), "deviation"),
        ("digits", "must be a peerloom.RawInput"),
    ],
)
def test_what_is_not_true_is_told_before_training(
    raw: RawInput, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Declared, "raw_input", raw)
    with pytest.raises(InvalidArgumentError, match=said):
        check(Declared())


def test_a_batch_of_another_type_is_told() -> None:
    with pytest.raises(InvalidArgumentError, match=r"for float64\[2\], which batch\(\) gave"):
        check(Doubled())


def test_several_inputs_cannot_be_declared_as_one() -> None:
    class Named(Declared):
        def data(self) -> tuple[Split, Split]:
            split = Split({"numbers": SAMPLES}, torch.tensor([0, 1]))
            return split, split

    with pytest.raises(
        InvalidArgumentError, match=r"declares one tensor, and batch\(\) gave \{numbers: \[1, 2\]\}"
    ):
        check(Named())
