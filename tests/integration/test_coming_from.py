"""docs/coming-from.md is true of Peerloom: what it shows in place of others' code runs, beside one system.

`Net`, `dataset` and `loss_of` are the reader's own, as the page says: here they tell a circle from points.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_blocks import blocks_of, reader_shell

from peerloom import Client
from peerloom.client.types import Job

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "coming-from.md").read_text()
BLOCKS = blocks_of(PAGE)
LIMIT_S = 150.0
OWN = """
import torch
import peerloom
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
places = torch.rand(256, 2) * 2 - 1
dataset = TensorDataset(places, (places.norm(dim=1) < 0.8).float())
class Net(torch.nn.Sequential):
    def __init__(self):
        layers = torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1), torch.nn.Flatten(0)
        super().__init__(*layers)
loss_of = torch.nn.functional.binary_cross_entropy_with_logits
loader = DataLoader(dataset, batch_size=64)
model = Net()
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
"""
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What a reader's shell has, beside nodes that allow code and know the example's task."""
    with reader_shell(tmp_path_factory.mktemp("system"), ROOT / "examples") as shell:
        yield shell


def loop(side: str) -> str:
    """The loop as it is before ("-") or after ("+") the page's change."""
    [change] = [block.code for block in BLOCKS if block.language == "diff"]
    return "".join(line[1:] for line in change.splitlines(keepends=True) if line[0] in (side, " "))


def call(argument: str) -> str:
    """The page's block of Python that hands that in."""
    [code] = [block.code for block in BLOCKS if f"client.train({argument}" in block.code]
    return f"import peerloom\n{code}"


def follow(command: list[str], folder: Path, environment: dict[str, str]) -> Job:
    """Does what the page says; the job that came of it."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout
    with Client(environment["PEERLOOM_ADDRESS"]) as client:
        [newest] = client.jobs(limit=1)
    assert newest.state == "succeeded", newest.reason
    return newest


def test_torchrun_s_script_stays_as_it_is(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(OWN + loop("-"))
    [command] = re.findall(r"^torchrun .*\n(peerloom run .*)$", PAGE, re.MULTILINE)
    ended = follow(["bash", "-euc", command], tmp_path, environment)
    assert ended.result is not None
    assert ended.result.exit_status == 0
    assert {answer.name for answer in ended.answers} == {"node-1", "node-2"}


def test_the_elastic_loop_is_handed_in_as_ray_s_function_was(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """256 samples in batches of 64 are 4 steps an epoch, of which there are 3."""
    (tmp_path / "train.py").write_text(OWN + loop("+"))
    ended = follow([sys.executable, "-c", call('"train.py"')], tmp_path, environment)
    assert ended.progress is not None
    assert ended.progress.step == 12


def test_flower_s_rounds_are_a_way_to_synchronise(environment: dict[str, str], tmp_path: Path) -> None:
    ended = follow([sys.executable, "-c", call('"my_task:Rings"')], tmp_path, environment)
    assert ended.spec.sync.startswith("federated,")
    assert ",clients=0.5," in ended.spec.sync
    assert ended.progress is not None
    assert ended.progress.epoch == 3


def test_no_python_of_peerloom_on_the_page_is_left_out() -> None:
    ours = [
        f"import peerloom\n{block.code}"
        for block in BLOCKS
        if block.language == "python" and "peerloom" in block.code
    ]
    assert ours == [call('"train.py"'), call('"my_task:Rings"')]
