"""Aim: a task of the user's own is loaded by module:Class, and each way it can fail has its own clear answer.

Method: modules are put into sys.modules, as if they had been imported from a file.
"""

import sys
from types import ModuleType

import pytest
from torch import nn

from peerloom.errors import DataLossError, InvalidArgumentError, NotFoundError, PeerloomError
from peerloom.worker.task import Samples, Task, load_task


class Whole(Task):
    """A whole task with arguments."""

    def __init__(self, size: str = "2", *, fail: str = "") -> None:
        self.size = int(size)
        if fail == "ours":
            raise DataLossError("The file is damaged.")
        if fail:
            raise ZeroDivisionError

    def model(self) -> nn.Module:
        return nn.Linear(self.size, 2)

    def data(self) -> tuple[Samples, Samples]:
        return [], []


class NeedsMore(Whole):
    """An argument without a default."""

    def __init__(self, path: str) -> None:
        self.path = path


class Open(Whole):
    """Takes whatever comes."""

    def __init__(self, **arguments: str) -> None:
        self.arguments = arguments


class Half(Task):
    """Without data."""

    def model(self) -> nn.Module:
        return nn.Identity()


class NoEpochs(Whole):
    """A default below its limit."""

    epochs = 0


class TextRate(Whole):
    """A default of the wrong kind."""

    learning_rate = "fast"  # type: ignore[assignment]  # a wrong one on purpose


class ZeroNorm(Whole):
    """Would leave nothing of a gradient."""

    clip_norm = 0.0


class Quarter(Whole):
    """A precision that torch's autocast doesn't know."""

    autocast = "fp4"


class ZeroPiece(Whole):
    """Would never come to an end of its share."""

    micro_batch = 0


class Stranger:
    """Not a task at all."""


def a_function() -> None:
    """Not even a class."""


@pytest.fixture(autouse=True)
def _module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("own_tasks")
    wrong = (NoEpochs, TextRate, ZeroNorm, Quarter, ZeroPiece)
    for each in (Whole, NeedsMore, Open, Half, *wrong, Stranger, a_function):
        monkeypatch.setattr(each, "__module__", "own_tasks")
        setattr(module, each.__name__, each)
    monkeypatch.setitem(sys.modules, "own_tasks", module)


def refusal(kind: type[PeerloomError], name: str, **arguments: str) -> PeerloomError:
    with pytest.raises(kind) as caught:
        load_task(name, arguments)
    return caught.value


def test_an_own_task_is_made_with_its_arguments() -> None:
    task = load_task("own_tasks:Whole", {"size": "5"})
    assert isinstance(task, Whole)
    assert task.size == 5


def test_a_task_that_takes_anything_gets_everything() -> None:
    task = load_task("own_tasks:Open", {"a": "1", "b": "2"})
    assert isinstance(task, Open)
    assert task.arguments == {"a": "1", "b": "2"}


def test_a_built_in_task_is_loaded_by_its_name() -> None:
    assert type(load_task("digits", {})).__name__ == "Digits"


def test_a_built_in_task_refuses_unknown_arguments() -> None:
    assert "takes no arguments" in refusal(InvalidArgumentError, "digits", data="x").message


def test_an_unknown_task_gets_the_nearest_name() -> None:
    assert "Did you mean mnist?" in refusal(NotFoundError, "mist").message


@pytest.mark.parametrize("name", ["no_such_module_here:Mine", "no_such_module_here.inner:Mine"])
def test_a_missing_module_says_where_to_put_it(name: str) -> None:
    error = refusal(NotFoundError, name)
    assert error.reason == "TASK_MODULE_NOT_FOUND"
    assert "no module 'no_such_module_here' on this node" in error.message
    assert "PYTHONPATH" in error.message


def test_a_missing_class_gets_the_nearest() -> None:
    error = refusal(NotFoundError, "own_tasks:Wholes")
    assert error.reason == "TASK_CLASS_NOT_FOUND"
    assert "Did you mean Whole?" in error.message


def test_a_missing_class_like_no_other_gets_those_that_are_there() -> None:
    assert (
        "It defines Half, NeedsMore, NoEpochs, Open, Quarter" in refusal(NotFoundError, "own_tasks:X").message
    )


def test_a_module_without_classes_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "empty_tasks", ModuleType("empty_tasks"))
    assert "defines no class" in refusal(NotFoundError, "empty_tasks:Mine").message


def test_a_function_is_not_a_task() -> None:
    assert (
        "is a function, but a task must be a class"
        in refusal(InvalidArgumentError, "own_tasks:a_function").message
    )


def test_another_class_is_not_a_task() -> None:
    error = refusal(InvalidArgumentError, "own_tasks:Stranger")
    assert error.reason == "NOT_A_TASK"
    assert "subclass of peerloom.worker.task.Task" in error.message


def test_a_task_that_is_not_whole_is_told_what_it_lacks() -> None:
    assert "doesn't define data;" in refusal(InvalidArgumentError, "own_tasks:Half").message


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("NoEpochs", "epochs is 0"),
        ("TextRate", "learning_rate is 'fast'"),
        ("ZeroNorm", "clip_norm is 0.0, but must be a number above 0, or None"),
        ("Quarter", "autocast is 'fp4', but must be None, bf16 or fp16"),
        ("ZeroPiece", "micro_batch is 0"),
    ],
)
def test_a_default_outside_its_limits_is_named(name: str, field: str) -> None:
    assert field in refusal(InvalidArgumentError, f"own_tasks:{name}").message


def test_an_unknown_argument_gets_the_nearest() -> None:
    error = refusal(InvalidArgumentError, "own_tasks:Whole", sise="3")
    assert "no argument 'sise'. Did you mean size?" in error.message


def test_a_missing_argument_is_named() -> None:
    error = refusal(InvalidArgumentError, "own_tasks:NeedsMore")
    assert error.reason == "TASK_ARGUMENT_MISSING"
    assert "'path'" in error.message


def test_a_refused_argument_comes_with_the_tasks_own_words() -> None:
    error = refusal(InvalidArgumentError, "own_tasks:Whole", size="two")
    assert error.reason == "TASK_ARGUMENT_REFUSED"
    assert "ValueError: invalid literal for int() with base 10: 'two'" in error.message


def test_an_error_without_words_is_still_named() -> None:
    assert refusal(InvalidArgumentError, "own_tasks:Whole", fail="bug").message.endswith("ZeroDivisionError")


def test_our_own_errors_pass_unchanged() -> None:
    assert refusal(DataLossError, "own_tasks:Whole", fail="ours").message == "The file is damaged."
