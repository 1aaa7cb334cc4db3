"""The same file and commands over Linux's own shaping."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed_parts import (
    assert_equal,
    file_of,
    is_cut_off,
    parameters_without_network,
    plan_of,
    reaches,
    require,
    states,
    train_inside,
    wait_until,
)

from peerloom.errors import FailedPreconditionError
from peerloom.testbed import Action, Testbed
from peerloom.testbed.backends.netem import Netem
from peerloom.testbed.lab import with_netlink

pytestmark = [pytest.mark.network, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    require(ns3=False)
    network = {"nodes": 5, "rate": "200Mbps", "delay": "1ms", "mtu": 1500}
    with Testbed(plan_of(2, "netem", network=network), tmp_path_factory.mktemp("testbed")) as up:
        yield up


def test_training_gives_the_parameters_of_training_without_a_network(
    testbed: Testbed, tmp_path: Path
) -> None:
    _, parameters = train_inside(testbed, requests=2)
    assert_equal(parameters, parameters_without_network(tmp_path, workers=2))
    traffic = testbed.traffic()
    assert (traffic.lag_worst_s, traffic.faithful) == (None, None)
    assert all(link.sent_bytes > 0 for link in traffic.links)


def test_run_plays_the_script_around_a_command_and_ends_as_it_did(tmp_path: Path) -> None:
    require(ns3=False)
    file, state = tmp_path / "churn.yaml", tmp_path / "state"
    script = [
        {"at": "0s", "do": "leave", "hosts": ["host-1"]},
        {"at": "0s", "do": "join", "hosts": ["host-1"]},
    ]
    file.write_text(file_of(1, "ns3", churn={"script": script}))
    words = [
        "testbed",
        "run",
        "--backend",
        "netem",
        "--state",
        str(state),
        str(file),
        "--",
        "jobs",
        "show",
        "no-job",
    ]
    command = [sys.executable, "-m", "peerloom.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 3, "as `jobs show` ends for a job that isn't there"
    assert "nothing is left" in done.stderr
    events = [json.loads(line) for line in (state / "events.jsonl").read_text().splitlines()]
    assert [(one["action"], one["error"]) for one in events] == [("leave host-1", ""), ("join host-1", "")]
    kept = json.loads((state / "network.json").read_text())
    assert (kept["backend"], [link["host"] for link in kept["links"]]) == ("netem", ["control", "host-1"])


def test_every_cable_is_shaped_at_both_ends(testbed: Testbed) -> None:
    for space, interface in ((testbed.names.host("host-1"), "eth0"), (testbed.names.lab, "port1")):
        kinds = with_netlink(
            space,
            lambda netlink, name=interface: [
                one.get_attr("TCA_KIND") for one in netlink.get_qdiscs(netlink.link_lookup(ifname=name)[0])
            ],
        )
        assert "tbf" in kinds


def test_hosts_leave_and_join(testbed: Testbed) -> None:
    testbed.apply(Action("leave", ("host-2",)))
    assert is_cut_off(testbed, "host-1", "host-2")
    wait_until(lambda: states(testbed)["host-2"] == "dead", "host-2 is dead")
    testbed.apply(Action("join", ("host-2",)))
    wait_until(lambda: states(testbed)["host-2"] == "alive", "host-2 is back")


def test_partitions_hide_sets_from_each_other_and_not_from_hosts_in_no_set(testbed: Testbed) -> None:
    testbed.apply(Action("partition", sets=(("host-1",), ("host-2",))))
    assert is_cut_off(testbed, "host-1", "host-2")
    assert reaches(testbed, "control", "host-1")
    assert reaches(testbed, "control", "host-2")
    testbed.apply(Action("partition", sets=(("control", "host-2"), ("host-1",))))
    assert is_cut_off(testbed, "control", "host-1")
    testbed.apply(Action("heal"))
    assert reaches(testbed, "control", "host-1")
    assert reaches(testbed, "host-1", "host-2")


def test_a_kernel_without_netem_says_what_it_leaves_out(testbed: Testbed) -> None:
    netem = Netem(testbed.plan, testbed.names)
    shortcomings = " ".join(netem.shortcomings())
    assert "don't share" in shortcomings
    if netem.has_netem():
        testbed.apply(Action("delay", ("host-1",), 0.005))
        return
    assert "no netem" in shortcomings
    with pytest.raises(FailedPreconditionError, match="no netem"):
        testbed.apply(Action("delay", ("host-1",), 0.005))


def test_a_rate_that_was_changed_is_kept_when_another_is(testbed: Testbed) -> None:
    testbed.apply(Action("rate", ("host-1",), 5e6))
    testbed.apply(Action("rate", ("host-2",), 6e6))
    links = Netem(testbed.plan, testbed.names)._links()
    assert (links[1].rate_bits_per_s, links[2].rate_bits_per_s) == (5e6, 6e6)
    assert reaches(testbed, "host-1", "host-2")
    testbed.apply(Action("rate", (), 200e6))
