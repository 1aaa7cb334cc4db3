"""What ns-3 and the kernel are told, and what is made of their counters."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
from testbed_files import changed, plan

from peerloom.testbed.backends import NodeCount, Stats
from peerloom.testbed.backends.netem import shaping_of, up_and_down
from peerloom.testbed.backends.ns3 import ns3_arguments
from peerloom.testbed.names import Names
from peerloom.testbed.pictures import bytes_over_time
from peerloom.testbed.plan import Link
from peerloom.testbed.programs import service_programs
from peerloom.testbed.traffic import traffic_between, worst_lag_s
from peerloom.testbed.watch import JobTraffic


def test_ns3_is_told_the_medium_and_each_hosts_tap() -> None:
    arguments = ns3_arguments(plan(), Names("0a0b0c0d"), Path("out.xml"))
    assert "--medium=csma" in arguments
    assert "--rate=10Mbps" in arguments
    assert "--delay=1us" in arguments
    assert "--background=0" in arguments
    assert "--netanim=out.xml" in arguments
    assert "--control=/run/peerloom/testbeds/0a0b0c0d/ns3.sock" in arguments
    assert [one for one in arguments if one.startswith("--tap")] == [
        "--tap=0:tap0:02:70:6c:00:00:00",
        "--tap=1:tap1:02:70:6c:00:00:01",
        "--tap=2:tap2:02:70:6c:00:00:02",
        "--tap=3:tap3:02:70:6c:00:00:03",
    ]
    assert not [one for one in arguments if one.startswith("--link")]


def test_ns3_is_told_of_access_links_that_differ() -> None:
    text = changed("medium: csma", "medium: wan")
    text = changed("node: 2}", "node: 2, link: {delay: 30ms, loss: 0.01}}", text)
    arguments = ns3_arguments(plan(text), Names("0a0b0c0d"))
    assert [one for one in arguments if one.startswith("--link")] == ["--link=2:10Mbps:30ms:0.01"]


def test_a_rate_alone_needs_no_netem() -> None:
    (bucket,) = shaping_of(Link(8e6, 1e-6, 0.0), 1500, netem=True)
    assert (bucket.kind, bucket.arguments["rate"]) == ("tbf", 1_000_000)
    assert bucket.arguments["burst"] == 4000, "what 4 ms bring at 1 MB/s, more than two frames of 1514"


def test_delay_and_loss_are_netems_and_left_out_where_it_is_missing() -> None:
    link = Link(8e6, 0.02, 0.01)
    waiting, bucket = shaping_of(link, 1500, netem=True)
    assert (waiting.kind, waiting.arguments["delay"], waiting.arguments["loss"]) == ("netem", 20_000, 1.0)
    assert (bucket.kind, bucket.arguments["parent"]) == ("tbf", "1:1")
    assert [one.kind for one in shaping_of(link, 1500, netem=False)] == ["tbf"]


def test_a_lan_is_crossed_once_and_access_links_at_both_ends() -> None:
    link = Link(1e7, 0.01, 0.1)
    assert up_and_down(plan(), link) == (link, Link(1e7, 0.0, 0.0))
    assert up_and_down(plan(changed("medium: csma", "medium: wan")), link) == (link, link)


def stats(wall_s: float, sent: int, lag_s: float | None = 0.001, worst_s: float | None = 0.001) -> Stats:
    """Node 1 sent so much, and node 4, which has no host, ten times that."""
    counts = (NodeCount(1, True, sent, sent // 10, 0, 0, 0), NodeCount(4, True, 10 * sent, sent, 5, 1, 2))
    return Stats(wall_s, lag_s, worst_s, 1.0, counts)


def test_traffic_is_the_difference_of_the_counters() -> None:
    traffic = traffic_between(plan(), [stats(5.0, 100), stats(6.0, 300), stats(8.0, 1000)])
    assert traffic.seconds == 3.0
    assert [(link.host, link.sent_bytes) for link in traffic.links] == [("host-1", 900), ("", 9000)]
    assert traffic.total_bytes == 900, "of hosts alone"


def test_a_lag_before_the_first_sample_is_not_counted_and_one_between_two_is() -> None:
    assert worst_lag_s([stats(0, 0, 0.01, 0.5), stats(1, 0, 0.02, 0.5), stats(2, 0, 0.01, 0.5)]) == 0.02
    assert worst_lag_s([stats(0, 0, 0.01, 0.05), stats(1, 0, 0.02, 0.3)]) == 0.3
    assert worst_lag_s([stats(0, 0, None, None), stats(1, 0, None, None)]) is None


@pytest.mark.parametrize(("worst_s", "faithful"), [(0.1, True), (0.11, False)])
def test_a_run_that_lagged_beyond_the_bound_is_not_faithful(worst_s: float, faithful: bool) -> None:
    traffic = traffic_between(plan(), [stats(0, 0), stats(1, 0, 0.0, worst_s)])
    assert traffic.faithful is faithful


def test_a_jobs_traffic_goes_from_the_sample_before_it_to_the_one_after_its_end() -> None:
    seen = JobTraffic(plan())
    assert seen.note(stats(1, 100), {}) == {}
    assert seen.note(stats(2, 200), {"job-a": False}) == {}
    for second in range(3, 9):
        assert seen.note(stats(second, 100 * second), {"job-a": False}) == {}
    finished = seen.note(stats(9, 1000), {"job-a": True, "job-b": False})
    assert list(finished) == ["job-a"]
    assert (finished["job-a"].seconds, finished["job-a"].total_bytes) == (8.0, 900)
    assert seen.note(stats(10, 1000), {"job-a": True}) == {}, "each job is told once"


def test_bytes_over_time_begin_at_zero() -> None:
    samples = [stats(1, 100), stats(2, 250)]
    only = dataclasses.replace(plan(), hosts=(plan().hosts[0],), control=plan().hosts[0])
    assert bytes_over_time(only, samples) == {"host-1": [0.0, 150.0]}


def test_services_and_agents_speak_at_addresses_of_the_emulated_network() -> None:
    programs = {one.name: one for one in service_programs(plan(), Path("/s"), "info")}
    assert list(programs) == ["registry", "selector", "trainer", "host-1", "host-2", "host-3"]
    assert {programs[name].host for name in ("registry", "selector", "trainer")} == {"control"}
    agent = " ".join(programs["host-3"].command)
    assert "--listen 10.77.0.50:7410 --registry 10.77.0.1:7400 --state /s/nodes/host-3" in agent
    assert "--join-listen 10.77.0.1:7399" in " ".join(programs["registry"].command)
    assert not [one for one in programs.values() if "--allow-plain" in one.command]


def test_a_testbed_without_a_door_is_plain_throughout_and_keeps_its_state_apart() -> None:
    programs = service_programs(
        plan(changed("version: 1\n", "version: 1\ndoor: false\n")), Path("/s"), "info"
    )
    assert all("--allow-plain" in one.command for one in programs)
    assert not [one for one in programs if "--join-listen" in one.command]
    assert {one.command[one.command.index("--state") + 1] for one in programs} == {
        f"/s/plain/{name}"
        for name in ("registry", "selector", "trainer", *(f"nodes/host-{number}" for number in (1, 2, 3)))
    }


def test_without_the_extras_a_testbed_can_be_planned_and_tells_what_to_install() -> None:
    script = (
        "import sys\n"
        "sys.modules['pyroute2'] = sys.modules['docker'] = None\n"
        "from peerloom.testbed import Testbed, load_plan\n"
        "from peerloom.testbed.standing import take_down\n"
        "print('pyroute2.netlink' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "False"), done.stderr


def test_settings_reach_their_service() -> None:
    text = changed("version: 1\n", "version: 1\nsettings: {registry: {dead_after_s: 3, preset: lan}}\n")
    registry = service_programs(plan(text), Path("/s"), "info")[0]
    assert " ".join(registry.command).endswith("--dead-after-s 3 --preset lan")
