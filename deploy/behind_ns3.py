"""The system of compose.yaml with every node behind ns-3: `behind_ns3.py FILE [-- COMMAND...]`, as root.

FILE is a testbed file (see examples/): its hosts become containers of compose.yaml's service `node`, and
registry, selector and trainer share the host `control`. For each host there is one more container, its
anchor, which only sleeps and has no network of Docker's. The anchors are started first and wired to ns-3 with
the testbed's own functions; then the services join the anchors' networks. So the network stands before any
program starts, and a service that Docker starts again finds it as it was.

With a `peerloom` command after `--` it runs that in the registry's container, as its operator, and ends with
its status; else it runs until Ctrl-C. Either way containers, network and ns-3 are gone afterwards, and the
volumes stay. After SIGKILL the next run, or `peerloom testbed down`, removes what is left.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import yaml

from peerloom.embedded.folder import StateFolder
from peerloom.errors import DeadlineError, FailedPreconditionError, PeerloomError
from peerloom.testbed import Plan, load_plan, namespaces
from peerloom.testbed.backends.ns3 import Ns3, ns3_arguments
from peerloom.testbed.lab import build_lab
from peerloom.testbed.names import Names
from peerloom.testbed.needs import check_needs, ns3_program
from peerloom.testbed.program_supervisor import Supervisor
from peerloom.testbed.programs import JOIN_PORT, REGISTRY_PORT, Program
from peerloom.testbed.removal import remove_all, remove_dead
from peerloom.testbed.testbed_record import Record

HERE = Path(__file__).parent
SERVICES = ("registry", "selector", "trainer")
DOCKERS_OWN = ("networks", "ports", "depends_on", "sysctls")  # the last: wiring sets up hosts' TCP
READY_LIMIT_S = 120.0
SLEEP = "import signal; signal.sigwait({signal.SIGTERM, signal.SIGINT})"


def anchor(host: str) -> str:
    """The service that holds a host's network."""
    return f"net-{host}"


def composed(plan: Plan, base: dict[str, Any]) -> dict[str, Any]:
    """compose.yaml's services in the networks of anchors, a node for each host of the plan."""
    registry = f"{plan.control.address}:{REGISTRY_PORT}"
    services: dict[str, Any] = {anchor(host.name): _anchor(base) for host in plan.all_hosts}
    for name in SERVICES:
        services[name] = _joined(base["services"][name], plan.control.name, {})
    for name in SERVICES[1:]:
        services[name]["environment"][f"PEERLOOM_{name.upper()}_REGISTRY"] = registry
        services[name]["depends_on"] = {"registry": {"condition": "service_healthy"}}
    for host in plan.hosts:
        own = {
            "PEERLOOM_NODE_NAME": host.name,
            "PEERLOOM_NODE_STATE": f"/var/lib/peerloom/{host.name}",
            "PEERLOOM_NODE_SLOTS": str(host.slots),
            "PEERLOOM_NODE_REGISTRY": registry,
        }
        services[host.name] = _joined(base["services"]["node"], host.name, own)
        services[host.name]["depends_on"] = {"registry": {"condition": "service_healthy"}}
    return {"services": services, "volumes": base["volumes"]}


def _anchor(base: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in base["services"]["registry"].items() if key not in DOCKERS_OWN}
    return {
        **{key: value for key, value in kept.items() if key not in ("volumes", "environment")},
        "entrypoint": ["python", "-IS", "-c", SLEEP],
        "network_mode": "none",
        "restart": "no",  # started again it would have lost its wire
        "mem_limit": "64m",
        "healthcheck": {"disable": True},
    }


def _joined(service: dict[str, Any], host: str, environment: dict[str, str]) -> dict[str, Any]:
    kept = {key: value for key, value in service.items() if key not in DOCKERS_OWN}
    own = {
        "network_mode": f"service:{anchor(host)}",
        "environment": {**service["environment"], **environment},
    }
    return {**kept, **own}


@dataclass(frozen=True)
class Container:
    """What Docker says of a container; `health` is empty where nobody checks it."""

    id: str
    pid: int
    health: str


def _look_at(container: Any) -> Container:
    state = container.attrs["State"]
    return Container(container.id, state["Pid"], state.get("Health", {}).get("Status", ""))


