"""`peerloom infer` and `peerloom generate` as users run them, on a system whose node holds the models."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from inference_parts import TEXT_ARGUMENTS, make_model, store

from peerloom import Embedded

LIMIT_S = 120.0
Run = Callable[..., "subprocess.CompletedProcess[str]"]
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs a command in a folder that holds inputs; "DIGITS" and "TEXT" stand for the models' digests."""
    folder = tmp_path_factory.mktemp("infer")
    with Embedded(folder / "state", (0, 0)) as system:
        files = {
            "DIGITS": make_model(folder, "digits", {}, (1, 8, 8), "float32"),
            "DECLARED": make_model(folder, "digits", {}, (1, 8, 8), "float32", declared=True),
            "TEXT": make_model(folder, "text", TEXT_ARGUMENTS, (96,), "int64"),
        }
        digests = {name: asyncio.run(store(system.addresses["node-1"], path)) for name, path in files.items()}
        rows = np.random.default_rng(3).standard_normal((25, 1, 8, 8)).astype(np.float32)
        np.save(folder / "rows.npy", rows)
        (folder / "rows.json").write_text(json.dumps(rows.tolist()))
        (folder / "digit.csv").write_text(",".join(str(pixel % 17) for pixel in range(64)))
        (folder / "broken.json").write_text("{")
        environment = {
            **os.environ,
            "PEERLOOM_ADDRESS": system.address,
            "XDG_CACHE_HOME": str(folder / "cache"),
        }

        def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
            command = [sys.executable, "-m", "peerloom.cli", *(digests.get(each, each) for each in arguments)]
            return subprocess.run(
                command, env=environment, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S
            )

        yield run


def test_answers_are_shown_with_the_way_they_came(run: Run) -> None:
    shown = run("infer", "DIGITS", "rows.npy", "--mode", "remote", "--second-opinion", "wait")
    assert shown.returncode == 0, shown.stderr
    assert "answered otherwise" not in shown.stdout
    assert "... and 5 more" in shown.stdout
    assert "remote: you asked for it" in shown.stdout
    assert "node-" in shown.stdout


def test_a_model_that_carries_labels_answers_with_them(run: Run) -> None:
    """Its parameters are chance's, so which label it gives is the probabilities' affair."""
    shown = run("infer", "DECLARED", "digit.csv", "digit.csv", "--mode", "remote")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.split()[:4] == ["INPUT", "CLASS", "PROBABILITY", "OUTPUTS"]
    told = json.loads(run("infer", "DECLARED", "digit.csv", "--mode", "remote", "-o", "json").stdout)
    row = told["probabilities"][0]
    assert told["labels"] == [str(row.index(max(row)))]
    assert sum(row) == pytest.approx(1)
    refused = run("infer", "DECLARED", "rows.npy")
    assert refused.returncode != 0
    assert "but the model takes values from 0 to 16" in refused.stderr


def test_an_array_and_lists_of_the_same_numbers_get_the_same_answers(run: Run) -> None:
    array = json.loads(run("infer", "DIGITS", "rows.npy", "-o", "json").stdout)
    lists = json.loads(run("infer", "DIGITS", "rows.json", "-o", "json", "--mode", "remote").stdout)
    np.testing.assert_allclose(array["outputs"], lists["outputs"], rtol=1e-4, atol=1e-5)
    assert len(array["outputs"]) == 25
    assert {each["mode"] for each in array["estimates"]} == {"remote", "local", "split"}


def test_a_prompt_is_continued_alike_by_one_node_and_by_two(run: Run) -> None:
    one = run("generate", "TEXT", "To be", "--tokens", "8", "--mode", "remote")
    two = run("generate", "TEXT", "To be", "--tokens", "8", "--mode", "split", "--stages", "2")
    split = run("generate", "TEXT", "To be", "--tokens", "8", "--mode", "split")  # as many stages as nodes
    assert one.returncode == two.returncode == split.returncode == 0, one.stderr + two.stderr + split.stderr
    assert one.stdout == two.stdout == split.stdout
    assert one.stdout.startswith("To be")
    assert "8 tokens in" in one.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("infer", "DIGITS", "broken.json"), "broken.json can't be read as JSON"),
        (("infer", "no-such-model", "rows.npy"), "no-such-model"),
        (("infer", "DIGITS", "missing.npy"), "does not exist"),
        (("generate", "DIGITS", "x"), "doesn't continue sequences"),
        (("infer", "DIGITS", "rows.npy", "--mode", "split", "--stages", "3"), "number of nodes"),
    ],
)
def test_what_goes_wrong_is_one_line_that_says_it(run: Run, arguments: tuple[str, ...], said: str) -> None:
    failed = run(*arguments)
    assert failed.returncode != 0
    assert said in failed.stderr
    assert "Traceback" not in failed.stderr
