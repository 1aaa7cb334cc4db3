"""The ns-3 program as a program: its flags, its control socket, its files and its end."""

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import psutil
import pytest
from emulated_lab import Lab, Network
from emulated_traffic import settled

pytestmark = [pytest.mark.network, pytest.mark.timeout(60)]
NS3 = Path(__file__).parents[2] / "ns3"
BOTH_MEDIA = pytest.mark.parametrize("medium", ["csma", "wan"])
Start = Callable[..., Network]


# --- files that it writes


@BOTH_MEDIA
def test_netanim_file_has_what_netanim_reads(start: Start, medium: str, tmp_path: Path) -> None:
    """The elements and attributes that the parser of NetAnim 3.108 looks for."""
    attributes = {
        "node": {"id", "sysId", "locX", "locY"},
        "link": {"fromId", "toId", "fd", "td", "ld"},
        "nonp2plinkproperties": {"id", "ipAddress", "channelType"},
        "ncs": {"ncId", "n", "t"},
        "nc": {"c", "i", "t", "v"},
        "nu": {"p", "t", "id"},
    }
    file = tmp_path / "network.xml"
    network = start(medium=medium, nodes=4, netanim=file)
    network.do("leave", nodes=[1])
    network.do("partition", sets=[[0, 1], [2, 3]])
    while network.do("stats")["simulated_s"] < 1.1:
        pass
    network.stop()
    root = ElementTree.parse(file).getroot()
    assert (root.tag, root.attrib) == ("anim", {"ver": "netanim-3.108", "filetype": "animation"})
    assert all(attributes[element.tag] <= set(element.attrib) for element in root)
    # A wan has a switch beside its four nodes.
    assert len(root.findall("node")) == (5 if medium == "wan" else 4)
    assert len(root.findall("link" if medium == "wan" else "nonp2plinkproperties")) == 4
    assert {element.get("p") for element in root.findall("nu")} == {"s", "c", "d"}
    assert root.findall("nu[@id='1'][@p='d']")[-1].get("descr") == "1 pl1 set 0 down"
    assert len(root.findall("nc")) == 12


def test_captures_hold_the_frames(start: Start, tmp_path: Path) -> None:
    network = start(medium="wan", pcap=tmp_path / "frames")
    with network.hosts[0].udp() as out, network.hosts[1].udp() as into:
        out.sendto(b"a needle", into.getsockname())
        settled(network, 1, 1)
    network.stop()
    for node in (0, 1):
        content = (tmp_path / f"frames-{node}.pcap").read_bytes()
        assert content[:4] == b"\xd4\xc3\xb2\xa1"
        # The record's two lengths, then Ethernet from the receiver's address on.
        assert content[32:40] == (14 + 28 + 8).to_bytes(4, "little") * 2
        assert content[40:46] == bytes.fromhex(network.hosts[1].mac.replace(":", ""))
        assert content.endswith(b"a needle")


# --- starting, speaking, ending


