"""A system in memory as its users see it: the same for the same seed, and errors that say what to do."""

import asyncio
import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import peerloom
from peerloom.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from peerloom.testing import InMemorySystem, TrainingScript

pytestmark = pytest.mark.timeout(60)
QUICK = TrainingScript(samples=48)


@pytest.fixture(scope="module")
def system() -> Iterator[InMemorySystem]:
    with InMemorySystem(nodes=2, seed=1, script=QUICK) as made:
        yield made


@pytest.fixture
def client(system: InMemorySystem) -> Iterator[peerloom.Client]:
    with system.client() as made:
        yield made


def test_nothing_happens_while_nobody_waits(system: InMemorySystem, client: peerloom.Client) -> None:
    job = client.train("digits")
    before_s = system.clock.monotonic_s()
    assert before_s == system.clock.monotonic_s()
    system.advance(30)
    assert system.clock.monotonic_s() == before_s + 30
    assert job.status().state == "succeeded"


def test_artifacts_come_back_as_they_went(client: peerloom.Client, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"0123" * 1000)
    digest = client.artifacts.put(tmp_path / "data.bin").digest
    assert digest == hashlib.sha256(b"0123" * 1000).hexdigest()
    fetched = client.artifacts.get(digest, tmp_path / "again.bin")
    assert Path(fetched).read_bytes() == b"0123" * 1000


def test_a_trained_model_can_be_listed_and_fetched(client: peerloom.Client, tmp_path: Path) -> None:
    job = client.train("digits", epochs=1, name="mine")
    assert job.result().succeeded
    assert client.model("mine").metric == 0.5
    assert client.fetch_model("mine", tmp_path).stat().st_size > 100


def test_a_job_goes_on_when_the_trainer_dies_and_comes_back(system: InMemorySystem) -> None:
    with system.client() as client:
        job = client.train("digits", epochs=20, batch_size=8)
        next(event for event in job.watch() if isinstance(event, peerloom.StepCommitted))
        system.kill("trainer")
        system.start("trainer")
        assert job.result().succeeded


def test_a_frozen_node_is_suspected_and_refutes_it_when_it_goes_on(system: InMemorySystem) -> None:
    system.freeze("node2")
    system.wait_for_node("node2", "suspect")
    system.thaw("node2")
    system.wait_for_node("node2", "alive")


def test_nodes_of_one_owner_share_a_host(system: InMemorySystem, client: peerloom.Client) -> None:
    hosts = [
        client.node(system.add_node(owner=owner)).address.rpartition(":")[0] for owner in ("eve", "eve", "")
    ]
    assert hosts[0] == hosts[1] != hosts[2]


def test_clients_that_code_makes_itself_reach_it(system: InMemorySystem) -> None:
    with system.serves_all_clients(), peerloom.Client("192.0.2.1:7400") as client:
        assert "node1" in [node.name for node in client.nodes()]
        assert client.address == "10.0.0.1:7400"


def test_several_threads_may_wait_at_once(system: InMemorySystem) -> None:
    ended: list[bool] = []

    def train() -> None:
        with system.client() as client:
            ended.append(client.train("digits", requests=1).result().succeeded)

    threads = [threading.Thread(target=train) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert any(ended)  # the other may have found no slot that is free
    assert len(ended) == 2


async def test_it_works_inside_a_running_loop(client: peerloom.Client) -> None:
    assert client.nodes()


def test_an_async_client_belongs_to_the_systems_loop(system: InMemorySystem) -> None:
    async def elsewhere() -> None:
        await system.async_client().nodes()

    with pytest.raises(FailedPreconditionError, match=r"system\.run"):
        asyncio.run(elsewhere())


def test_a_blocking_call_on_the_systems_own_loop_is_refused(
    system: InMemorySystem, client: peerloom.Client
) -> None:
    async def wrong() -> None:
        client.nodes()

    with pytest.raises(FailedPreconditionError, match="AsyncClient"):
        system.run(wrong())


def test_bad_input_is_refused_with_words(system: InMemorySystem) -> None:
    with pytest.raises(NotFoundError, match=r"node1"):
        system.kill("nod1")
    with pytest.raises(InvalidArgumentError, match="name"):
        system.add_node("node1")
    with pytest.raises(InvalidArgumentError, match="nodes"):
        InMemorySystem(nodes=-1)
    with pytest.raises(FailedPreconditionError, match="another system in memory is open"):
        InMemorySystem()


def test_a_machine_is_as_busy_as_a_test_says_and_nobody_knows_before(
    system: InMemorySystem, client: peerloom.Client
) -> None:
    assert client.node("node1").load is None
    load = peerloom.MachineLoad(0.5, 0.25, 8, 2 * 10**9, 8 * 10**9, (peerloom.GpuLoad(None, 1, 4),))
    system.set_load("node1", load)
    assert client.node("node1").load == load
    assert client.node("node2").load is None
    with pytest.raises(InvalidArgumentError, match="cpu_use"):
        system.set_load("node1", peerloom.MachineLoad(1.5, 0, 1, 0, 1))
    with pytest.raises(NotFoundError, match="node9"):
        system.set_load("node9", load)
