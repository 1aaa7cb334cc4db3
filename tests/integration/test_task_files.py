"""Aim: the digits and a task in a file of the user's own are found, learned, and refused with a reason.

Method: real files and imports, and a plain loop in one process.
"""

import gzip
import importlib.util
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch

from peerloom.errors import DataLossError, InvalidArgumentError, NotFoundError
from peerloom.worker.task import Split, load_data, load_task, sample_losses, sample_scores
from peerloom.worker.tasks import digits

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    # Two threads of torch on two busy cores wait for each other by spinning: minutes in place of a second.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# Digits


def test_the_digits_are_split_by_class() -> None:
    task = load_task("digits", {})
    train, test = load_data(task)
    assert isinstance(train, Split)
    assert isinstance(test, Split)
    assert (len(train), len(test)) == (1437, 360)
    # The set's own counts of each class, as its description gives them.
    counts = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert (train.targets.bincount() + test.targets.bincount()).tolist() == counts
    assert all(
        abs(int(found) - count / 5) < 1 for found, count in zip(test.targets.bincount(), counts, strict=True)
    )
    assert (train.inputs.dtype, int(train.inputs.max())) == (torch.uint8, 16)
    inputs, _ = task.batch(train, torch.arange(len(train)))
    assert abs(float(inputs.mean())) < 0.001
    assert abs(float(inputs.std()) - 1) < 0.001


def test_without_scikit_learn_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NotFoundError, match="install scikit-learn"):
        load_data(load_task("digits", {}))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no gzip", "can't be read as the table of digits"),
        (gzip.compress(b"1,2\n3,x\n"), "can't be read as the table of digits"),
        (gzip.compress(b"1,2\n3,4\n"), r"holds a table of \(2, 2\), expected \(1797, 65\)"),
        (gzip.compress(b"17," * 64 * 1 + b"1\n" + (b"0," * 64 + b"1\n") * 1796), "pixels outside 0 to 16"),
        (gzip.compress((b"0," * 64 + b"10\n") * 1797), "labels outside 0 to 9"),
    ],
    ids=["no-gzip", "text", "size", "pixels", "labels"],
)
def test_a_damaged_file_of_digits_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "digits.csv.gz"
    path.write_bytes(content)
    with pytest.raises(DataLossError, match=message):
        digits.read_digits(path)


def test_the_digits_are_learned_with_the_defaults() -> None:
    assert train_plainly("digits", {}, seed=1) >= 0.97


# Any task


def train_plainly(name: str, arguments: Mapping[str, str], seed: int) -> float:
    """Trains in one process with the task's defaults; the metric over the test set."""
    task = load_task(name, arguments)
    train, test = load_data(task)
    torch.manual_seed(seed)
    model = task.model()
    optimiser = task.optimiser(model.parameters(), task.learning_rate)
    for _ in range(task.epochs):
        for indices in torch.split(torch.randperm(len(train)), task.batch_size):
            inputs, targets = task.batch(train, indices)
            optimiser.zero_grad()
            sample_losses(task, model(inputs), targets).mean().backward()
            optimiser.step()
    inputs, targets = task.batch(test, torch.arange(len(test)))
    with torch.no_grad():
        return float(sample_scores(task, model(inputs), targets).mean())


def test_the_example_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    assert train_plainly("my_task:Rings", {"noise": "0.2"}, seed=1) >= 0.97


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("import no_such_package_here\n", NotFoundError, "needs the module 'no_such_package_here'"),
        ("class Mine(:\n", InvalidArgumentError, "SyntaxError"),
        (
            "1 / 0\n",
            InvalidArgumentError,
            "can't be imported on this node: ZeroDivisionError: division by zero",
        ),
        ("raise SystemExit(3)\n", InvalidArgumentError, "can't be imported on this node: SystemExit: 3"),
    ],
    ids=["dependency", "syntax", "failure", "exit"],
)
def test_a_module_that_cannot_be_imported_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, kind: type[Exception], message: str
) -> None:
    (tmp_path / "broken_task_of_a_test.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(kind, match=message):
        load_task("broken_task_of_a_test:Mine", {})


def test_asking_the_catalogue_imports_neither_torch_nor_numpy() -> None:
    code = "import sys, peerloom.worker.tasks.built_in; print({'torch', 'numpy'} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"
