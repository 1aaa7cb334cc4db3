"""What no schema says of the chart's pods: that they fit the services in the images, and are contained."""

import re
from pathlib import Path
from typing import Any

import pytest
from rendered_chart import (
    BUCKET,
    CHART,
    NAMESPACE,
    RELEASE,
    SETS,
    URL,
    WAYS,
    Manifest,
    bytes_of,
    container,
    environment,
    of_kind,
    pods,
    render,
)

from peerloom.kit import server
from peerloom.kit.config import load_config
from peerloom.services.node_agent import __main__ as agent
from peerloom.services.node_agent.config import NodeConfig
from peerloom.services.registry.config import RegistryConfig
from peerloom.services.selector.config import SelectorConfig
from peerloom.services.trainer.config import TrainerConfig

CONFIGS: dict[str, type[Any]] = {
    "registry": RegistryConfig,
    "selector": SelectorConfig,
    "trainer": TrainerConfig,
    "node": NodeConfig,
}
DOCKERFILE = (CHART.parents[1] / "Dockerfile").read_text()
FIELDS = {"status.podIP": "10.1.2.3", "metadata.name": "demo-node-cpu-0", "metadata.uid": "0f" * 16}
SECRETS = {(f"{RELEASE}-database", "url"): URL, ("ours", "dsn"): URL}
each_way = pytest.mark.parametrize("way", WAYS)


def told(pod: Manifest) -> dict[str, str]:
    """The variables that a container of this pod begins with."""
    limits = container(pod)["resources"]["limits"]
    return environment(pod, FIELDS, SECRETS, {"limits.memory": str(bytes_of(limits["memory"]))})


def settings(pod: Manifest) -> Any:
    """What the pod's service makes of its variables. Raises ConfigurationError for what it refuses."""
    service = container(pod)["name"]
    return load_config(CONFIGS[service], service, [], told(pod))


@each_way
def test_each_service_takes_what_it_is_told(way: str) -> None:
    """By its own definitions: an unknown name or a bad value would raise, as it would in the pod."""
    for name, pod in pods(render(WAYS[way])).items():
        config = settings(pod)
        if hasattr(config, "check"):
            config.check()
        # For each Service a cluster would add variables such as PEERLOOM_REGISTRY_PORT, which is no setting.
        assert pod["spec"]["enableServiceLinks"] is False, name
        assert not {"command", "args"} & set(container(pod)), name
        assert config.state.startswith("/var/lib/peerloom/"), "below the volume, which isn't the user's own"


def test_a_release_gives_its_database_a_name_so_that_another_one_is_refused() -> None:
    name = f"{RELEASE}-registry"
    assert settings(pods(render())[name]).system == f"{NAMESPACE}/{RELEASE}"
    moved = render({"registry": {"settings": {"system": "before"}}})
    assert settings(pods(moved)[name]).system == "before"


@each_way
def test_others_are_told_the_pod_s_own_address(way: str) -> None:
    for name, pod in pods(render(WAYS[way])).items():
        config, (port, *_) = settings(pod), container(pod)["ports"]
        assert config.listen == f"0.0.0.0:{port['containerPort']}", name
        if container(pod)["name"] != "registry":
            assert config.advertise == f"10.1.2.3:{port['containerPort']}", name


@each_way
def test_probes_ask_a_port_and_a_name_that_are_there(way: str) -> None:
    for name, pod in pods(render(WAYS[way])).items():
        port = container(pod)["ports"][0]["containerPort"]
        asked = {kind: container(pod)[f"{kind}Probe"] for kind in ("startup", "liveness", "readiness")}
        for kind, probe in asked.items():
            if "exec" in probe:
                *python, program, at, _, health = probe["exec"]["command"]
                assert python == ["python", "-IS"]
                assert f"{Path(program).name} {Path(program).parent}/\n" in DOCKERFILE
                assert (Path(CHART.parents[1], Path(program).name).exists(), at) == (True, str(port))
            else:
                assert probe["grpc"]["port"] == port, name
                health = probe["grpc"]["service"]
            stands_by = kind == "readiness" and way in ("standbys", "bucket") and "node" not in name
            assert health == (server.LIVE if kind != "readiness" or stands_by else ""), (name, kind)
        assert ("exec" in probe) == (way == "door"), "a kubelet asks without a certificate"


@each_way
def test_a_pod_has_the_time_to_leave_that_its_service_takes(way: str) -> None:
    """An agent's workers hand over, its calls end, its inference server ends: at worst in this order."""
    agents_s = agent._WORKERS_GRACE_S + server.STOP_GRACE_S + agent._WORKERS_GRACE_S
    for name, pod in pods(render(WAYS[way])).items():
        needed_s = agents_s if container(pod)["name"] == "node" else server.STOP_GRACE_S
        assert pod["spec"]["terminationGracePeriodSeconds"] >= needed_s * 1.5, name


