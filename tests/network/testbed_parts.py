"""What the testbed's tests share: files, a look from inside, and the same training without a network."""

import io
import json
import os
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from compose_stack import require_daemon
from packet_capture import Capture
from safetensors.torch import load_file

import peerloom
from peerloom import Client, Embedded
from peerloom.testbed import Plan, Testbed, namespaces, parse_plan
from peerloom.testbed.needs import need_ns3, need_package, need_root, need_tun
from peerloom.testbed.programs import AGENT_PORT

STATE_LIMIT_S = 40.0
JOB = ("digits", "--epochs", "1", "--seed", "7", "--equal-shares", "--requests")
# Quick to suspect, so that tests are quick; slow enough for a machine with other things to do.
LIVELY = {"heartbeat_interval_s": 0.3, "suspect_after_s": 2, "dead_after_s": 10, "restart_grace_s": 1}

# Which nodes answer in time decides who trains, and so the parameters' last bits.
ALL_ANSWER = {"request_timeout_s": 60}


def require(*, ns3: bool = True) -> None:
    """Skips the test, with the reason, where the machine lacks something."""
    if not need_root().ok:
        pytest.skip("needs root: run as root")
    needs = [need_package("pyroute2"), *([need_tun(), need_ns3()] if ns3 else [])]
    for need in needs:
        if not need.ok:
            pytest.skip(f"needs ns-3: {need.found}. {need.remedy}")


def file_of(hosts: int, backend: str = "ns3", **more: Any) -> str:
    """A testbed file with so many hosts of one slot, host-1 and so on."""
    content = {
        "version": 1,
        "name": "tested",
        "backend": backend,
        "network": {"nodes": hosts + 2, "rate": "200Mbps", "mtu": 9000},
        "hosts": [{"name": f"host-{number}", "node": number} for number in range(1, hosts + 1)],
        "settings": {"registry": LIVELY, "node": {"artifact_limit_bytes": 10**8}, "trainer": ALL_ANSWER},
    }
    return yaml.safe_dump({**content, **more}, sort_keys=False)


def plan_of(hosts: int, backend: str = "ns3", **more: Any) -> Plan:
    """The same as a plan."""
    return parse_plan("tested.yaml", file_of(hosts, backend, **more))


def wait_until(seen: Callable[[], bool], what: str, limit_s: float = STATE_LIMIT_S) -> None:
    """Returns when `seen` is true; fails the test when that takes longer than the limit."""
    pause, deadline_s = threading.Event(), time.monotonic() + limit_s
    while not seen():
        assert time.monotonic() < deadline_s, f"{limit_s:.0f} s passed, and still not: {what}"
        pause.wait(0.05)


def states(testbed: Testbed) -> dict[str, str]:
    """Each host's state as the registry holds it."""
    return {host.name: host.state for host in testbed.control.hosts(testbed.plan)}


def is_cut_off(testbed: Testbed, host: str, other: str) -> bool:
    """Whether the agent on `other` can't be connected to from `host` within 2 s."""
    return not reaches(testbed, host, other, limit_s=2.0)


def reaches(testbed: Testbed, host: str, other: str, limit_s: float = 30.0) -> bool:
    """Whether the agent on `other` can be connected to from `host`."""
    address = (testbed.plan.host(other).address, AGENT_PORT)

    def connect() -> bool:
        with suppress(OSError), socket.create_connection(address, timeout=limit_s):
            return True
        return False

    return namespaces.inside(testbed.names.host(host), connect)


def ask_inside(testbed: Testbed, script: str) -> Any:
    """What a script that uses the SDK prints as JSON, run on the control plane's host."""
    process = testbed.popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    output, _ = process.communicate(timeout=150)
    assert process.returncode == 0
    return json.loads(output)


def train_inside(testbed: Testbed, requests: int) -> tuple[str, dict[str, torch.Tensor]]:
    """Trains the job over the network; its id and the final parameters."""
    command = [sys.executable, "-m", "peerloom.cli", "train", *JOB, str(requests), "-o", "json"]
    process = testbed.popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, told = process.communicate(timeout=200)
    assert process.returncode == 0, told.decode()
    result = json.loads(output)
    return result["job_id"], load_file(result["model_path"])


def captured(testbed: Testbed) -> Capture:
    """All that passes between the hosts and what carries their frames, begun by entering it."""
    return namespaces.inside(testbed.names.lab, Capture)


def parameters_seen(parameters: dict[str, torch.Tensor], seen: bytes) -> list[str]:
    """Of which parameters 64 bytes in a row, at one of many places, are in what was seen."""
    found = []
    for name, value in parameters.items():
        data = value.contiguous().numpy().tobytes()
        if any(data[at : at + 64] in seen for at in range(0, len(data) - 64, 512)):
            found.append(name)
    return found


def parameters_without_network(state: Path, workers: int) -> dict[str, torch.Tensor]:
    """The final parameters of the same job on loopback."""
    with (
        all_answer(),
        Embedded(state, (1,) * workers) as system,
        Client(system.address) as client,
    ):
        job = client.train("digits", requests=workers, epochs=1, seed=7, equal_shares=True)
        result = job.result(100)
        assert result.succeeded, result.reason
        return load_file(job.fetch_model(state / "model.safetensors"))


@contextmanager
def all_answer() -> Iterator[None]:
    """The same patience for a system that is started on loopback."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ALL_ANSWER.items():
            patch.setenv(f"PEERLOOM_TRAINER_{name.upper()}", str(value))
        yield


def assert_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    """The same names, and the same values to the last bit."""
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


@contextmanager
def bare_image() -> Iterator[dict[str, Any]]:
    """What `containers` of a file says to run this very code: an empty image, this machine's files."""
    engine = require_daemon()
    empty = io.BytesIO()
    with tarfile.open(fileobj=empty, mode="w") as archive:
        for folder in ("tmp", "proc", "dev", "etc", "var/lib/peerloom"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            archive.addfile(entry)
    tag = f"t{os.getpid()}"
    engine.api.import_image_from_data(empty.getvalue(), repository="peerloom-tested", tag=tag)
    try:
        yield {"image": f"peerloom-tested:{tag}", "python": sys.executable, **_this_machine()}
    finally:
        engine.images.remove(f"peerloom-tested:{tag}", force=True)
        engine.close()


def _this_machine() -> dict[str, Any]:
    source = Path(peerloom.__file__).parents[1]
    wanted = [Path(path) for path in ("/usr", "/lib", "/lib64", sys.base_prefix, sys.prefix)]
    wanted += [source, (source / "peerloom" / "services").resolve().parent]
    folders = sorted({path for path in wanted if path.exists()})
    outer = [one for one in folders if not any(other in one.parents for other in folders)]
    mounts = [f"{folder}:{folder}" for folder in outer]
    return {"mounts": mounts, "environment": {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}}
