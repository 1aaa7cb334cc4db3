"""The Helm chart is valid for each Kubernetes of today, and refuses bad values by name."""

import json
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from typing import Any

import helm_python as helm
import kubernetes_validate
import pytest
import yaml
from kubernetes_validate import utils
from rendered_chart import (
    CHART,
    NAMESPACE,
    RELEASE,
    STANDBYS,
    TWO,
    URL,
    WAYS,
    Manifest,
    notes,
    of_kind,
    render,
)

from peerloom.services.node_agent.config import NodeConfig
from peerloom.services.registry.config import RegistryConfig
from peerloom.services.selector.config import SelectorConfig
from peerloom.services.trainer.config import TrainerConfig

VERSIONS = ("1.30", "1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37")
# What the chart itself says, so that settings can't.
OF_THE_CHART = {
    "advertise", "allow_plain", "artifacts", "database", "join", "join_listen", "listen",
    "memory_limit_bytes", "metrics", "name", "registry", "state",
}  # fmt: skip


@pytest.fixture(scope="module")
def schemas_read_once() -> Iterator[None]:
    """The validator reads the definitions of a version, 2 MB, for each manifest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "schema_contents", cache(utils.schema_contents))
        yield


@cache
def all_manifests() -> list[Manifest]:
    """Each different manifest of all ways, but those whose schema is no part of Kubernetes."""
    found = {json.dumps(each, sort_keys=True): each for values in WAYS.values() for each in render(values)}
    return [each for each in found.values() if each["kind"] != "ServiceMonitor"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("version", VERSIONS)
def test_all_that_is_rendered_is_valid(version: str, schemas_read_once: None) -> None:
    assert f"{version}.0" in utils.all_versions()
    for manifest in all_manifests():
        assert kubernetes_validate.validate(manifest, version, strict=True) == version


def test_a_misspelled_field_of_a_manifest_would_be_found() -> None:
    (budget,) = of_kind(render(), "PodDisruptionBudget").values()
    budget["spec"]["maxUnavailible"] = budget["spec"].pop("maxUnavailable")
    with pytest.raises(kubernetes_validate.ValidationError, match="maxUnavailible"):
        kubernetes_validate.validate(budget, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("way", WAYS)
def test_helm_s_lint_finds_nothing(way: str) -> None:
    report = helm.lint(CHART, WAYS[way], strict=True, namespace=NAMESPACE, kube_version="v1.30.0")
    assert [each for each in report["messages"] if each["error"] != "icon is recommended"] == []


def test_the_package_holds_what_the_folder_does(tmp_path: Any) -> None:
    with helm.Chart.load(helm.package(CHART, destination=tmp_path)) as packed:
        assert packed.name == "peerloom"
        assert {each["name"] for each in packed.templates} >= {"templates/pools.yaml", "templates/NOTES.txt"}
        assert packed.schema is not None


def test_the_schema_knows_each_setting_that_the_chart_does_not_say_itself() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    services = {"registry": RegistryConfig, "selector": SelectorConfig, "trainer": TrainerConfig}
    for name, config in services.items():
        known = schema["properties"][name]["properties"]["settings"]["properties"]
        assert set(known) == {field.name for field in fields(config)} - OF_THE_CHART, name
    pool = schema["$defs"]["pool"]["properties"]["settings"]["properties"]
    assert set(pool) == {field.name for field in fields(NodeConfig)} - OF_THE_CHART


def test_every_value_has_a_default_and_the_schema_knows_no_other() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(values) == set(schema["properties"])
    assert set(values["poolDefaults"]) == set(schema["$defs"]["pool"]["properties"])


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"regsitry": {}}, "additional properties 'regsitry' not allowed"),
        (
            {"registry": {"settings": {"presett": "lan"}}},
            "/settings': additional properties 'presett'",
        ),
        ({"trainer": {"settings": {"join": "plj1"}}}, "'/trainer/settings': additional properties 'join'"),
        ({"registry": {"replicas": 0}}, "'/registry/replicas': minimum: got 0, want 1"),
        ({"pools": {"gpu": {"gpus": "many"}}}, "'/pools/gpu/gpus': got string, want integer"),
        ({"pools": {"GPU": {}}}, "invalid propertyName 'GPU'"),
        ({"pools": {"a": {"kind": "Deployment"}}}, "'/pools/a/kind': value must be one of"),
        ({"pools": {"a": {"terminationGracePeriodSeconds": 5}}}, "/terminationGracePeriodSeconds': minimum"),
        (
            {"pools": {"a": {"resources": {"limits": {"memory": "lots"}}}}},
            "/a/resources/limits/memory'",
        ),
        ({"priority": {"value": 5}}, "'/priority/value': maximum: got 5, want -1"),
        ({"priority": {"create": False}}, "priority.name must name the PriorityClass"),
        ({"registry": TWO}, "registry.replicas is 2, but without database.url or database.secret.name"),
        ({"trainer": TWO}, "trainer.replicas is 2, but without database"),
        ({"selector": {"storage": {"size": ""}}}, "selector has no database: give database.url"),
        ({"database": {"url": "sqlite:////x"}}, "database.url must be postgresql"),
        ({"database": {"url": URL, "secret": {"name": "ours"}}}, "are two databases"),
        ({"objectStore": {"url": "/models"}}, 'objectStore.url is "/models", but must be s3://'),
        ({"objectStore": {"secret": "bucket"}}, "objectStore.secret is given without objectStore.url"),
        ({**STANDBYS, "door": {"enabled": True}}, "registry.replicas is 2, but door.enabled allows one"),
        ({"door": {"enabled": True}, "pools": {"cpu": {"kind": "DaemonSet"}}}, "pools.cpu keeps no identity"),
        ({"pools": {"cpu": {"kind": "DaemonSet", "kueue": {"queue": "q"}}}}, "Kueue queues no DaemonSet"),
        ({"metrics": {"serviceMonitor": {"enabled": True}}}, "needs metrics.enabled"),
    ],
)
def test_bad_values_are_refused_by_name(values: Manifest, told: str) -> None:
    with pytest.raises(helm.HelmError) as refused:
        render(values)
    assert told in str(refused.value)


def test_a_release_s_name_that_gives_too_long_names_is_refused() -> None:
    with pytest.raises(helm.HelmError, match="more than 26 characters"):
        render(release="r" * 27)
    longest = render({"pools": {"p" * 20: {}}}, release="r" * 26)
    assert max(len(name) for name in of_kind(longest, "StatefulSet")) == 52  # and labels made of it have 63


def test_the_notes_say_what_to_do_next() -> None:
    assert f"exec {RELEASE}-registry-0 -- peerloom status" in notes()
    assert "It has no door" in notes()
    assert (
        f"Secret {RELEASE}-join-node-cpu: a file for each of {RELEASE}-node-cpu-0 and on, 2 in all"
        in notes(WAYS["door"])
    )
