"""Histograms count what is up to each bound; the labels of enums are their short names."""

from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry
from scraping import Scrape

from peerloom.kit.call_metrics import label_of
from peerloom.kit.metrics import Metric, MetricKind, Tally, enum_labels, reading
from peerloom.kit.metrics_server import family_of
from peerloom.v1.registry_pb2 import NodeState


def test_a_value_counts_up_to_the_first_bound_that_it_does_not_exceed() -> None:
    tally = Tally((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 9.0):
        tally.add(value)
    assert tally.counts == [2, 2, 1]
    assert tally.total == 14.0


def test_prometheus_sees_a_histogram_cumulated() -> None:
    tally = Tally((0.25, 2.0))
    for value in (0.25, 1.0, 9.0):
        tally.add(value)
    family = family_of(reading(Metric("peerloom_x_seconds", MetricKind.HISTOGRAM, "X."), tally))

    class One(Collector):
        def collect(self) -> list[object]:  # type: ignore[override]  # what the library's stubs call a Metric
            return [family]

    registry = CollectorRegistry()
    registry.register(One())
    found = Scrape(generate_latest(registry).decode())
    name = "peerloom_x_seconds_bucket"
    assert [found.value(name, le=bound) for bound in ("0.25", "2.0", "+Inf")] == [1, 2, 3]
    assert found.value("peerloom_x_seconds_count") == 3
    assert found.value("peerloom_x_seconds_sum") == 10.25


def test_an_enum_gives_a_label_for_each_value_but_unspecified() -> None:
    assert enum_labels(NodeState, "NODE_STATE_") == {1: "alive", 2: "suspect", 3: "dead", 4: "left"}


def test_a_method_is_a_label_only_if_it_is_ours() -> None:
    heartbeat = "/peerloom.v1.RegistryService/Heartbeat"
    assert label_of(heartbeat) == "peerloom.v1.RegistryService/Heartbeat"
    assert label_of("/peerloom.v1.RegistryService/Invented") == "other"
