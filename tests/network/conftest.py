"""What tests of emulated networks share: ns-3's program, Docker, and hosts behind taps in namespaces."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest
from compose_stack import require_docker
from emulated_lab import Lab, Network, needs

NS3 = Path(__file__).parents[2] / "ns3"
PROGRAM = NS3 / "build" / "peerloom-ns3"


@pytest.fixture(scope="session")
def ns3_program() -> Path:
    """The built program; it is built once where it is missing or older than its sources."""
    if not Path("/usr/include/ns3/tap-bridge.h").exists() or not shutil.which("cmake"):
        pytest.skip("needs ns-3: run ns3/install.sh")
    for command in (
        ["cmake", "-S", NS3, "-B", NS3 / "build"],
        ["cmake", "--build", NS3 / "build", "--parallel"],
    ):
        subprocess.run(command, check=True, capture_output=True, timeout=300)
    return PROGRAM


@pytest.fixture(scope="session")
def engine() -> Iterator[docker.DockerClient]:
    """The Docker daemon, with the images in it."""
    engine = require_docker()
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Three hosts, each behind a tap, in network namespaces that nobody else sees; gone after the run."""
    if os.geteuid() != 0:
        pytest.skip("needs root: run as root")
    missing = needs()
    if missing:
        pytest.skip(f"needs ns-3: {missing}; run ns3/install.sh")
    made = Lab(hosts=3)
    try:
        made.wire()
        yield made
    finally:
        made.close()


@pytest.fixture
def start(ns3_program: Path, lab: Lab, tmp_path: Path) -> Iterator[Callable[..., Network]]:
    """Starts the program over the lab's taps, start(medium="wan", rate="50Mbps"); stopped after the test."""
    running: list[Network] = []

    def begin(*, hosts: int = 2, **flags: object) -> Network:
        control = tmp_path / f"control-{len(running)}.sock"
        running.append(lab.start(ns3_program, control, hosts, flags))
        return running[-1]

    yield begin
    for network in running:
        network.stop()
