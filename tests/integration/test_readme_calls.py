"""README.md and docs/reference/sdk.md are true: their services start, their code runs, their calls answer so.

README shows grpcurl. `buf curl` makes the same calls here, by the same server reflection. Ids, times and
measured figures differ from run to run, so an answer must have the shown fields with values of the shown
kind, and exactly the shown words where a word is one of the schema's.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from conftest import ServiceHandle, StartService
from grpc_health.v1 import health_pb2, health_pb2_grpc

from peerloom.v1.common_pb2 import SlotCount
from peerloom.v1.registry_pb2 import GetNodeRequest
from peerloom.v1.registry_pb2_grpc import RegistryServiceStub

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SDK_PAGE = (ROOT / "docs" / "reference" / "sdk.md").read_text()
BUF = str(Path(sys.executable).with_name("buf"))
CALL_LIMIT_S = 60.0
# The ports that README's services listen on, and the folder of each one's module.
PORTS = {
    "127.0.0.1:7400": "registry",
    "127.0.0.1:7401": "selector",
    "127.0.0.1:7402": "trainer",
    "127.0.0.1:7403": "node_agent",
}
_ENUM = re.compile(r"[A-Z]+(_[A-Z]+)*")


@dataclass(frozen=True)
class Shown:
    """A call as README shows it: the data sent, the address, "service/method", and the answer's text."""

    data: str
    address: str
    method: str
    answer: str


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def shown_calls() -> list[Shown]:
    """Every grpcurl command with its output."""
    found = []
    for block in blocks(README, "console"):
        command, _, answer = block.partition("\n")
        words = shlex.split(command.removeprefix("$ grpcurl -plaintext "))
        data = words[1] if words[0] == "-d" else "{}"
        found.append(Shown(data, words[-2], words[-1], answer))
    return found


def service_commands() -> Iterator[tuple[str, list[str]]]:
    """The services that README starts alone, by module, with their flags."""
    for line in "".join(blocks(README, "sh")).splitlines():
        program, name, *flags = shlex.split(line)
        assert program == "peerloom"
        yield {"node": "node_agent"}.get(name, name), flags


