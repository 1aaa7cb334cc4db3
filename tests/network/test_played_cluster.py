"""The chart's pods, run as by a cluster: a machine dies, a pod is evicted, and the job goes on."""

import json
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from compose_stack import TAG
from played_cluster import PlayedCluster, played, wait_until
from rendered_chart import RELEASE, Manifest, render

from peerloom import Client, GenerationFormed, JobEvent, JobHandle, StepCommitted, WorkerLost

pytestmark = [pytest.mark.network, pytest.mark.timeout(300)]
POOL = f"{RELEASE}-node-gpu"
# The machines' GPUs are counted and not there, so agents are told to do without.
VALUES: Manifest = {
    "image": {"tag": TAG},
    "trainer": {"settings": {"evaluate": "off"}},
    "pools": {
        "cpu": None,
        "gpu": {
            "gpus": 1,
            "replicas": 3,
            "resources": {"limits": {"memory": "2Gi"}},
            "settings": {"accelerator": "cpu", "threads_per_slot": 1, "measure_interval_s": 0},
        },
    },
}
MACHINES = {"office": 0, "one": 1, "two": 1, "three": 1, "four": 1}


@pytest.fixture(scope="module")
def cluster(engine: docker.DockerClient) -> Iterator[PlayedCluster]:
    """A registry, a selector, a trainer and three agents, all ready; a fourth machine has a GPU to spare."""
    with played(engine, render(VALUES), MACHINES) as cluster:
        cluster.wait_until_ready()
        yield cluster


@pytest.fixture
def client(cluster: PlayedCluster) -> Iterator[Client]:
    with Client(f"{cluster.pods[f'{RELEASE}-registry-0'].address}:7400", patience_s=60) as client:
        yield client


def next_steps(events: Iterator[JobEvent]) -> tuple[GenerationFormed, list[WorkerLost]]:
    """The generation that commits a step next, and who was lost before it was formed."""
    formed, lost = None, list[WorkerLost]()
    for event in events:
        if isinstance(event, WorkerLost):
            lost.append(event)
        if isinstance(event, GenerationFormed):
            formed = event
        if isinstance(event, StepCommitted) and formed is not None:
            return formed, lost
    raise AssertionError(f"the job ended; {lost} were lost")


def test_each_pod_is_a_node_at_its_own_address(cluster: PlayedCluster, client: Client) -> None:
    agents = {pod.name: f"{pod.address}:7403" for pod in cluster.pods.values() if pod.gpus}
    assert {node.name: node.address for node in client.nodes(states=("alive",))} == agents
    assert sorted(agents) == [f"{POOL}-{number}" for number in range(3)]
    assert {service.address for service in client.services()} >= {
        f"{cluster.pods[f'{RELEASE}-{name}-0'].address}:{port}"
        for name, port in (("selector", 7401), ("trainer", 7402))
    }


def test_a_job_outlives_a_machine_and_an_eviction_with_as_many_gpus_as_asked(
    cluster: PlayedCluster, client: Client
) -> None:
    """It goes on with three workers each time: on the GPU that was to spare, and on one that became free."""
    job: JobHandle = client.train(
        "emulated", requests=3, min_workers=3, max_workers=3, epochs=1, batch_size=12,
        arguments={"samples": "1200", "sample_ms": "0", "step_ms": "100", "parameters": "10000"},
    )  # fmt: skip
    events = iter(job.watch())
    next_steps(events)

    machine = cluster.pods[f"{POOL}-1"].machine
    assert cluster.end_machine(machine) == [f"{POOL}-1"]
    assert cluster.reconcile() == [f"{POOL}-1"]
    assert cluster.pods[f"{POOL}-1"].machine == "four"
    formed, lost = next_steps(events)
    assert [event.worker.node_name for event in lost] == [f"{POOL}-1"]
    assert sorted(worker.node_name for worker in formed.workers) == [
        f"{POOL}-{number}" for number in range(3)
    ]

    assert cluster.delete(f"{POOL}-2") == 0, "it left within its grace"
    assert cluster.reconcile() == [f"{POOL}-2"]
    formed, _ = next_steps(events)
    assert len(formed.workers) == 3
    assert job.result(timeout_s=120).succeeded

    ended = {each.node_name: each for each in client.sessions() if each.end_time is not None}
    assert {name: each.interrupted for name, each in ended.items()} == {
        f"{POOL}-1": True,
        f"{POOL}-2": False,
    }, "only the machine that died counts as an interruption"
    assert [each.node_name for each in client.interruptions()] == [f"{POOL}-1"]
    wait_until(lambda: "" if len(client.nodes(states=("alive",))) == 3 else "not all are back")


def test_behind_a_door_each_pod_comes_in_by_the_token_that_its_secret_has_for_it(
    engine: docker.DockerClient, tmp_path: Path
) -> None:
    """Pods wait for their tokens; an agent that is evicted later needs none, and is the node that it was."""
    pool = {"replicas": 1, "settings": VALUES["pools"]["gpu"]["settings"]}
    values = {**VALUES, "door": {"enabled": True}, "pools": {"cpu": pool}}
    sets = {"selector": "selector", "trainer": "trainer", "node-cpu": "node"}
    with played(engine, render(values), {"office": 0}, tmp_path) as cluster:
        registry = cluster.pods[f"{RELEASE}-registry-0"]

        def ask(*words: str) -> str:
            status, said = registry.service.exec_run(["peerloom", *words], stderr=False)
            assert status == 0, said
            return str(said.decode().strip())

        cluster.wait_until_ready(registry.name)
        for name, role in sets.items():
            token = ask("token", "create", "--role", role)
            (tmp_path / f"{RELEASE}-join-{name}" / f"{RELEASE}-{name}-0").write_text(token)
        cluster.wait_until_ready()
        agent = f"{RELEASE}-node-cpu-0"
        nodes = json.loads(ask("nodes", "list", "-o", "json"))
        assert [(node["name"], node["state"]) for node in nodes] == [(agent, "alive")]

        (tmp_path / f"{RELEASE}-join-node-cpu" / agent).unlink()
        assert cluster.delete(agent) == 0
        cluster.reconcile()
        cluster.wait_until_ready()
        (again,) = json.loads(ask("nodes", "list", "-o", "json"))
        assert again["id"] == nodes[0]["id"]
