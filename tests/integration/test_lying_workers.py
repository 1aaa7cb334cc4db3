"""A job on eight real nodes, two of which lie, with and without a rule; the models are measured here.

With a rule there are audits, too, by which they may be dismissed before the end; `test_audits` is about that.

What the workers themselves tell of loss and accuracy says nothing beside liars.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from peerloom import Client, Embedded
from peerloom.client.types import RobustRule
from peerloom.worker.task import load_task

NODES = 8
JOB_LIMIT_S = 400.0
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        # All eight must come, however busy the machine is.
        patch.setenv("PEERLOOM_TRAINER_REQUEST_TIMEOUT_S", "120")
        folder = tmp_path_factory.mktemp("system")
        with Embedded(folder, (1,) * NODES) as system, Client(system.address) as opened:
            yield opened


def accuracy(client: Client, robust: RobustRule, path: Path) -> float:
    """Trains beside two liars; what the model gets right of the test digits."""
    job = client.train(
        "lying_task:Lying",
        arguments={"liars": "2,5"},
        requests=NODES,
        min_workers=NODES - 2,  # with a rule, liars are dismissed once they are found out
        max_workers=NODES,
        batch_size=64,
        epochs=6,
        seed=5,
        equal_shares=True,
        robust=robust,
    )
    result = job.result(JOB_LIMIT_S)
    assert result.succeeded, result.reason
    assert len(job.status().workers) == NODES
    task = load_task("digits", {})
    model = task.model()
    model.load_state_dict(load_file(job.fetch_model(path)))
    model.eval()
    _, test = task.data()
    inputs, targets = task.batch(test, torch.arange(len(test)))
    return float(task.metric(model(inputs), targets).mean())


def test_two_liars_of_eight_spoil_a_sum_and_not_a_trimmed_mean(client: Client, tmp_path: Path) -> None:
    """The sum first: whoever was found to lie in the other is chosen no more."""
    assert accuracy(client, "off", tmp_path / "sum.safetensors") < 0.5
    assert accuracy(client, "auto", tmp_path / "robust.safetensors") > 0.9