@each_way
def test_every_pod_is_contained(way: str) -> None:
    user = re.search(r"--uid (\d+)", DOCKERFILE)
    assert user is not None
    for name, pod in pods(render(WAYS[way])).items():
        whole, own = pod["spec"]["securityContext"], container(pod)["securityContext"]
        assert whole["runAsNonRoot"] is True, name
        assert whole["runAsUser"] == whole["runAsGroup"] == whole["fsGroup"] == int(user[1]), name
        assert whole["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert own["allowPrivilegeEscalation"] is False, name
        assert own["readOnlyRootFilesystem"] is True, name
        assert own["capabilities"] == {"drop": ["ALL"]}, name
        assert pod["spec"]["automountServiceAccountToken"] is False, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod["spec"]), name


@each_way
def test_what_is_mounted_is_there_and_none_of_it_is_the_machine_s(way: str) -> None:
    for name, each in of_kind(render(WAYS[way]), *SETS).items():
        pod, claims = each["spec"]["template"], each["spec"].get("volumeClaimTemplates", [])
        mounted = sorted(mount["name"] for mount in container(pod)["volumeMounts"])
        volumes = [volume["name"] for volume in pod["spec"]["volumes"]]
        assert mounted == sorted([*volumes, *(claim["metadata"]["name"] for claim in claims)]), name
        assert not any("hostPath" in volume for volume in pod["spec"]["volumes"]), name


@each_way
def test_secrets_are_in_secrets_alone(way: str) -> None:
    manifests = render(WAYS[way])
    made = of_kind(manifests, "Secret")
    for each in manifests:
        assert each["kind"] == "Secret" or "pass-word" not in str(each)
    for name, pod in pods(manifests).items():
        service, variables = container(pod)["name"], told(pod)
        assert not any(variable.endswith("_JOIN") for variable in variables), name
        assert (variables.get(f"PEERLOOM_{service.upper()}_DATABASE") == URL) == (
            "database" in WAYS[way] and service != "node"
        )
        for entry in container(pod)["env"]:
            reference = entry.get("valueFrom", {}).get("secretKeyRef", {"name": "ours"})
            assert reference["name"] in ("ours", *made)
        tokens = [each["secret"] for each in pod["spec"]["volumes"] if each["name"] == "tokens"]
        assert bool(tokens) == (way == "door" and service != "registry"), name
        for secret in tokens:
            assert secret["secretName"] == name.replace(RELEASE, f"{RELEASE}-join", 1)
            assert variables["TOKENS"] in [each["mountPath"] for each in container(pod)["volumeMounts"]]


@each_way
def test_agents_glean_and_the_coordinators_do_not(way: str) -> None:
    manifests = render(WAYS[way])
    for name, pod in pods(manifests).items():
        priority = pod["spec"].get("priorityClassName", "")
        if container(pod)["name"] != "node":
            assert priority == "", name
        elif made := of_kind(manifests, "PriorityClass"):
            assert priority == f"{NAMESPACE}-{RELEASE}-nodes"
            assert (made[priority]["value"], made[priority]["preemptionPolicy"]) == (-1000, "Never")
        else:
            assert priority == "spare"


def test_a_pool_asks_for_as_many_gpus_as_it_was_told_and_leaves_the_slots_to_the_agent() -> None:
    found = pods(render(WAYS["GPUs"]))
    assert {name for name in found if "-node-" in name} == {f"{RELEASE}-node-gpu", f"{RELEASE}-node-all"}
    for pool, count in (("gpu", 2), ("all", 8)):
        pod = found[f"{RELEASE}-node-{pool}"]
        assert container(pod)["resources"]["limits"]["nvidia.com/gpu"] == count
        assert (settings(pod).slots, settings(pod).accelerator) == (-1, "cuda")
    assert "nvidia.com/gpu" not in container(pods(render())[f"{RELEASE}-node-cpu"])["resources"]["limits"]


def test_a_node_s_name_lasts_as_long_as_the_key_that_it_belongs_to() -> None:
    kept, lost = render(), render(WAYS["no volume"])
    name = f"{RELEASE}-node-cpu"
    assert settings(pods(kept)[name]).name == FIELDS["metadata.name"]
    assert settings(pods(lost)[name]).name == f"cpu-{FIELDS['metadata.uid']}"
    sets = [of_kind(manifests, "StatefulSet")[name]["spec"] for manifests in (kept, lost)]
    assert ["volumeClaimTemplates" in each for each in sets] == [True, False]


def test_memory_and_settings_reach_the_agent_as_they_were_given() -> None:
    config = settings(pods(render(WAYS["policies and settings"]))[f"{RELEASE}-node-cpu"])
    assert (config.memory_limit_bytes, config.idle_load, config.log_limit_bytes, config.allow_code) == (
        4 * 2**30,
        0.5,
        10**9,
        True,
    )


def test_trainers_alone_are_given_the_bucket_and_what_opens_it() -> None:
    for name, pod in pods(render(WAYS["bucket"])).items():
        is_trainer = container(pod)["name"] == "trainer"
        given = (told(pod).get("PEERLOOM_TRAINER_ARTIFACTS"), container(pod).get("envFrom"))
        expected = (BUCKET["url"], [{"secretRef": {"name": BUCKET["secret"]}}])
        assert given == (expected if is_trainer else (None, None)), name
        assert not is_trainer or settings(pod).artifacts == BUCKET["url"]
