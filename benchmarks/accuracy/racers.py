"""Who races: each starts its job on the testbed's hosts, tells where a host's worker is, and ends."""

import json
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from benchmarks.accuracy.curve_file import read
from benchmarks.accuracy.trial import EPOCHS, HOSTS, TASKS, Trial
from benchmarks.measure import ROOT
from benchmarks.recovery import environment
from benchmarks.recovery.rival_jobs import NIGHTLY, end_families
from benchmarks.recovery.running_job import process_of
from peerloom.testbed import Testbed
from peerloom.testbed.names import HOST_INTERFACE

RENDEZVOUS_PORT, LIGHTHOUSE_PORT = 29400, 29510
HEARTBEAT_LIMIT_MS = (
    1000  # of silence, until torchft's lighthouse waits no longer for a replica: 5 s by default
)
HIVEMIND = "hivemind==1.1.12"
_END_S, _POLL_S = 60.0, 0.05
Line = dict[str, Any]


class Racer(ABC):
    """One job under way; what it tells lies in `folder`."""

    begins = HOSTS  # so many say that they have begun, before all have

    def __init__(self, testbed: Testbed, trial: Trial, folder: Path) -> None:
        self.testbed, self.trial, self.folder = testbed, trial, folder
        self.curve = folder / "curve"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @abstractmethod
    def start(self) -> None:
        """Starts all that belongs to it."""

    def worker_on(self, host: int) -> psutil.Process | None:
        """The process that trains on a host now; None when none does."""
        told = [line for line in read(self.curve) if line["kind"] == "host" and line["host"] == host]
        pid = told[-1]["pid"] if told else 0
        return psutil.Process(pid) if pid and psutil.pid_exists(pid) else None

    @abstractmethod
    def restart(self, host: int) -> None:
        """A host's worker was killed: starts another where the system itself doesn't."""

    def ended(self) -> str:
        """What a job that has ended said last; "" while it goes on."""
        for name in self.lasting():
            if self._processes[name].poll() is not None:
                lines = (self.folder / f"{name}.log").read_text(errors="replace").splitlines()
                errors = [line.strip() for line in lines if "Error" in line]
                return (errors or lines or ["it said nothing"])[-1][:200]
        return ""

    def lasting(self) -> Sequence[str]:
        """Those of its processes that live as long as it."""
        return list(self._processes)

    def end(self) -> None:
        """Ends all that it has started."""
        end_families(self._processes.values())

    def run(
        self, name: str, host: str, command: Sequence[str], variables: Mapping[str, str], **more: Any
    ) -> None:
        """Starts a process on a host, which has its address for a name; the output goes to NAME.log."""
        assigned = [f"{key}={value}" for key, value in variables.items()]
        own = [
            "unshare",
            "--uts",
            "sh",
            "-c",
            'hostname "$0" && exec "$@"',
            self.testbed.plan.host(host).address,
        ]
        with (self.folder / f"{name}.log").open("ab") as log:
            given = {"stdout": log, "stderr": log, "cwd": ROOT, **more}
            self._processes[name] = self.testbed.popen([*own, "env", *assigned, *command], host, **given)


class Ours(Racer):
    """Peerloom, by a method of --sync; with `equal_shares` parts of a batch don't follow speeds."""

    begins = 1

    def __init__(
        self, testbed: Testbed, trial: Trial, folder: Path, sync: str, equal_shares: bool = False
    ) -> None:
        super().__init__(testbed, trial, folder)
        self._sync, self._equal_shares = sync, equal_shares

    def start(self) -> None:
        settings = {
            "task": f"benchmarks.accuracy.waited_task:{TASKS[self.trial.task].__name__}",
            "requests": HOSTS,
            "min_workers": 2,
            "max_workers": HOSTS,
            "arguments": self.trial.arguments,
            "epochs": EPOCHS,
            "batch_size": self.trial.batch,
            "seed": self.trial.seed,
            "sync": self._sync,
            "equal_shares": self._equal_shares,
            "backend": "gloo",
        }
        asked = json.dumps({"settings": settings, "curve": str(self.curve)})
        command = [sys.executable, "-m", "benchmarks.accuracy.our_job", asked]
        self.run("job", "control", command, {}, stdin=subprocess.PIPE)

    def worker_on(self, host: int) -> psutil.Process | None:
        formed = [line for line in read(self.curve) if line["kind"] == "formed"]
        worker = formed[-1]["workers"].get(self.testbed.plan.hosts[host].name) if formed else None
        return process_of(worker) if worker else None

    def ended(self) -> str:
        told = [line["text"] for line in read(self.curve) if line["kind"] == "ended"]
        return told[0] if told else super().ended()

    def restart(self, host: int) -> None:
        """The trainer does."""

    def end(self) -> None:
        process = self._processes["job"]
        assert process.stdin is not None, "it waits for its end there"
        process.stdin.close()
        process.wait(_END_S)


