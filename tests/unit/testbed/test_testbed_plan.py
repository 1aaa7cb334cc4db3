"""Testbed files: what is read from them, and what is refused with the line and the way out."""

from pathlib import Path

import pytest
import yaml
from testbed_files import RIGHT, changed, plan

from peerloom.errors import ConfigurationError
from peerloom.testbed.bounds import bound_at, warnings_of
from peerloom.testbed.documents import schema
from peerloom.testbed.plan import Link
from peerloom.testbed.reading import load_plan, with_choices

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_what_is_left_out_has_its_default() -> None:
    read = plan()
    assert (read.backend, read.network.subnet, read.network.seed) == ("ns3", "10.77.0.0/24", 1)
    own = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    assert read.network.congestion_control == (own.read_text().strip() if own.exists() else "reno")
    assert (read.control.node, read.control.address, read.control.slots) == (0, "10.77.0.1", 0)
    assert [host.address for host in read.hosts] == ["10.77.0.11", "10.77.0.12", "10.77.0.50"]
    assert [host.slots for host in read.hosts] == [2, 1, 1]
    assert read.hosts[0].mac == "02:70:6c:00:00:01"
    assert read.hosts[0].link == Link(10e6, 1e-6, 0.0)
    assert {host.isolation for host in read.all_hosts} == {"namespace"}


def test_a_file_without_a_name_is_named_after_itself() -> None:
    assert plan(changed("name: three\n", "")).name == "three"


WRONG = {
    "an unknown key, with the nearest": ("medium: csma", "mediun: csma", 5, "Did you mean medium"),
    "an unknown key of a host": ("node: 2}", "node: 2, slot: 3}", 10, "Did you mean slots"),
    "a newer version": ("version: 1", "version: 2", 1, "newer Peerloom"),
    "no version": ("version: 1\n", "", 1, "lacks the key 'version'"),
    "a host without a node": ("node: 3", "node: 17", 11, "nodes 0 to 5"),
    "two hosts at one node": ("node: 2", "node: 1", 10, "taken already, by host-1"),
    "a host at the control plane's node": ("node: 2", "node: 0", 10, "taken already, by control"),
    "one address twice": ("10.77.0.50", "10.77.0.11", 11, "taken already, by host-1"),
    "the control plane's address": ("10.77.0.50", "10.77.0.1", 11, "taken already, by control"),
    "an address outside of the subnet": ("10.77.0.50", "10.78.0.50", 11, "outside of the subnet"),
    "the broadcast address": ("10.77.0.50", "10.77.0.255", 11, "broadcast"),
    "no address at all": ("10.77.0.50", "10.77.0.500", 11, "no IPv4 address"),
    "one name twice": ("host-2", "host-1", 10, "taken already"),
    "the control plane's name": ("host-2", "control", 10, "control plane's"),
    "an MTU that a device refuses": ("1500", "70000", 7, "from 576 to 65000"),
    "a rate without its unit": ("10Mbps", "10", 6, "like 50Mbps"),
    "a rate of nothing": ("10Mbps", "0", 6, "must carry something"),
    "a wrong medium, with the nearest": ("csma", "cmsa", 5, "Did you mean csma"),
    "a link of its own on a LAN": ("node: 2", "node: 2, link: {delay: 5ms}", 10, "medium wan"),
    "a key that is there twice": ("mtu: 1500", "mtu: 1500\n  mtu: 9000", 8, "twice"),
    "slots that are no number": ("slots: 2", "slots: many", 9, "a whole number"),
    "a truth value for a number": ("slots: 2", "slots: true", 9, "a whole number"),
    "TCP by no name": ("mtu: 1500", "mtu: 1500\n  congestion_control: Reno!", 8, "like reno"),
    "NAT without a relay": ("node: 2", "node: 2, nat: true", 10, "relay: true"),
    "a group's hardware address": ("node: 2", 'node: 2, mac: "01:00:5e:00:00:01"', 10, "must be even"),
}


