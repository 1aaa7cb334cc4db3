"""The sum of the workers' gradients is that of the unsplit batch, however unequal the shares. No network."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from peerloom.v1.trainer_pb2 import JobSpec
from peerloom.worker.schedule import samples_of, split_batch
from peerloom.worker.step_share import StepShare
from peerloom.worker.sync.alone import Alone
from peerloom.worker.task import Samples, Split, Task
from peerloom.worker.training import Training

BATCH = 24


class Lines(Task):
    """Two layers in double precision, so that only a wrong weight makes a difference."""

    def model(self) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3)).double()

    def data(self) -> tuple[Samples, Samples]:
        chance = torch.Generator().manual_seed(2)
        inputs = torch.randn(60, 5, generator=chance, dtype=torch.float64)
        split = Split(inputs, inputs.argmax(dim=1) % 3)
        return split, split


def gradients(training: Training, counts: list[int], rank: int) -> list[torch.Tensor]:
    """What the worker of this rank has to add to the sum."""
    indices = samples_of(training.order(0)[: sum(counts)], counts, rank)
    model = training.state.model
    model.zero_grad()
    sync = Alone(model)
    sync.backward(StepShare(0, rank, indices, sum(counts)).loss(training, sync.forward), counts)
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=6).filter(any), st.integers(1, BATCH))
def test_gradients_weighted_by_samples_add_up_to_those_of_the_unsplit_batch(
    shares: list[int], batch: int
) -> None:
    spec = JobSpec(epochs=1, batch_size=BATCH, learning_rate=0.1, seed=4)
    training = Training(Lines(), spec, torch.device("cpu"))
    counts = split_batch(batch, shares)
    parts = [gradients(training, counts, rank) for rank in range(len(counts))]
    whole = gradients(training, [batch], 0)
    for i, expected in enumerate(whole):
        torch.testing.assert_close(sum(part[i] for part in parts), expected, rtol=1e-12, atol=1e-14)
