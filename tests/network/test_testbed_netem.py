"""The same file and commands over Linux's own shaping, without a door."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testbed_parts import (
    assert_equal,
    captured,
    file_of,
    is_cut_off,
    parameters_seen,
    parameters_without_network,
    plan_of,
    reaches,
    require,
    states,
    train_inside,
    wait_until,
)

from peerloom.errors import FailedPreconditionError
from peerloom.testbed import Action, Testbed, namespaces
from peerloom.testbed.backends.netem import Netem
from peerloom.testbed.lab import with_netlink
from peerloom.testbed.testbed_record import read_entries
from peerloom.testbed.unprivileged import FIRST_USER

pytestmark = [pytest.mark.network, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    require(ns3=False)
    network = {"nodes": 5, "rate": "200Mbps", "delay": "1ms", "mtu": 1500, "congestion_control": "reno"}
    with Testbed(plan_of(2, "netem", network=network, door=False), tmp_path_factory.mktemp("testbed")) as up:
        yield up


def test_training_gives_the_parameters_of_training_without_a_network(
    testbed: Testbed, tmp_path: Path
) -> None:
    """In plain: the parameters are there for whoever looks, so the same look behind a door can fail."""
    with captured(testbed) as capture:
        _, parameters = train_inside(testbed, requests=2)
    assert parameters_seen(parameters, capture.seen) != []
    assert_equal(parameters, parameters_without_network(tmp_path, workers=2))
    traffic = testbed.traffic()
    assert (traffic.lag_worst_s, traffic.faithful) == (None, None)
    assert all(link.sent_bytes > 0 for link in traffic.links)


def test_a_dashboard_is_looked_at_from_outside_and_asks_inside(testbed: Testbed) -> None:
    words = ["dashboard", "--testbed", str(testbed.folder.path), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [sys.executable, "-m", "peerloom.cli", *words], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            told: dict[str, list[dict[str, Any]]] = {}
            with urllib.request.urlopen(f"{url}stream", timeout=60) as stream:
                while not told.get("nodes") or "testbed" not in told:
                    name = stream.readline().decode().removeprefix("event: ").strip()
                    if name in ("nodes", "testbed"):
                        shown = json.loads(stream.readline().decode().removeprefix("data: "))
                        told[name] = shown if name == "nodes" else shown["hosts"]
        finally:
            process.terminate()
    assert {node["name"] for node in told["nodes"]} == {"host-1", "host-2"}
    assert {host["name"] for host in told["testbed"] if host["sent_bytes"]} == {"control", "host-1", "host-2"}


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


def test_programs_run_as_users_without_rights_each_as_its_own(testbed: Testbed) -> None:
    """Registry, selector, trainer and both agents, from the kernel's record of each."""
    found = {
        entry.name: status_of(entry.pid) for entry in read_entries(testbed.names) if entry.kind == "process"
    }
    assert len(found) == 5
    users = {status["Uid"] for status in found.values()}
    assert len(users) == 5
    for status in found.values():
        [user] = set(status["Uid"].split())
        assert int(user) >= FIRST_USER
        assert status["Groups"] == ""
        assert {status[name] for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb")} == {"0" * 16}
        assert status["NoNewPrivs"] == "1"


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_hosts_tcp_is_the_plans_whatever_this_machines_is(testbed: Testbed) -> None:
    def settings() -> tuple[str, ...]:
        names = ("tcp_congestion_control", "tcp_slow_start_after_idle")
        return tuple(Path("/proc/sys/net/ipv4", name).read_text().strip() for name in names)

    for host in testbed.plan.all_hosts:
        assert namespaces.inside(testbed.names.host(host.name), settings) == ("reno", "0")
    assert testbed.traffic().congestion_control == "reno"


def test_what_the_kernel_has_not_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    require(ns3=False)
    plan = plan_of(1, "netem", network={"nodes": 2, "congestion_control": "carrier_pigeon"})
    broken = Testbed(plan, tmp_path / "state")
    with pytest.raises(
        FailedPreconditionError, match=r"lets hosts use .*reno.*tcp_allowed_congestion_control"
    ):
        broken.start()
    assert not any(namespaces.exists(broken.names.host(host.name)) for host in plan.all_hosts)


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
