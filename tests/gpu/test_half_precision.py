"""Half precision on a GPU: the parameters stay float32 and finite, and the state goes on elsewhere."""

import pytest
import torch
from torch import nn

from peerloom.v1.trainer_pb2 import JobSpec
from peerloom.worker.step_share import share_of
from peerloom.worker.task import Split, Task
from peerloom.worker.training import Training

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
BATCH = 32


class Larger(Task):
    """Which half of its numbers is larger in sum?"""

    clip_norm = 1.0
    micro_batch = 12

    def __init__(self, autocast: str) -> None:
        self.autocast = autocast

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))

    def data(self) -> tuple[Split, Split]:
        numbers = torch.randn(256, 16, generator=torch.Generator().manual_seed(3))
        split = Split(numbers, (numbers[:, 8:].sum(1) > numbers[:, :8].sum(1)).long())
        return split, split


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_the_loss_falls_and_another_device_goes_on_from_the_state(name: str) -> None:
    spec = JobSpec(epochs=8, batch_size=BATCH, learning_rate=0.1, seed=1)
    training = Training(Larger(name), spec, torch.device("cuda"))
    losses = []
    for step in range(training.schedule.total_steps):
        updater = training.state.updater
        loss = share_of(training, step, [BATCH], 0).walk(training, training.state.model, updater)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        updater.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 2
    elsewhere = Training(Larger(name), spec, torch.device("cpu"))
    elsewhere.state.from_bytes(training.state.to_bytes())
    assert elsewhere.state.parameters_digest() == training.state.parameters_digest()
    assert elsewhere.state.updater.state()[0] == training.state.updater.state()[0]
