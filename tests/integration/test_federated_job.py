"""A federated job of three clients, one of which is killed: what comes out is what its rounds say."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from worker_processes import workers_of

from peerloom import Client, Embedded
from peerloom.client.types import FederatedRound, StepCommitted, WorkerLost
from peerloom.kit.federated_rounds import FederatedRounds
from peerloom.worker.federated.shards import split_of
from peerloom.worker.schedule import shuffled
from peerloom.worker.task import load_data, load_task
from peerloom.worker.tasks.built_in import resolve

# So many rounds that it still trains however late its watcher hears of the first.
ROUNDS, PASSES, STRUCK_AT, SEED = 40, 1, 1, 7
# At the task's own rate a last digit's difference grows to hundredths within some ten rounds. At this one it
# stays below a millionth through all, and one update left out changes the parameters by 0.0004 or more.
LEARNING_RATE = 0.0002
pytestmark = pytest.mark.timeout(240)


def test_the_model_is_fedavg_of_the_updates_that_counted_though_a_client_dies(tmp_path: Path) -> None:
    """Each update is computed again with plain torch, of its client's shard and its version."""
    with Embedded(tmp_path, (1, 1, 1)) as system, Client(system.address) as client:
        sync = f"federated,epochs={PASSES},split=dirichlet:1.0,shards=3"
        job = client.train(
            "digits", requests=3, epochs=ROUNDS, seed=SEED, sync=sync, learning_rate=LEARNING_RATE
        )
        told: list[FederatedRound] = []
        lost = 0
        for event in job.watch():
            lost += isinstance(event, WorkerLost)
            if isinstance(event, StepCommitted) and event.federated is not None:
                told.append(event.federated)
                if event.step == STRUCK_AT:
                    workers_of(system.pids["node-1"])[0].kill()
        result = job.result(120)
        assert result.succeeded, result.reason
        assert (len(told), lost) == (ROUNDS, 1)
        found = job.status().ledger
        assert found is not None
        assert found.is_exact, found.verdict
        counted = [push for each in told for push in each.pushes if push.verdict == "accepted"]
        assert sum(total.samples for total in found.clients) == sum(push.samples for push in counted)
        assert {push.client for push in counted} == {0, 1, 2}
        trained = load_file(job.fetch_model(tmp_path / "model.safetensors"))
    for name, expected in fed_avg(told).items():
        torch.testing.assert_close(trained[name], expected, rtol=0, atol=2e-5)


def fed_avg(told: list[FederatedRound]) -> dict[str, Tensor]:
    """The parameters after these rounds, by their updates' weights."""
    entry, task = resolve("digits"), load_task("digits", {})
    assert entry is not None
    train, _ = load_data(task)
    shards = split_of(task, train, FederatedRounds(split="dirichlet", alpha=1.0, shards=3), SEED)
    torch.manual_seed(SEED)
    model = task.model()
    for version, each in enumerate(told):
        start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        mean = {name: torch.zeros_like(tensor) for name, tensor in start.items()}
        for push in each.pushes:
            if push.verdict == "refused":
                continue
            assert push.version == version
            model.load_state_dict(start)
            train_on(task, model, train, shards[push.client], version, entry)
            for name, tensor in model.state_dict().items():
                mean[name] += push.weight * tensor
        model.load_state_dict(mean)
    return dict(model.state_dict())


def train_on(task, model: nn.Module, train, shard: Tensor, version: int, entry) -> None:  # type: ignore[no-untyped-def]  # a task, its data, its defaults
    """The passes of a client over its shard, each in an order of its own."""
    optimiser = task.optimiser(model.parameters(), LEARNING_RATE)
    for number in range(version * PASSES, (version + 1) * PASSES):
        for rows in shard[shuffled(len(shard), SEED, number)].split(entry.batch_size):
            inputs, targets = task.batch(train, rows)
            optimiser.zero_grad()
            task.loss(model(inputs), targets).mean().backward()
            optimiser.step()
