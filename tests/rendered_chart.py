"""The Helm chart as a cluster would get it: rendered by Helm's own library, which asks no cluster."""

from functools import cache
from pathlib import Path
from typing import Any

import helm_python as helm
import yaml

CHART = Path(__file__).parents[1] / "deploy" / "helm" / "peerloom"
RELEASE, NAMESPACE = "demo", "lab"
URL = "postgresql+psycopg://peerloom:pass-word@10.0.0.9/peerloom"
Manifest = dict[str, Any]
SETS = ("StatefulSet", "DaemonSet")
TWO = {"replicas": 2}
STANDBYS = {"database": {"url": URL}, "registry": TWO, "selector": TWO, "trainer": TWO}
BUCKET = {"url": "s3://lab/peerloom", "secret": "bucket"}
# Ways to use the chart that are told apart by its values.
WAYS: dict[str, Manifest] = {
    "default": {},
    "standbys": STANDBYS,
    "bucket": {**STANDBYS, "objectStore": BUCKET},
    "a Secret of ours": {
        "database": {"secret": {"name": "ours", "key": "dsn"}},
        "registry": {"storage": {"size": ""}},
    },
    "GPUs": {"pools": {"cpu": None, "gpu": {"gpus": 2}, "all": {"gpus": 8, "kind": "DaemonSet"}}},
    "no volume": {"pools": {"cpu": {"storage": {"size": ""}, "tolerations": [{"operator": "Exists"}]}}},
    "door": {"door": {"enabled": True}, "image": {"pullSecrets": ["ours"]}},
    "Kueue": {
        "pools": {"cpu": {"kueue": {"queue": "spare", "priorityClass": "low"}, "runtimeClassName": "nvidia"}}
    },
    "monitor": {
        "metrics": {
            "enabled": True,
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "from": [{"namespaceSelector": {"matchLabels": {"name": "watching"}}}],
        }
    },
    "policies and settings": {
        "networkPolicy": {
            "egress": [{"to": [{"ipBlock": {"cidr": "10.9.0.0/16"}}]}],
            "clients": [{"podSelector": {"matchLabels": {"team": "ours"}}}],
        },
        "priority": {"create": False, "name": "spare"},
        "pools": {"cpu": {"settings": {"idle_load": 0.5, "log_limit_bytes": 10**9, "allow_code": True}}},
    },
}


@cache
def chart() -> helm.Chart:
    """The chart, read once."""
    return helm.Chart.load(CHART)


def render(values: Manifest | None = None, release: str = RELEASE) -> list[Manifest]:
    """All manifests that these values give. Raises helm.HelmError for values that are refused."""
    chart().validate_schema(values or {})
    files = chart().render(values or {}, name=release, namespace=NAMESPACE)
    texts = [text for name, text in files.items() if not name.endswith(".txt")]
    return [each for text in texts for each in yaml.safe_load_all(text) if each]


def notes(values: Manifest | None = None) -> str:
    """What Helm tells whoever installed it."""
    return chart().render(values or {}, name=RELEASE, namespace=NAMESPACE)["peerloom/templates/NOTES.txt"]


def of_kind(manifests: list[Manifest], *kinds: str) -> dict[str, Manifest]:
    """Those of these kinds, by name."""
    return {each["metadata"]["name"]: each for each in manifests if each["kind"] in kinds}


def pods(manifests: list[Manifest]) -> dict[str, Manifest]:
    """The pods' templates, by the name of their set."""
    return {name: each["spec"]["template"] for name, each in of_kind(manifests, *SETS).items()}


def container(pod: Manifest) -> Manifest:
    """A pod's only container."""
    (only,) = pod["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def environment(
    pod: Manifest, fields: dict[str, str], secrets: dict[tuple[str, str], str], resources: dict[str, str]
) -> dict[str, str]:
    """The container's variables, as a kubelet finds them; references to earlier ones are resolved.

    `fields` has the pod's own by path, `secrets` values by name and key, `resources` by resource.
    """
    found: dict[str, str] = {}
    for entry in container(pod)["env"]:
        assert entry["name"] not in found, f"{entry['name']} is given twice"
        source = entry.get("valueFrom", {})
        if "fieldRef" in source:
            value = fields[source["fieldRef"]["fieldPath"]]
        elif "secretKeyRef" in source:
            value = secrets[source["secretKeyRef"]["name"], source["secretKeyRef"]["key"]]
        elif "resourceFieldRef" in source:
            value = resources[source["resourceFieldRef"]["resource"]]
        else:
            value = entry["value"]
            for name, earlier in found.items():
                value = value.replace(f"$({name})", earlier)
        found[entry["name"]] = value
    return found


def chosen(selector: Manifest, labels: Manifest) -> bool:
    """Whether a selector's matchLabels choose what has these labels."""
    assert set(selector) <= {"matchLabels"}, selector
    wanted: dict[str, str] = selector.get("matchLabels", {})
    return wanted.items() <= labels.items()


def bytes_of(quantity: str) -> int:
    """A quantity of memory, e.g. 4Gi, in bytes."""
    units = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "k": 10**3, "M": 10**6, "G": 10**9}
    unit = next((unit for unit in units if quantity.endswith(unit)), "")
    return int(float(quantity.removesuffix(unit)) * units.get(unit, 1))