class Torchrun(Racer):
    """Plain DDP under torchrun elastic: an agent a host."""

    def start(self) -> None:
        hosts = self.testbed.plan.hosts
        endpoint = f"{hosts[0].address}:{RENDEZVOUS_PORT}"
        variables = {**_variables(), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        for number, host in enumerate(hosts):
            asked = {**_asked(self.trial, self.curve, number), "checkpoint": str(self.folder / "checkpoint")}
            elastic = ["--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", "--rdzv-id=race"]
            elastic += [f"--nnodes={HOSTS}", "--nproc-per-node=1", "--max-restarts=1000"]
            elastic += [f"--local-addr={host.address}", f"--rdzv-conf=is_host={int(number == 0)}"]
            module = ["-m", "benchmarks.accuracy.torchrun_member", json.dumps(asked)]
            command = [str(environment.python()), "-m", "torch.distributed.run", *elastic, *module]
            self.run(f"agent-{number}", host.name, command, variables)

    def restart(self, host: int) -> None:
        """Its agents do."""


class Torchft(Racer):
    """torchft: a lighthouse beside the network's middle, and a replica a host, by one of its ways."""

    def __init__(self, testbed: Testbed, trial: Trial, folder: Path, way: str) -> None:
        super().__init__(testbed, trial, folder)
        self._way = way

    def start(self) -> None:
        packages = environment.package(NIGHTLY)
        address = f"{self.testbed.plan.control.address}:{LIGHTHOUSE_PORT}"
        self._variables = {**_variables(packages), "TORCHFT_LIGHTHOUSE": f"http://{address}"}
        flags = ["--bind", address, "--min_replicas", "2", "--heartbeat_timeout_ms", str(HEARTBEAT_LIMIT_MS)]
        serve = [str(environment.python()), str(packages / "bin" / "torchft_lighthouse"), *flags]
        self.run("lighthouse", "control", serve, self._variables)
        for number in range(HOSTS):
            self.restart(number)

    def restart(self, host: int) -> None:
        place = self.testbed.plan.hosts[host]
        asked = {**_asked(self.trial, self.curve, host), "address": place.address, "way": self._way}
        command = [str(environment.python()), "-m", "benchmarks.accuracy.torchft_member", json.dumps(asked)]
        self.run(f"replica-{host}", place.name, command, self._variables)

    def lasting(self) -> Sequence[str]:
        return ["lighthouse"]


class Hivemind(Racer):
    """hivemind: a first peer beside the network's middle, and a peer a host, which average parameters."""

    def start(self) -> None:
        environment.install(HIVEMIND)
        hub = [str(environment.python()), "-m", "benchmarks.accuracy.hivemind_hub"]
        self.run("hub", "control", [*hub, self.testbed.plan.control.address, str(self.curve)], _variables())
        self._peers = self._hub()
        for number in range(HOSTS):
            self.restart(number)

    def restart(self, host: int) -> None:
        """What a killed one had started ends with it, as on a machine that is switched off."""
        name, place = f"peer-{host}", self.testbed.plan.hosts[host]
        if (former := self._processes.get(name)) is not None:
            with suppress(ProcessLookupError):
                os.killpg(former.pid, signal.SIGKILL)
        asked = {**_asked(self.trial, self.curve, host), "address": place.address, "peers": self._peers}
        command = [str(environment.python()), "-m", "benchmarks.accuracy.hivemind_member", json.dumps(asked)]
        self.run(name, place.name, command, _variables(), start_new_session=True)

    def lasting(self) -> Sequence[str]:
        return ["hub"]

    def _hub(self) -> list[str]:
        """The first peer's addresses, once it tells. Raises SystemExit if it has ended, or after a minute."""
        deadline_s = time.monotonic() + _END_S
        while not (told := [line["peers"] for line in read(self.curve) if line["kind"] == "hub"]):
            if (end := self.ended()) or time.monotonic() > deadline_s:
                raise SystemExit(f"hivemind's first peer told no addresses: {end or 'a minute is over'}")
            time.sleep(_POLL_S)
        peers: list[str] = told[0]
        return peers


def _asked(trial: Trial, curve: Path, host: int) -> dict[str, Any]:
    return {"trial": asdict(trial), "curve": str(curve), "host": host}


def _variables(*packages: Path) -> dict[str, str]:
    paths = ":".join(map(str, (ROOT, ROOT / "src", *packages)))
    return {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths, "GLOO_SOCKET_IFNAME": HOST_INTERFACE}