class System:
    """What README's commands started; `addresses` are the real ones of its ports."""

    def __init__(self, addresses: dict[str, str], folder: Path) -> None:
        self.addresses = addresses
        self._folder = folder

    def call(self, shown: Shown) -> "subprocess.CompletedProcess[str]":
        """Makes a shown call on the real service."""
        url = f"http://{self.addresses[shown.address]}/{shown.method}"
        command = [BUF, "curl", "--protocol", "grpc", "--http2-prior-knowledge", "--reflect"]
        return subprocess.run(
            [*command, "-d", shown.data, url], capture_output=True, text=True, timeout=CALL_LIMIT_S
        )

    def run_code(self, code: str) -> str:
        """Runs a page's code as a program of its own; returns what it printed."""
        program = self._folder / "program.py"
        program.write_text(code)
        environment = {**os.environ, "PEERLOOM_ADDRESS": self.addresses["127.0.0.1:7400"]}
        done = subprocess.run(
            [sys.executable, program.name],
            cwd=self._folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=2 * CALL_LIMIT_S,
        )
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def system(start_service: StartService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[System]:
    """README's four services, on free ports instead of its own, in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "examples" / "my_task.py", tmp_path)
    started: dict[str, ServiceHandle] = {}
    # They may start in any order; in this one, a healthy selector has already read of the node.
    for name, flags in sorted(service_commands(), key=lambda command: _ORDER.index(command[0])):
        free = ["127.0.0.1:0" if flag in PORTS else flag for flag in flags]
        registry = [] if name == "registry" else ["--registry", started["registry"].address]
        started[name] = start_service(name, *free, *registry, PYTHONPATH=str(tmp_path))
        _wait_until_healthy(started[name].address)
    yield System({port: started[name].address for port, name in PORTS.items()}, tmp_path)
    for name in reversed(_ORDER):
        assert started[name].stop() == 0, started[name].log()


_ORDER = ("registry", "node_agent", "selector", "trainer")


def _wait_until_healthy(address: str) -> None:
    # An agent is healthy once it has registered, a selector once it has read the registry's log.
    with grpc.insecure_channel(address) as channel:
        request = health_pb2.HealthCheckRequest()
        for answer in health_pb2_grpc.HealthStub(channel).Watch(request, timeout=CALL_LIMIT_S):
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                return


def _wait_until_idle(registry: str) -> None:
    # The heartbeat that tells of the slots that the last job freed may still be on its way.
    pause, deadline_s = threading.Event(), time.monotonic() + CALL_LIMIT_S
    with grpc.insecure_channel(registry) as channel:
        stub = RegistryServiceStub(channel)

        def slots() -> SlotCount:
            return stub.GetNode(GetNodeRequest(node="lab-1"), timeout=CALL_LIMIT_S).node.slots

        while slots().free < slots().total:
            assert time.monotonic() < deadline_s, slots()
            pause.wait(0.1)


@pytest.mark.timeout(600)
def test_readme_s_services_code_and_calls_work_as_shown(system: System) -> None:
    """In README's order: start the services, train an own model, use the SDK, call by hand."""
    printed = [system.run_code(code) for code in blocks(README, "python")]
    assert "succeeded, accuracy" in printed[0]
    assert re.search(r"^\('\d'(, '\d'){3}\) \[.+\] (remote|split|local) \w+ takes", printed[1])
    assert "succeeded: the model is trained" in printed[2]
    calls = shown_calls()
    assert {PORTS[call.address] for call in calls} == set(PORTS.values())
    _wait_until_idle(system.addresses["127.0.0.1:7400"])
    for call in calls:
        _wait_until_healthy(system.addresses[call.address])
        _compare(call, system.call(call))
    for code in blocks(SDK_PAGE, "python"):
        printed.append(system.run_code(code))
    assert "TASK_NOT_FOUND" in printed[-2]
    assert "epochs" in printed[-2]


def _compare(call: Shown, done: "subprocess.CompletedProcess[str]") -> None:
    if call.answer.startswith("ERROR:"):
        assert done.returncode != 0
        error = json.loads(done.stderr)
        code = "".join(part.title() for part in error["code"].split("_"))
        assert f"Code: {code}\n  Message: {error['message']}\n" in call.answer
        return
    assert done.returncode == 0, f"{call.method}: {done.stderr}"
    problem = difference(json.loads(call.answer), json.loads(done.stdout), call)
    assert not problem, f"{call.method}: {problem} in {done.stdout}"


def difference(shown: Any, real: Any, call: Shown, at: str = "the answer") -> str:
    """Where a real answer lacks what was shown; "" when it doesn't."""
    if isinstance(shown, dict) and isinstance(real, dict):
        found = {_plain(key): value for key, value in real.items()}
        inner = (
            difference(value, found[_plain(key)], call, key) if _plain(key) in found else f"no {key} in {at}"
            for key, value in shown.items()
        )
        return next((problem for problem in inner if problem), "")
    if isinstance(shown, list) and isinstance(real, list) and real:
        return difference(shown[0], real[0], call, at)
    if isinstance(shown, str) and _ENUM.fullmatch(shown) and at != "model":
        return "" if shown == real or len(shown) < 3 else f"{at} is {real!r} instead of {shown!r}"
    numbers = (int, float)
    same = isinstance(shown, numbers) == isinstance(real, numbers) and isinstance(shown, str) == isinstance(
        real, str
    )
    return "" if same else f"{at} is {real!r}, and {shown!r} was shown"


def _plain(key: str) -> str:
    # grpcurl 1.8 writes node_id where buf writes nodeId.
    return key.replace("_", "").lower()
