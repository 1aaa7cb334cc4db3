"""What no schema says of the chart: selectors, Services and policies mean the pods that are there."""

import pytest
from rendered_chart import RELEASE, SETS, STANDBYS, WAYS, Manifest, chosen, container, of_kind, pods, render

each_way = pytest.mark.parametrize("way", WAYS)


@each_way
def test_selectors_choose_the_pods_that_they_mean_and_no_others(way: str) -> None:
    manifests = render(WAYS[way])
    labels = {name: pod["metadata"]["labels"] for name, pod in pods(manifests).items()}
    for name, each in of_kind(manifests, *SETS, "PodDisruptionBudget").items():
        assert [one for one in labels if chosen(each["spec"]["selector"], labels[one])] == [name]
    for name, each in of_kind(manifests, "Service").items():
        wanted = dict(each["spec"]["selector"])
        pod = wanted.pop("statefulset.kubernetes.io/pod-name", "")
        (found,) = [one for one in labels if chosen({"matchLabels": wanted}, labels[one])]
        assert name == (pod or found)
        assert not pod or (pod.rpartition("-")[0] == found and each["spec"].get("clusterIP") != "None")
        ports = {port["name"] for port in container(pods(manifests)[found])["ports"]}
        assert {port["targetPort"] for port in each["spec"]["ports"]} <= ports
    for name, each in of_kind(manifests, "StatefulSet").items():
        assert each["spec"]["serviceName"] in of_kind(manifests, "Service"), name


@each_way
def test_the_registry_s_addresses_are_services_that_outlive_pods(way: str) -> None:
    manifests = render(WAYS[way])
    services, replicas = of_kind(manifests, "Service"), WAYS[way].get("registry", {}).get("replicas", 1)
    for name, pod in pods(manifests).items():
        service = container(pod)["name"]
        variable = "PEERLOOM_ADDRESS" if service == "registry" else f"PEERLOOM_{service.upper()}_REGISTRY"
        (given,) = [each["value"] for each in container(pod)["env"] if each["name"] == variable]
        hosts, ports = zip(*(one.split(":") for one in given.split(",")), strict=True)
        assert hosts == tuple(f"{RELEASE}-registry-{number}" for number in range(replicas)), name
        for host, port in zip(hosts, ports, strict=True):
            assert int(port) in [each["port"] for each in services[host]["spec"]["ports"]], name
            assert services[host]["spec"]["publishNotReadyAddresses"] is True, "a standby isn't ready"


def admits(rules: list[Manifest], peer: Manifest, port: Manifest, side: str) -> bool:
    """Whether one of a policy's rules lets a pod with these labels (of the same namespace) use that port."""
    for rule in rules:
        peers = rule.get(side, [{"podSelector": {}}])
        known = any(chosen(each["podSelector"], peer) for each in peers if "podSelector" in each)
        ports = rule.get("ports", [{"port": port["name"]}])
        if known and any(each["port"] in (port["name"], port["containerPort"]) for each in ports):
            return True
    return False


@each_way
def test_network_policies_let_the_system_and_its_clients_in_and_nobody_else(way: str) -> None:
    manifests = render(WAYS[way])
    policies = [each["spec"] for each in of_kind(manifests, "NetworkPolicy").values()]
    labels = {name: pod["metadata"]["labels"] for name, pod in pods(manifests).items()}
    for name, pod in pods(manifests).items():
        mine = [each for each in policies if chosen(each["podSelector"], labels[name])]
        inwards = [rule for each in mine if "Ingress" in each["policyTypes"] for rule in each["ingress"]]
        outwards = [rule for each in mine if "Egress" in each["policyTypes"] for rule in each["egress"]]
        assert bool(outwards) == (container(pod)["name"] == "node"), "jobs' code runs on agents"
        for port in (*container(pod)["ports"], {"name": "of a worker", "containerPort": 40_000}):
            for other in labels.values():
                assert admits(inwards, other, port, "from")
                assert not outwards or admits(outwards, other, port, "to")
            assert admits(inwards, {"peerloom/client": RELEASE}, port, "from")
            assert not admits(inwards, {"app": "another"}, port, "from")
            assert not admits(outwards, {"app": "another"}, port, "to")


def test_a_drain_leaves_one_of_two_coordinators_and_all_but_one_of_a_pool() -> None:
    assert set(of_kind(render(), "PodDisruptionBudget")) == {f"{RELEASE}-node-cpu"}
    found = of_kind(render(STANDBYS), "PodDisruptionBudget")
    assert set(found) == {f"{RELEASE}-{name}" for name in ("registry", "selector", "trainer", "node-cpu")}
    assert {each["spec"]["maxUnavailable"] for each in found.values()} == {1}


def test_labels_for_kueue_stand_on_the_pool() -> None:
    labels = of_kind(render(WAYS["Kueue"]), "StatefulSet")[f"{RELEASE}-node-cpu"]["metadata"]["labels"]
    found = {name: value for name, value in labels.items() if name.startswith("kueue.x-k8s.io/")}
    assert found == {"kueue.x-k8s.io/queue-name": "spare", "kueue.x-k8s.io/priority-class": "low"}
    assert "kueue" not in str(render())


def test_the_monitor_reads_each_service_s_port_for_metrics() -> None:
    """Its schema is the operator's own, which isn't at hand: its shape is that of the operator's pages."""
    manifests = render(WAYS["monitor"])
    (monitor,) = of_kind(manifests, "ServiceMonitor").values()
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert set(monitor["spec"]) == {"selector", "endpoints"}
    assert monitor["spec"]["endpoints"] == [{"port": "metrics", "interval": "30s"}]
    read = {
        name
        for name, each in of_kind(manifests, "Service").items()
        if chosen(monitor["spec"]["selector"], each["metadata"]["labels"])
        and "metrics" in [port["name"] for port in each["spec"]["ports"]]
    }
    assert read == set(pods(manifests))
    for pod in pods(manifests).values():
        assert {"name": "metrics", "containerPort": 9400} in container(pod)["ports"]
