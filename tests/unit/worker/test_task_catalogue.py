"""Aim: built-in tasks are found by name, and what can't be trained is refused with a sentence that helps."""

import inspect

import pytest

from peerloom.errors import InvalidArgumentError, NotFoundError
from peerloom.worker.tasks.built_in import BUILT_IN, check_arguments, resolve
from peerloom.worker.tasks.importing import import_class


def test_a_built_in_name_gives_its_entry() -> None:
    entry = resolve("mnist")
    assert entry is not None
    assert (entry.name, entry.batch_size, entry.epochs) == ("mnist", 32, 3)


@pytest.mark.parametrize("task", ["my_task:Mine", "a.b.c:Größe"])
def test_an_own_task_has_no_entry(task: str) -> None:
    assert resolve(task) is None


@pytest.mark.parametrize("task", [":", "my task:Mine", "my_task:", ":Mine", "a..b:C", "a:b:c", "a:1"])
def test_a_colon_in_the_wrong_place_is_refused(task: str) -> None:
    with pytest.raises(InvalidArgumentError, match="module:Class"):
        resolve(task)


def test_a_misspelt_name_gets_the_nearest_and_all_names() -> None:
    with pytest.raises(NotFoundError) as caught:
        resolve("digit")
    text = caught.value.message
    assert "Did you mean digits?" in text
    assert "cifar10, digits, emulated, mnist" in text
    assert "module:Class" in text
    assert caught.value.reason == "TASK_NOT_FOUND"
    assert caught.value.metadata["nearest"] == "digits"


def test_an_unknown_argument_gets_the_nearest() -> None:
    with pytest.raises(InvalidArgumentError, match=r"no argument 'dta'. Did you mean data\?"):
        check_arguments(BUILT_IN["mnist"], {"dta": "/data"})


def test_an_unknown_argument_of_a_task_without_any_says_so() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'digits' has no argument 'data'. It takes no arguments"):
        check_arguments(BUILT_IN["digits"], {"data": "/data"})


def test_a_needed_argument_that_is_missing_is_explained() -> None:
    with pytest.raises(InvalidArgumentError, match="needs the argument 'data': Folder on the nodes"):
        check_arguments(BUILT_IN["cifar10"], {})


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_the_catalogue_agrees_with_the_class(name: str) -> None:
    entry = BUILT_IN[name]
    found = import_class(entry.path)
    parameters = inspect.signature(found).parameters
    needed = {each.name for each in parameters.values() if each.default is inspect.Parameter.empty}
    assert set(parameters) == set(entry.arguments)
    assert needed == entry.required
    assert found.epochs == entry.epochs  # type: ignore[attr-defined]  # import_class promises any class
    assert found.batch_size == entry.batch_size  # type: ignore[attr-defined]  # as above
    assert found.learning_rate == entry.learning_rate  # type: ignore[attr-defined]  # as above


@pytest.mark.parametrize(("name", "batch", "epochs"), [("mnist", 32, 3), ("cifar10", 4, 1)])
def test_the_thesis_defaults_hold(name: str, batch: int, epochs: int) -> None:
    assert (BUILT_IN[name].batch_size, BUILT_IN[name].epochs) == (batch, epochs)
