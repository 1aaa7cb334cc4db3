"""Experiments on a real system in small, and pictures of what it remembers."""

import asyncio
import json
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from peerloom import Client, Embedded
from peerloom.cli.main import cli
from peerloom.experiments import plots
from peerloom.experiments.asking import Asker
from peerloom.experiments.datasets import provide
from peerloom.experiments.pictures.canvas import save

PNG = b"\x89PNG"


def call(*arguments: str, code: int = 0) -> str:
    """The output of a command that ends with this exit code."""
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == code, done.output
    return done.output


def test_selection_asks_a_system_of_its_own_and_draws_the_result(tmp_path: Path) -> None:
    """Three nodes, of which the asker can ask two, both in each round: the one with slots always gives."""
    arguments = ("--nodes", "0,2,0", "--budgets", "2", "--rounds", "3", "--out", str(tmp_path))
    call("experiment", "selection", *arguments)
    (row,) = json.loads((tmp_path / "selection.json").read_text())["rows"]
    assert row["hits"] == {"node-2": 3}
    assert (row["reached"], row["requests"], row["slots_a_request"]) == (3, 6, 1.0)
    assert (tmp_path / "selection.png").read_bytes().startswith(PNG)
    again = tmp_path / "again.svg"
    call("plot", "hit-rate", "--from", str(tmp_path / "selection.json"), "--out", str(again))
    assert "<svg" in again.read_text()
    call("plot", "result", "--from", str(tmp_path / "selection.json"), "--out", str(tmp_path / "same.png"))
    assert (tmp_path / "same.png").read_bytes() == (tmp_path / "selection.png").read_bytes()


def test_scaling_takes_the_nodes_of_a_system_that_runs(tmp_path: Path) -> None:
    """Its jobs are in that system's trainer afterwards; more workers than it has nodes are refused before."""
    generated = Path(tempfile.gettempdir())
    with (
        Embedded(tmp_path / "state", (1, 1), data_roots=(generated,)) as system,
        Client(system.address) as client,
    ):
        asked = ("experiment", "scaling", "--workload", "mnist", "--scale", "0.001", "--over", system.address)
        call(*asked, "--workers", "2", "--out", str(tmp_path))
        rows = json.loads((tmp_path / "scaling.json").read_text())["workloads"]["mnist"]["rows"]
        assert [(row["workers"], row["network"]["workers"]) for row in rows] == [(1, 1), (2, 2)]
        assert len(client.jobs()) == 2
        assert "2 living nodes with slots, and 3 are needed" in call(*asked, "--workers", "3", code=2)


def test_a_live_systems_memory_can_be_drawn(tmp_path: Path) -> None:
    async def ask(registry: str) -> None:
        asker = Asker(registry, "node-1", "thesis")
        await asker.ask(1, seed=0)
        await asker.close()

    with (
        Embedded(tmp_path / "state", (0, 0)) as system,
        Client(system.address) as client,
    ):
        asyncio.run(ask(system.address))
        for name in ("beliefs", "survival"):
            draw = plots.find(name).of_system
            assert draw is not None
            path = save(draw(client, ("node-2",)), tmp_path / f"{name}.png")
            assert path.read_bytes().startswith(PNG)


def test_generated_data_are_what_the_tasks_read_and_repeatable(tmp_path: Path) -> None:
    """A thousandth of the official size is raised to 100 samples; the task's own reader accepts the files."""
    from peerloom.worker.tasks.cifar10 import Cifar10
    from peerloom.worker.tasks.mnist import Mnist

    for task, name in ((Mnist, "mnist"), (Cifar10, "cifar10")):
        data = provide(name, {}, 0.001, 7, tmp_path / "first")
        again = provide(name, {}, 0.001, 7, tmp_path / "second")
        train, test = task(data=str(data.folder)).data()
        assert (data.kind, data.samples) == ("generated", 100)
        assert (len(train), len(test)) == (100, 10)
        files = sorted(path.name for path in data.folder.iterdir())
        assert all((data.folder / f).read_bytes() == (again.folder / f).read_bytes() for f in files)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("experiment", "scalin"), 3, "Did you mean scaling"),
        (("experiment", "scaling", "--mnist", "/nowhere"), 3, "/nowhere, given for mnist, doesn't exist"),
        (("experiment", "selection", "--nodes", ""), 2, "number of nodes is 0"),
        (("experiment", "selection", "--nodes", "0,0"), 2, "no compute to reach"),
        (("experiment", "selection", "--budgets", "0"), 2, "budget is 0"),
        (("experiment", "scaling", "--workload", "minst"), 3, "Did you mean mnist"),
        (("plot", "belief"), 3, "Did you mean beliefs"),
        (("plot", "result"), 2, "--from FILE.json"),
        (("plot", "result", "--from", "/nowhere.json"), 3, "no file /nowhere.json"),
        (("plot", "beliefs", "--out", "beliefs.gif"), 2, "ends in .png or .svg"),
    ],
)
def test_bad_input_is_told_before_anything_starts(arguments: tuple[str, ...], code: int, words: str) -> None:
    assert words in call(*arguments, code=code)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"experiment": "scaling"}', '{"experiment": "selection", "rows": []}']
)
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)
    assert "error: " in call("plot", "result", "--from", str(path), "--out", str(tmp_path / "x.png"), code=1)
