"""The composed system with every node behind ns-3: wired before it starts, and gone without a trace."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
import yaml
from compose_stack import DEPLOY, Stack, require_compose, require_docker

from peerloom.testbed import namespaces, parse_plan
from peerloom.testbed.names import Names
from peerloom.testbed.needs import ns3_program

pytestmark = [pytest.mark.network, pytest.mark.timeout(300)]
FILE = """
version: 1
network: {nodes: 6, medium: wan, rate: 100Mbps, delay: 2ms}
hosts:
  - {name: ada, node: 1}
  - {name: bob, node: 2}
"""


@pytest.fixture
def project() -> Iterator[Stack]:
    """A project's name, and what it leaves; its volumes are removed at the end."""
    if os.geteuid() != 0:
        pytest.skip("needs root: run as root")
    if ns3_program() is None:
        pytest.skip("needs ns-3: run ns3/install.sh")
    engine: docker.DockerClient = require_docker()
    stack = Stack(engine, require_compose())
    yield stack
    for kind in (engine.containers, engine.volumes):
        for left in kind.list(filters={"label": f"com.docker.compose.project={stack.project}"}):
            left.remove(force=True)
    engine.close()


def behind_ns3(project: Stack, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs the program with a state folder of its own."""
    (folder / "testbed.yaml").write_text(FILE)
    where = ("--project", project.project, "--state", str(folder / "state"))
    program = [sys.executable, str(DEPLOY / "behind_ns3.py"), str(folder / "testbed.yaml"), *where]
    return subprocess.run([*program, "--", *command], capture_output=True, text=True, timeout=280)


def test_a_job_crosses_ns3_and_nothing_but_volumes_is_left(project: Stack, tmp_path: Path) -> None:
    """Training of two nodes needs their gradients, some 24 kB a step each way: the counters show that."""
    done = behind_ns3(project, tmp_path, "train", "digits", "--requests", "2", "--epochs", "2")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    sent = {
        name: int(count.replace(",", ""))
        for name, count in re.findall(r"^(\w+): ([\d,]+) bytes sent", done.stdout, re.MULTILINE)
    }
    assert set(sent) == {"control", "ada", "bob"}
    assert min(sent["ada"], sent["bob"]) > 500_000
    its = Names.of_state(tmp_path / "state")
    assert [name for name in project.left() if "_net-" in name or "-net-" in name] == []
    assert project.containers() == []
    assert not any(namespaces.exists(name) for name in (its.lab, *map(its.host, ("control", "ada", "bob"))))
    assert not its.run_folder.exists()


def test_a_file_that_is_not_there_is_told_before_anything_is_made(project: Stack, tmp_path: Path) -> None:
    program = [sys.executable, str(DEPLOY / "behind_ns3.py"), str(tmp_path / "none.yaml")]
    done = subprocess.run(
        [*program, "--project", project.project, "--", "status"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: The testbed file")
    assert project.left() == []


def test_each_service_joins_an_anchor_and_dockers_own_network_is_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is given to compose: no network of Docker's, no published port, and compose accepts it."""
    monkeypatch.syspath_prepend(str(DEPLOY))
    from behind_ns3 import composed  # only a deployment has this module in its path

    plan = parse_plan("testbed.yaml", FILE)
    document = composed(plan, yaml.safe_load((DEPLOY / "compose.yaml").read_text()))
    services = document["services"]
    joined = {name: service["network_mode"] for name, service in services.items()}
    control = dict.fromkeys(("registry", "selector", "trainer"), "service:net-control")
    anchors = dict.fromkeys(("net-control", "net-ada", "net-bob"), "none")
    assert joined == {**control, **anchors, "ada": "service:net-ada", "bob": "service:net-bob"}
    assert not any(set(service) & {"ports", "networks"} for service in services.values())
    (tmp_path / "compose.json").write_text(json.dumps(document))
    command = [*require_compose(), "--file", str(tmp_path / "compose.json"), "config", "--quiet"]
    assert subprocess.run(command, capture_output=True, text=True).stderr == ""
