"""The chart's control plane with two replicas of each on one PostgreSQL: a job outlives its leaders."""

import socket
from collections.abc import Iterator
from pathlib import Path

import docker
import psutil
import pytest
from compose_stack import TAG
from databases import new_database
from played_cluster import LONG_JOB, PlayedCluster, living, played, step_of, wait_until
from rendered_chart import RELEASE, STANDBYS, Manifest, render

from benchmarks.new_database import by_proxy
from peerloom import Client, Job
from peerloom.embedded.health import Prober

pytestmark = [pytest.mark.network, pytest.mark.timeout(300)]
LAPSED = "start this process again, unless what keeps it running does."
PORTS = {"registry": 7400, "selector": 7401, "trainer": 7402}
VALUES: Manifest = {
    **STANDBYS,
    "image": {"tag": TAG},
    "trainer": {"replicas": 2, "settings": {"evaluate": "off"}},
    "pools": {
        "cpu": {
            "replicas": 3,
            "resources": {"limits": {"memory": "2Gi"}},
            "settings": {"threads_per_slot": 1, "measure_interval_s": 0},
        }
    },
}


@pytest.fixture
def cluster(engine: docker.DockerClient, tmp_path: Path) -> Iterator[PlayedCluster]:
    """Two pods of each coordinator, on three machines with an agent each; the database is this machine's."""
    with new_database("postgresql", tmp_path) as url, by_proxy(url, own_address(engine)) as (_, there):
        manifests = render({**VALUES, "database": {"url": there}})
        with played(engine, manifests, {"one": 0, "two": 0, "three": 0}) as cluster:
            cluster.wait_until_ready()
            yield cluster


def own_address(engine: docker.DockerClient) -> str:
    """This machine's address on Docker's own network; Docker names it as the gateway only after a restart."""
    bridge = engine.networks.get("bridge").attrs["Options"]["com.docker.network.bridge.name"]
    addresses = psutil.net_if_addrs()[bridge]
    return next(each.address for each in addresses if each.family == socket.AF_INET)


def leaders(cluster: PlayedCluster) -> dict[str, str]:
    """The pod that leads of each service, where there is one."""
    found = dict[str, str]()
    with Prober() as prober:
        for service, port in PORTS.items():
            pods = [f"{RELEASE}-{service}-{number}" for number in range(2)]
            serving = [
                name for name in pods if prober.health(f"{cluster.pods[name].address}:{port}") == "SERVING"
            ]
            assert len(serving) < 2, f"{serving} lead at once"
            if serving:
                found[service] = serving[0]
    return found


def all_leaders(cluster: PlayedCluster) -> dict[str, str]:
    """The same, once each service has one."""
    found = dict[str, str]()

    def missing() -> str:
        found.clear()
        found.update(leaders(cluster))
        return "" if len(found) == len(PORTS) else f"only {found} lead"

    wait_until(missing)
    return found


def ended_otherwise(cluster: PlayedCluster) -> dict[str, int]:
    """How often each pod ended but for a lease: where all begin at once a busy machine may have it lapse."""
    others = {name: len(cluster.pods[name].ends) - count for name, count in lapses(cluster).items()}
    return {name: count for name, count in others.items() if count}


def lapses(cluster: PlayedCluster) -> dict[str, int]:
    """How often each pod let go of a lease that it couldn't renew in time."""
    pods = cluster.pods.values()
    return {pod.name: sum(text.rstrip().endswith(LAPSED) for text in pod.ends) for pod in pods}


def leaders_since(cluster: PlayedCluster, led: dict[str, str], before: dict[str, int]) -> dict[str, str]:
    """Who leads now, all being ready: who led, but where a pod has let go since there were these lapses."""
    found = dict[str, str]()

    def unexplained() -> str:
        cluster.wait_until_ready()  # who has ended is begun again, which counts as a lapse from then on
        found.update(all_leaders(cluster))
        moved = {name for name, count in lapses(cluster).items() if count != before[name]}
        taken = [service for service in PORTS if found[service] != led[service]]
        taken = [service for service in taken if not any(f"{RELEASE}-{service}-" in name for name in moved)]
        return f"{found} lead, and no pod of {taken} that led has let go" if taken else ""

    wait_until(unexplained)
    return found


def test_a_job_outlives_all_leaders_and_then_a_leader_s_eviction_and_an_agent_s(
    cluster: PlayedCluster,
) -> None:
    first = all_leaders(cluster)
    registries = [cluster.pods[f"{RELEASE}-registry-{number}"].address for number in range(2)]
    with Client(",".join(f"{address}:7400" for address in registries), patience_s=60) as client:
        job = client.train(
            "emulated", requests=2, min_workers=2, max_workers=2, epochs=1, batch_size=12, arguments=LONG_JOB
        )

        def go_on(beyond: int, without: frozenset[str] = frozenset()) -> Job:
            def missing() -> str:
                now = job.status()
                whole = step_of(now) > beyond and len(living(now) - without) == 2
                return "" if whole else f"step {step_of(now)}, workers {living(now)}: {now.reason}"

            wait_until(missing)
            return job.status()

        before = go_on(0)
        for name in first.values():
            cluster.kill(name)
        second, lapsed = all_leaders(cluster), lapses(cluster)
        assert not set(second.values()) & set(first.values())
        after = go_on(step_of(before))
        assert living(after) == living(before), "workers need no coordinator"

        third = leaders_since(cluster, second, lapsed)  # who comes back stands by
        ends = {pod.name: pod.ends for pod in cluster.pods.values() if pod.ends}
        assert ended_otherwise(cluster) == dict.fromkeys(first.values(), 1), ends

        place = client.node(after.workers[0].node_name)
        evicted = next(
            pod.name for pod in cluster.pods.values() if place.address.startswith(f"{pod.address}:")
        )
        assert cluster.delete(third["trainer"]) == 0
        assert cluster.delete(evicted) == 0
        assert sorted(cluster.reconcile()) == sorted([third["trainer"], evicted])
        lapsed = lapses(cluster)
        gone = frozenset(worker.id for worker in after.workers if worker.node_name == place.name)
        go_on(step_of(after), gone)
        (other,) = {f"{RELEASE}-trainer-{number}" for number in range(2)} - {third["trainer"]}
        leaders_since(cluster, {**third, "trainer": other}, lapsed)
        ended = job.cancel()
    assert (ended.state, ended.begun_anew) == ("cancelled", 0)