@pytest.mark.timeout(300)
def test_the_installer_says_what_it_does_and_may_run_again(ns3_program: Path) -> None:
    script = NS3 / "install.sh"
    packages = re.search(r'packages="(.*)"', script.read_text())
    assert packages
    state = ["dpkg-query", "-W", "-f", "${db:Status-Status}\n", *packages[1].split()]
    if set(subprocess.run(state, capture_output=True, text=True).stdout.split()) != {"installed"}:
        pytest.skip("needs ns-3: run ns3/install.sh")
    done = subprocess.run(["sh", script], capture_output=True, text=True, check=True)
    said = [line.removeprefix("ns3/install.sh: ") for line in done.stdout.splitlines()]
    assert said == ["all packages are installed", "building ns3/build/peerloom-ns3", f"ready: {ns3_program}"]


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--nodes=1"], "--nodes=1: .* from 2 to 500"),
        (["--nodes=many"], "--nodes=many: .* whole number"),
        (["--speed=1Gbps"], "--speed=1Gbps: .*--help"),
        (["--nodes"], "--nodes: .*--name=value"),
        (["stray"], "stray: .*--name=value"),
        (["--medium=wifi"], "--medium=wifi: .*csma or wan"),
        (["--rate=fast"], "--rate=fast: .*as in 50Mbps"),
        (["--rate=1Tbps"], "--rate=1Tbps: .*Gbps"),
        (["--rate=1bps"], "--rate=1bps: .*1 kbps to 100 Gbps"),
        (["--delay=5"], "--delay=5: .*as in 10ms"),
        (["--delay=-1ms"], "--delay=-1ms: .*0 to 10 s"),
        (["--delay=1min"], "--delay=1min: .*ns, us, ms or s"),
        (["--loss=2"], "--loss=2: .*0 to 1"),
        (["--loss=nan"], "--loss=nan: .*0 to 1"),
        (["--mtu=70000"], "--mtu=70000: .*576 to 65000"),
        (["--seed=0"], "--seed=0: .*1 to"),
        (["--tap=0:pl0"], "--tap=0:pl0: .*INDEX:TAP:MAC"),
        (["--tap=0:pl0:01:00:00:00:00:01"], "MAC of one interface"),
        (["--tap=0:a-name-that-is-too-long:02:00:00:00:00:01"], "1 to 15 characters"),
        (["--tap=20:pl0:02:00:00:00:00:01"], "--tap=20:pl0: nodes are numbered from 0 to 19"),
        (["--tap=0:a:02:00:00:00:00:01", "--tap=1:a:02:00:00:00:00:02"], "node 0 has one of these"),
        (["--tap=0:a:02:00:00:00:00:01", "--tap=1:b:02:00:00:00:00:01"], "node 0 has one of these"),
        (["--medium=wan", "--link=3:50Mbps"], "--link=3:50Mbps: .*INDEX:RATE:DELAY:LOSS"),
        (["--medium=wan", "--link=99:50Mbps:1ms:0"], "--link=99: nodes are numbered"),
        (["--link=3:50Mbps:1ms:0"], "--link: a csma channel has one rate"),
        (["--nodes=2", "--tap=0:a:02:00:00:00:00:01", "--background=1Mbps"], "--background: .*two nodes"),
        (["--tap=0:nosuch:02:00:00:00:00:01"], "no interface nosuch .*ip tuntap add"),
        (["--tap=0:lo:02:00:00:00:00:01"], "lo is no tap"),
        (["--control=" + "x" * 200], "paths of up to 107 bytes"),
        (["--control=/nonexistent/c"], "can't listen there"),
        (["--netanim=/nonexistent/a.xml"], "--netanim=/nonexistent/a.xml: can't write"),
        (["--pcap=/nonexistent/a"], "--pcap=/nonexistent/a: can't write"),
        (["--control="], "--control: a path .* is required"),
    ],
)
def test_a_bad_flag_is_named_with_what_is_allowed(
    ns3_program: Path, tmp_path: Path, flags: list[str], named: str
) -> None:
    done = subprocess.run(
        [ns3_program, f"--control={tmp_path / 'c'}", *flags], capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 2
    assert re.search(named, done.stderr)
    assert done.stdout == ""
    assert not (tmp_path / "c").exists()


def test_it_goes_before_the_work_of_its_hosts(lab: Lab, idle: Network) -> None:
    """They share the processors, and a network that waits for them is late."""
    assert psutil.Process(idle.process.pid).nice() == -10


def test_a_tap_in_use_is_refused(start: Start, ns3_program: Path, lab: Lab, tmp_path: Path) -> None:
    start(medium="csma")
    tap = f"--tap=0:pl0:{lab.hosts[0].mac}"
    command = lab.inside.command(ns3_program, tap, f"--control={tmp_path / 'second'}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert (done.returncode, "another program holds the tap pl0" in done.stderr) == (2, True)


def test_a_tap_that_is_down_is_refused(ns3_program: Path, lab: Lab, tmp_path: Path) -> None:
    lab.inside.ip("tuntap add dev asleep mode tap")
    command = lab.inside.command(
        ns3_program, "--tap=0:asleep:02:00:00:00:00:01", f"--control={tmp_path / 'c'}"
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert (done.returncode, "ip link set asleep up" in done.stderr) == (2, True)


@pytest.fixture(scope="module")
def idle(ns3_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """A csma network without taps."""
    control = tmp_path_factory.mktemp("idle") / "c"
    network = Network([str(ns3_program), "--nodes=4", f"--control={control}"], control, [])
    yield network
    network.stop()


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("", "not JSON"),
        ("leave 3", "not JSON: expected a value at byte 0"),
        ('{"do":"leave","nodes":[3]', "not JSON: expected '}'"),
        ('{"do":"leave","do":"join"}', 'a second "do"'),
        ("[" * 100, "less depth"),
        ("[]", "a command is an object"),
        ('{"nodes":[1]}', '"do" is missing'),
        ('{"do":"explode"}', 'not "explode"'),
        ('{"do":7}', '"do" must be'),
        ('{"do":"leave"}', '"nodes" is missing'),
        ('{"do":"leave","nodes":3}', "a list of their numbers"),
        ('{"do":"leave","nodes":[4]}', "numbered from 0 to 3"),
        ('{"do":"leave","nodes":[-1]}', "numbered from 0 to 3"),
        ('{"do":"leave","nodes":[1.5]}', "numbered from 0 to 3"),
        ('{"do":"leave","nodes":["1"]}', "numbered from 0 to 3"),
        ('{"do":"leave","nodes":[1],"when":3}', 'unknown name "when"; allowed are do, nodes'),
        ('{"do":"loss","nodes":[1]}', '"ratio" is missing'),
        ('{"do":"loss","nodes":[1],"ratio":1.5}', "from 0 to 1"),
        ('{"do":"rate","bits_per_s":10}', "1 kbps to 100 Gbps"),
        ('{"do":"rate","bits_per_s":1e999}', "not JSON"),
        ('{"do":"delay","seconds":-1}', "0 to 10 s"),
        ('{"do":"delay","seconds":"1ms"}', '"seconds" must be a number'),
        ('{"do":"delay","nodes":[1],"seconds":1}', "one rate and one delay for all"),
        ('{"do":"partition","sets":[0,1]}', "a list of their numbers"),
        ('{"do":"partition","sets":[[0],[0]]}', "node 0 is in two sets"),
        ('{"do":"heal","nodes":[1]}', 'unknown name "nodes"'),
    ],
)
def test_a_bad_command_is_an_answer(idle: Network, line: str, error: str) -> None:
    answer = idle.line(line)
    assert answer["ok"] is False
    assert error in answer["error"]
    assert idle.do("stats")["ok"]


def test_lines_are_answered_in_order_and_clients_apart(idle: Network) -> None:
    """500 lines at once, more than are worked on at a time, while another client asks too."""
    with idle.connect() as client:
        lines = ['{"do":"stats"}' if number % 2 else f'{{"do":"{number}"}}' for number in range(500)]
        client.write("\n".join(lines) + "\n")
        client.flush()
        assert idle.do("stats")["ok"]
        answers = [json.loads(client.readline()) for _ in lines]
    assert [answer["ok"] for answer in answers] == [bool(number % 2) for number in range(500)]
    assert f'not "{498}"' in answers[498]["error"]


def test_a_line_without_end_is_refused(idle: Network) -> None:
    with idle.connect() as client:
        client.write("x" * 100_000)
        client.flush()
        assert "longer than 64 KiB" in json.loads(client.readline())["error"]
    assert idle.do("stats")["ok"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_even_under_load(start: Start, number: int) -> None:
    network = start(medium="csma", rate="100Mbps", nodes=20, background="50Mbps")
    assert network.stop(number) == ""
    assert network.process.returncode == 0
    assert not network.control.exists()


def test_a_killed_program_leaves_a_socket_that_the_next_takes(ns3_program: Path, tmp_path: Path) -> None:
    command, control = [str(ns3_program), f"--control={tmp_path / 'c'}"], tmp_path / "c"
    killed = Network(command, control, [])
    killed.stop(signal.SIGKILL)
    assert control.exists()
    second = Network(command, control, [])
    refused = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert (refused.returncode, "another program answers there" in refused.stderr) == (2, True)
    assert second.do("stats")["ok"]
    second.stop()