class Project:
    """The compose project; its commands' output goes to standard error."""

    def __init__(self, name: str, file: Path) -> None:
        self._name = name
        both = (["docker", "compose"], ["docker-compose"])
        tool = both[subprocess.run([*both[0], "version"], capture_output=True).returncode != 0]
        if not shutil.which(tool[0]):
            raise FailedPreconditionError("There is no docker compose here: apt-get install docker-compose")
        where = ["--project-directory", str(HERE), "--env-file", str(HERE / ".env")]
        self._command = [*tool, "--project-name", name, "--file", str(file), *where]
        self._environment = {**os.environ, "CLIENT_PORT": str(REGISTRY_PORT), "JOIN_PORT": str(JOIN_PORT)}

    def run(self, *arguments: str) -> None:
        """Runs a command. Raises FailedPreconditionError when it fails."""
        command = [*self._command, *arguments]
        if subprocess.run(command, stdout=sys.stderr, env=self._environment).returncode:
            raise FailedPreconditionError(f"compose {arguments[0]} failed; what it said stands above.")

    def inside(self, service: str, command: Sequence[str]) -> int:
        """Runs a program in a service's container; its exit status."""
        inside = [*self._command, "exec", "-T", service, *command]
        return subprocess.run(inside, env=self._environment).returncode

    def wait_until_healthy(self) -> None:
        """Waits for all whose health is checked. Raises DeadlineError, naming those that aren't healthy."""
        deadline_s, pause = time.monotonic() + READY_LIMIT_S, threading.Event()
        while ill := [
            name for name, found in self.containers().items() if found.health not in ("", "healthy")
        ]:
            if time.monotonic() > deadline_s:
                raise DeadlineError(f"Not healthy within {READY_LIMIT_S:.0f} s: {', '.join(sorted(ill))}.")
            pause.wait(0.5)

    def containers(self) -> dict[str, Container]:
        """Those that run, by service."""
        engine = docker.from_env()
        try:
            label = f"com.docker.compose.project={self._name}"
            found = engine.containers.list(filters={"label": label})
            return {each.labels["com.docker.compose.service"]: _look_at(each) for each in found}
        finally:
            engine.close()


class Wired:
    """All of it, from nothing to nothing; a context manager."""

    def __init__(self, plan: Plan, project_name: str, state: Path) -> None:
        self.plan = plan
        self._folder = StateFolder(state)
        self._names = Names.of_state(self._folder.path)
        self._file = self._folder.path / "compose.json"
        self._project = Project(project_name, self._file)
        self._record: Record | None = None
        self._supervisor: Supervisor | None = None

    def __enter__(self) -> "Wired":
        check_needs(self.plan)
        remove_dead()
        self._record = record = Record.take(self._names)
        try:
            self._folder.path.mkdir(parents=True, exist_ok=True)
            base = yaml.safe_load((HERE / "compose.yaml").read_text())
            self._file.write_text(json.dumps(composed(self.plan, base), indent=2))
            self._start_anchors(record)
            self._wire(record)
            self._project.run("up", "--detach")
            self._record_containers(record)
            self._project.wait_until_healthy()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start_anchors(self, record: Record) -> None:
        self._project.run("up", "--detach", *(anchor(host.name) for host in self.plan.all_hosts))
        self._record_containers(record)
        running = self._project.containers()
        for host in self.plan.all_hosts:
            space = self._names.host(host.name)
            record.write("namespace", space)
            namespaces.attach(space, running[anchor(host.name)].pid)

    def _wire(self, record: Record) -> None:
        record.write("namespace", self._names.lab)
        namespaces.create(self._names.lab)
        build_lab(self.plan, self._names)
        self._supervisor = Supervisor(record, self._folder.log_path)
        command = (str(ns3_program()), *ns3_arguments(self.plan, self._names))
        self._supervisor.start(
            Program("ns3", "", command, says="control="), self._names.lab
        ).wait_until_ready()

    def _record_containers(self, record: Record) -> None:
        for container in self._project.containers().values():
            record.write("container", container.id)

    def run(self, command: Sequence[str]) -> int:
        """Runs a `peerloom` command beside the registry, and tells what crossed ns-3; its exit status."""
        status = self._project.inside("registry", ["peerloom", *command])
        network = Ns3(self._names.run_folder / "ns3.sock")
        try:
            stats = network.stats()
        finally:
            network.close()
        counts = {count.node: count for count in stats.nodes}
        for host in self.plan.all_hosts:
            sent, received = counts[host.node].sent_bytes, counts[host.node].received_bytes
            print(f"{host.name}: {sent:,} bytes sent, {received:,} received through ns-3")
        print(f"ns-3 was at most {(stats.lag_worst_s or 0) * 1000:.1f} ms behind the wall clock")
        return status

    def __exit__(self, *_: object) -> None:
        if self._record is None:
            return
        try:
            self._project.run("down", "--timeout", "10")
        finally:
            if self._supervisor is not None:
                self._supervisor.end(lambda phase: None)
            remove_all(self._record)
            self._record.close()
            self._record = None


def main() -> int:
    """Parses the arguments, brings all up, runs the command or waits, and takes all down."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="a testbed file")
    parser.add_argument("--project", default="peerloom-ns3", help="the compose project's name")
    parser.add_argument("--state", type=Path, help="folder for the logs and the file for compose")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    given, command = parser.parse_args(words[:end]), words[end + 1 :]
    state = given.state or Path.home() / ".peerloom" / given.project
    signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    try:
        with Wired(load_plan(given.file, isolation="container"), given.project, state) as wired:
            if command:
                return wired.run(command)
            print("up; Ctrl-C takes it down", flush=True)
            signal.pause()
    except PeerloomError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
