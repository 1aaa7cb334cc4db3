"""Every metric keeps Prometheus's rules, and the docs and the dashboard tell of what there is."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector
from scraping import Scrape

from peerloom.kit.call_metrics import CallMetrics
from peerloom.kit.metrics import Metric, MetricKind, Reading, Tally
from peerloom.kit.metrics_server import family_of
from peerloom.services.node_agent.node_metrics import NodeMetrics
from peerloom.services.registry.registry_metrics import RegistryMetrics
from peerloom.services.selector.selector_metrics import SelectorMetrics
from peerloom.services.trainer.trainer_metrics import TrainerMetrics

ROOT = Path(__file__).parents[2]
SOURCES = {
    "Every process": CallMetrics,
    "Registry": RegistryMetrics,
    "Selector": SelectorMetrics,
    "Trainer": TrainerMetrics,
    "Node agent": NodeMetrics,
}
METRICS = [metric for source in SOURCES.values() for metric in source.metrics]
# As client_golang's promlint has them, which `promtool check metrics` asks.
NOT_BASE_UNITS = {
    *("milliseconds", "microseconds", "nanoseconds", "minutes", "hours", "days", "weeks"),
    *("kilobytes", "megabytes", "gigabytes", "kibibytes", "mebibytes", "bits", "percent", "celcius"),
    *("s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "h", "d", "m"),
}
RESERVED_LABELS = {"le", "quantile", "job", "instance"}
# Whatever a user chose, or there is no end of.
UNBOUNDED_LABELS = {"job_id", "node", "node_id", "worker", "worker_id", "name", "address", "owner", "digest"}


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_name_keeps_the_rules_of_promtool(metric: Metric) -> None:
    assert re.fullmatch(r"peerloom(_[a-z][a-z0-9]*)+", metric.name), "no camel case, no colons"
    words = metric.name.split("_")
    assert not NOT_BASE_UNITS & set(words)
    assert not {"counter", "gauge", "histogram", "summary"} & set(words), "the type stands beside it"
    assert words[-1] not in ("count", "sum", "bucket", "info"), "these are histograms' own"
    assert (words[-1] == "total") is (metric.kind is MetricKind.COUNTER)
    for unit in {"seconds", "bytes"} & set(words):
        assert words[-1] == unit or words[-2:] == [unit, "total"], "the unit comes last"
    assert re.fullmatch(r"[A-Z0-9].*\.", metric.help), "a sentence"


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_labels_have_few_values_that_nobody_chose(metric: Metric) -> None:
    for label in metric.labels:
        assert re.fullmatch(r"[a-z][a-z_]*", label)
        assert label not in RESERVED_LABELS | UNBOUNDED_LABELS


def test_no_two_metrics_have_one_name() -> None:
    names = [metric.name for metric in METRICS]
    assert sorted(set(names)) == sorted(names)


class Everything(Collector):
    """All metrics with one value each."""

    def describe(self) -> list[Any]:
        return []

    def collect(self) -> Any:
        for metric in METRICS:
            value = Tally((1.0,)) if metric.kind is MetricKind.HISTOGRAM else 1.0
            yield family_of(Reading(metric, {tuple("x" for _ in metric.labels): value}))


def shown() -> Scrape:
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    registry.register(Everything())
    return Scrape(generate_latest(registry).decode())


def test_a_scrape_shows_each_metric_under_its_name_and_type() -> None:
    found = shown()
    for metric in METRICS:
        family = metric.name.removesuffix("_total")
        assert found.types[family] == metric.kind.value
        sample = f"{metric.name}_count" if metric.kind is MetricKind.HISTOGRAM else metric.name
        assert sample in found.names


def dashboard() -> dict[str, Any]:
    board: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana.json").read_text())
    return board


def test_the_dashboard_asks_for_nothing_that_is_not_shown() -> None:
    board = dashboard()
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    queries += [one["query"] for one in board["templating"]["list"] if one["type"] == "query"]
    named = {name for query in queries for name in re.findall(r"\b(?:peerloom|process|python)_\w+", query)}
    assert len(named) > 30
    assert named - shown().names == set()


def test_the_dashboard_shows_every_metric_of_ours() -> None:
    text = json.dumps(dashboard())
    assert [metric.name for metric in METRICS if metric.name not in text] == []


def test_its_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def rows_below(heading: str) -> list[tuple[str, ...]]:
    """The lines of the first table after a heading of docs/metrics.md, without its head."""
    text = (ROOT / "docs" / "metrics.md").read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [tuple(cell.strip().strip("`") for cell in line.strip("|").split(" | ")) for line in lines]
    return cells[2:]


@pytest.mark.parametrize("heading", SOURCES)
def test_the_page_tells_of_each_metric_what_it_says_of_itself(heading: str) -> None:
    metrics = SOURCES[heading].metrics
    told = [(m.name, m.kind.value, ", ".join(m.labels), m.help) for m in metrics]
    assert rows_below(heading) == told


# What who runs a system asks first, and the metrics that answer.
ASKED_FIRST = {
    "calls": ("peerloom_grpc_calls_total", "peerloom_grpc_streams_open"),
    "latencies": ("peerloom_grpc_call_duration_seconds", "peerloom_selector_selection_duration_seconds"),
    "queues": ("peerloom_registry_commit_queue_length", "peerloom_trainer_commit_queue_length"),
    "beats": ("peerloom_registry_heartbeats_received_total",),
    "generations": ("peerloom_trainer_generations_formed_total",),
    "recoveries": ("peerloom_trainer_recovery_seconds", "peerloom_trainer_workers_lost_total"),
    "beliefs": ("peerloom_selector_belief",),
    "bytes": ("peerloom_trainer_collective_bytes_total", "peerloom_node_artifact_bytes"),
}


@pytest.mark.parametrize("question", ASKED_FIRST)
def test_there_is_an_answer_to_what_is_asked_first(question: str) -> None:
    assert set(ASKED_FIRST[question]) <= {metric.name for metric in METRICS}