@pytest.mark.parametrize(("old", "new", "line", "told"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told_with_its_line(old: str, new: str, line: int, told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        plan(changed(old, new))
    assert f"three.yaml, line {line}: " in caught.value.message
    assert told in caught.value.message
    assert caught.value.metadata["line"] == str(line)


def test_a_host_behind_nat_needs_a_door_and_a_network_that_is_not_its_own() -> None:
    relay = changed("slots: 2}", "slots: 2, relay: true}")
    right = changed("node: 2}", "node: 2, nat: true}", relay)
    assert [(host.own_address, host.nat, host.relay) for host in plan(right).hosts] == [
        ("10.77.0.11", False, True),
        ("192.168.7.2", True, False),
        ("10.77.0.50", False, False),
    ]
    with pytest.raises(ConfigurationError, match=r"line 10.*needs the door"):
        plan(right + "door: false\n")
    wide = changed("mtu: 1500", "mtu: 1500\n  subnet: 192.168.0.0/16", right)
    with pytest.raises(ConfigurationError, match=r"line 8.*overlaps 192\.168\.7\.0/24"):
        plan(changed(", address: 10.77.0.50", "", wide))


@pytest.mark.parametrize("text", ["", "[", "just words", "version: 1", "version: 1\nhosts: []"])
def test_what_is_no_testbed_at_all_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"three\.yaml"):
        plan(text)


CHURN = {
    "that names no host": ("{at: 1s, do: leave}", "names no host"),
    "that names a wrong one": ("{at: 1s, do: leave, hosts: [host-9]}", "no host 'host-9'. Did you mean"),
    "without how much": ("{at: 1s, do: loss, hosts: [host-1]}", "how much"),
    "with what it has no use for": ("{at: 1s, do: heal, hosts: [host-1]}", "no use for 'hosts'"),
    "with one host in two sets": (
        "{at: 1s, do: partition, sets: [[host-1], [host-1]]}",
        "named twice",
    ),
    "of an unknown kind": ("{at: 1s, do: leaf, hosts: [host-1]}", "Did you mean leave"),
    "without a time": ("{do: heal}", "lacks the key 'at'"),
}


@pytest.mark.parametrize(("step", "told"), CHURN.values(), ids=CHURN)
def test_a_churn_step_is_refused(step: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match="line 14") as caught:
        plan(f"{RIGHT}churn:\n  script:\n    - {step}\n")
    assert told in caught.value.message


def test_a_setting_that_is_the_testbeds_own_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"line 13.*itself decides on 'listen'"):
        plan(f"{RIGHT}settings:\n  registry: {{listen: x}}\n")


@pytest.mark.parametrize(
    ("service", "knob", "value"),
    [
        ("node", "worker_command", "/bin/sh,-c,id"),
        ("node", "measure_command", "/bin/sh,-c,id"),
        ("node", "allow_code", "true"),
        ("node", "no_sandbox", "true"),
        ("selector", "own_policies", "evil:Policy"),
        ("trainer", "database", "sqlite:////etc/passwd"),
        ("registry", "join_listen", "0.0.0.0:7404"),
    ],
)
def test_a_file_cannot_name_what_is_run_or_read_as_root(service: str, knob: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"line 13.*'{knob}' of the {service} names code or files"):
        plan(f"{RIGHT}settings:\n  {service}: {{{knob}: {value!r}}}\n")


@pytest.mark.parametrize("name", ["thesis", "wan", "netem"])
def test_an_example_is_right_and_its_rates_can_be_emulated(name: str) -> None:
    read = load_plan(EXAMPLES / f"{name}.yaml")
    assert read.name == name
    assert warnings_of(read) == []


def test_the_thesis_has_20_nodes_on_a_lan_and_5_hosts_with_its_slots() -> None:
    read = load_plan(EXAMPLES / "thesis.yaml")
    assert (read.network.nodes, read.network.medium) == (20, "csma")
    assert [host.slots for host in read.hosts] == [3, 2, 2, 1, 1]


def test_choices_go_before_the_file() -> None:
    read = with_choices(plan(), "netem", "container")
    assert read.backend == "netem"
    assert {host.isolation for host in read.hosts} == {"container"}
    assert read.control.isolation == "namespace"


def test_bounds_are_what_was_measured_and_lines_in_between() -> None:
    assert [bound_at(mtu) for mtu in (1500, 9000, 65000)] == [97e6, 521e6, 2077e6]
    assert bound_at(5250) == pytest.approx((97e6 + 521e6) / 2)
    assert bound_at(750) == pytest.approx(97e6 / 2)


def test_a_rate_beyond_what_was_measured_is_warned_about_with_the_bound() -> None:
    (warning,) = warnings_of(plan(changed("10Mbps", "10Gbps")))
    assert "10 Gbit/s" in warning
    assert "97 Mbit/s" in warning
    assert warnings_of(with_choices(plan(changed("10Mbps", "10Gbps")), "netem", None)) == []


def test_each_wide_link_is_held_against_the_bound() -> None:
    text = changed("medium: csma", "medium: wan")
    text = changed("node: 2}", "node: 2, link: {rate: 1Gbps}}", text)
    (warning,) = warnings_of(plan(text))
    assert "the link of host-2" in warning


def test_the_schema_uses_only_words_that_are_checked() -> None:
    """Else it would promise to editors what the parser lets pass."""
    known = {"type", "enum", "pattern", "minimum", "maximum", "minItems", "maxItems", "items", "properties"}
    known |= {
        "required",
        "additionalProperties",
        "$ref",
        "$defs",
        "$schema",
        "title",
        "description",
        "examples",
    }

    def words(rule: object, of_names: bool = False) -> set[str]:
        if not isinstance(rule, dict):
            return set()
        found = set() if of_names else set(rule)
        for key, inner in rule.items():
            if key not in ("examples", "enum", "type", "required") or of_names:
                found |= words(inner, of_names=not of_names and key in ("properties", "$defs"))
        return found

    assert words(schema()) <= known


def test_every_pattern_has_an_example_that_fits() -> None:
    for name, rule in schema()["$defs"].items():
        if "pattern" in rule and rule["type"] == "string":
            assert rule["examples"], name


def test_examples_hold_nothing_that_yaml_would_read_otherwise() -> None:
    for path in EXAMPLES.glob("*.yaml"):
        assert yaml.safe_load(path.read_text())["version"] == 1
