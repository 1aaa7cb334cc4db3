"""The chart's pods, kept by a cluster: a DaemonSet has one on each machine, and what froze is begun again."""

from collections.abc import Iterator

import docker
import pytest
from compose_stack import TAG
from played_cluster import LONG_JOB, Liveness, PlayedCluster, living, played, step_of, wait_until
from rendered_chart import RELEASE, Manifest, render

from peerloom import Client

pytestmark = [pytest.mark.network, pytest.mark.timeout(400)]
TRAINER = f"{RELEASE}-trainer-0"
VALUES: Manifest = {
    "image": {"tag": TAG},
    "trainer": {"settings": {"evaluate": "off"}},
    "pools": {
        "cpu": None,
        "each": {
            "kind": "DaemonSet",
            "resources": {"limits": {"memory": "2Gi"}},
            "settings": {"threads_per_slot": 1, "measure_interval_s": 0},
        },
    },
}
RESTART_LIMIT_S = 240.0  # after six failures, 10 s apart, a pod has its grace; two are frozen


@pytest.fixture(scope="module")
def cluster(engine: docker.DockerClient) -> Iterator[PlayedCluster]:
    """The three coordinators, and an agent on each of two machines, all ready."""
    with played(engine, render(VALUES), {"one": 0, "two": 0}) as cluster:
        cluster.wait_until_ready()
        yield cluster


@pytest.fixture
def client(cluster: PlayedCluster) -> Iterator[Client]:
    with Client(f"{cluster.pods[f'{RELEASE}-registry-0'].address}:7400", patience_s=60) as client:
        yield client


def agents(cluster: PlayedCluster) -> dict[str, str]:
    """The pods of the DaemonSet, by their machines."""
    return {pod.machine: pod.name for pod in cluster.pods.values() if pod.owner["kind"] == "DaemonSet"}


def alive(client: Client) -> set[str]:
    return {node.address for node in client.nodes(states=("alive",))}


def addresses(cluster: PlayedCluster) -> set[str]:
    return {f"{cluster.pods[name].address}:7403" for name in agents(cluster).values()}


def test_a_daemonset_has_a_pod_on_each_machine_and_one_more_when_one_comes(
    cluster: PlayedCluster, client: Client
) -> None:
    assert sorted(agents(cluster)) == ["one", "two"]
    assert alive(client) == addresses(cluster)
    assert cluster.reconcile() == [], "each machine has its pod"

    cluster.add_machine("three", 0)
    (new,) = cluster.reconcile()
    assert agents(cluster)["three"] == new
    cluster.wait_until_ready(new)
    assert len(addresses(cluster)) == 3
    assert alive(client) == addresses(cluster)


def test_a_frozen_trainer_and_a_frozen_agent_are_begun_again_and_the_job_goes_on(
    cluster: PlayedCluster, client: Client
) -> None:
    """Both are there and say nothing: only their liveness probes tell; nobody else is restarted.

    With the agent's container goes its worker, which stepped on while the agent was frozen.
    """
    job = client.train(
        "emulated", requests=2, min_workers=2, max_workers=2, epochs=1, batch_size=12, arguments=LONG_JOB
    )
    wait_until(lambda: "" if step_of(job.status()) > 0 else "no step yet")
    lost = job.status().workers[0]
    place = client.node(lost.node_name).address
    frozen = {TRAINER, next(pod.name for pod in cluster.pods.values() if f"{pod.address}:7403" == place)}
    for name in frozen:
        cluster.freeze(name)

    def restarted() -> set[str]:
        return {pod.name for pod in cluster.pods.values() if pod.ends}

    cluster.keep_alive(lambda: "" if restarted() >= frozen else f"{restarted()} of {frozen}", RESTART_LIMIT_S)
    assert {pod.name: len(pod.ends) for pod in cluster.pods.values() if pod.ends} == dict.fromkeys(frozen, 1)
    cluster.wait_until_ready()
    wait_until(lambda: "" if alive(client) == addresses(cluster) else "not all nodes are back")

    def missing() -> str:
        left = living(job.status())
        return "" if len(left - {lost.id}) == 2 else f"of the workers are left {left}, {lost.id} was lost"

    wait_until(missing)
    before = step_of(job.status())
    wait_until(lambda: "" if step_of(job.status()) > before else f"no step after {before}: {job.status()}")
    ended = job.cancel()
    assert (ended.state, ended.begun_anew) == ("cancelled", 0)


@pytest.mark.parametrize(
    ("answers", "restarts"),
    [
        (["", "", ""], [False, False, False]),
        (["no", "no", "no", "no"], [False, False, True, False]),
        (["no", "no", "", "no", "no", "no"], [False, False, False, False, False, True]),
    ],
)
def test_a_liveness_probe_has_to_fail_so_often_in_a_row(answers: list[str], restarts: list[bool]) -> None:
    liveness = Liveness({"periodSeconds": 10, "failureThreshold": 3})
    assert [liveness.heard(answer) for answer in answers] == restarts


def test_a_liveness_probe_is_due_once_a_period() -> None:
    liveness = Liveness({"periodSeconds": 10, "failureThreshold": 3})
    assert [liveness.is_due(now_s) for now_s in (100.0, 100.2, 109.9, 110.0, 110.1)] == [
        *(True, False, False, True, False)
    ]
