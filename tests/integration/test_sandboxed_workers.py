"""A training whose code tries what it may not, on nodes with and without a sandbox; who says which it is."""

import asyncio
import dataclasses
from pathlib import Path

import psutil
import pytest
from node_agent_parts import agent_at

from peerloom import Client, Embedded
from peerloom.sandbox.bubblewrap import why_no_bubblewrap
from peerloom.sandbox.kernel_support import find_support
from peerloom.v1.node_agent_pb2 import StartInferenceRequest

LIMIT_S = 100.0
SUPPORT = dataclasses.replace(find_support(), bubblewrap=not why_no_bubblewrap())
# What it found goes to its output, which its agent keeps.
TASK = """
import os, socket
from pathlib import Path
import torch
from peerloom.worker.task import Split, Task


def outcome(attempt):
    try:
        attempt()
    except Exception as error:
        return type(error).__name__
    return "done"


class Curious(Task):
    epochs = 1

    def __init__(self, place: str) -> None:
        state, forker = Path("/", place), os.getppid()
        for name, found in {
            "state": outcome((state / "node.json").read_text),
            "logs": outcome(lambda: list((state / "logs").iterdir())),
            "looked-up": outcome((state / "node.json").stat),
            "accounts": outcome(Path("/etc/shadow").stat),
            "outside": outcome((state / "planted").touch),
            "signal": outcome(lambda: os.kill(forker, 0)),
            "environment": outcome(Path(f"/proc/{forker}/environ").read_bytes),
            "datagram": outcome(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()),
            "own": outcome(Path(os.environ["TMPDIR"], "mine").touch),
            "compiled": outcome(Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "compiled").touch),
            "secret": os.environ.get("OWNERS_PASSWORD", "none"),
        }.items():
            print(f"curious {name} {found}", flush=True)

    def model(self) -> torch.nn.Module:
        return torch.nn.Linear(2, 2)

    def data(self) -> tuple[Split, Split]:
        points = torch.randn(64, 2, generator=torch.Generator().manual_seed(1))
        split = Split(points, (points[:, 0] > points[:, 1]).long())
        return split, split
"""
ALLOWED = dict.fromkeys(("own", "compiled"), "done")
FORBIDDEN = ("logs", "outside", "signal", "environment", "datagram")
SEEN = ("looked-up", "accounts")  # by name, for what they are; Landlock alone lets everybody do that

pytestmark = pytest.mark.skipif(not SUPPORT.is_whole, reason=f"needs a sandbox: {SUPPORT.why_not}")


def run_curious(folder: Path) -> tuple[dict[str, str], str, str]:
    """What the job's code came to do, the node's label, and its inference server's mode of seccomp."""
    code = folder / "code"
    code.mkdir()
    (code / "curious.py").write_text(TASK)
    with Embedded(folder / "system", (1,)) as system, Client(system.address) as client:
        [node] = client.nodes()
        place = str(folder / "system" / "nodes" / "node-1").lstrip("/")
        job = client.train("curious:Curious", code=code, arguments={"place": place})
        job.result(LIMIT_S).raise_for_state()
        lines = [line.line.split() for line in job.logs()]
        asyncio.run(start_inference(node.address))
        found = {line[1]: line[2] for line in lines if line[:1] == ["curious"]}
        return found, node.labels["sandbox"].removesuffix("+cgroup"), seccomp_of("peerloom.inference.server")


async def start_inference(address: str) -> None:
    async with agent_at(address) as agent:
        await agent.call(agent.stub.StartInference, StartInferenceRequest(), LIMIT_S)


def seccomp_of(program: str) -> str:
    """The mode in the kernel's record of this process: 0 none, 2 a filter."""
    [pid] = [one.pid for one in psutil.Process().children(recursive=True) if program in one.cmdline()]
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("Seccomp:"))


@pytest.mark.timeout(240)
def test_a_jobs_code_trains_and_reaches_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEERLOOM_NODE_ALLOW_CODE", "true")
    monkeypatch.setenv("OWNERS_PASSWORD", "swordfish")
    for folder in ("free", "confined"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("PEERLOOM_NODE_NO_SANDBOX", "true")
    found, label, seccomp = run_curious(tmp_path / "free")
    assert (label, seccomp) == ("off", "0")
    open_to_all = dict.fromkeys((*FORBIDDEN, "state", *SEEN), "done")
    assert found == {**open_to_all, **ALLOWED, "secret": "none"}

    monkeypatch.setenv("PEERLOOM_NODE_NO_SANDBOX", "false")
    found, label, seccomp = run_curious(tmp_path / "confined")
    assert (label, seccomp) == (str(SUPPORT), "2")
    denied = dict.fromkeys((*FORBIDDEN, "state"), "PermissionError") | dict.fromkeys(SEEN, "done")
    if SUPPORT.bubblewrap:
        denied |= dict.fromkeys(("state", *SEEN), "FileNotFoundError")
    assert found == {**denied, **ALLOWED, "secret": "none"}
