"""Programs that run in a testbed's namespaces: what they are, and one running process."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peerloom.embedded.process import SupervisedProcess
from peerloom.errors import NotFoundError
from peerloom.testbed import namespaces
from peerloom.testbed.names import Names
from peerloom.testbed.plan import Host, Plan
from peerloom.testbed.unprivileged import ProgramUser

REGISTRY_PORT, SELECTOR_PORT, TRAINER_PORT, JOIN_PORT, AGENT_PORT = 7400, 7401, 7402, 7399, 7410
PORTS = {"registry": REGISTRY_PORT, "selector": SELECTOR_PORT, "trainer": TRAINER_PORT}


@dataclass(frozen=True)
class Program:
    """What runs where; `says` begins the one line that it prints when ready. Without `user`: as root."""

    name: str
    host: str
    command: tuple[str, ...]
    says: str = "address="
    environment: Mapping[str, str] = field(default_factory=dict)
    user: ProgramUser | None = None

    @property
    def stop_phase(self) -> int:
        """Lower stops earlier: who gives work, who does it, whom they report to, and last the network."""
        return {"trainer": 0, "selector": 2, "registry": 3, "ns3": 4}.get(self.name, 1)


def services_folder(plan: Plan, state: Path) -> Path:
    """Where the services keep what they know: a plain system elsewhere, as its nodes are others."""
    return state if plan.door else state / "plain"


def node_folder(plan: Plan, state: Path, host: str) -> Path:
    """Where the agent of a host keeps what it knows."""
    return services_folder(plan, state) / "nodes" / host


def operator_file(plan: Plan, state: Path) -> Path | None:
    """What proves that one is who runs the registry; None for a testbed without a door."""
    return services_folder(plan, state) / "registry" / "operator.pem" if plan.door else None


def service_programs(plan: Plan, state: Path, log_level: str) -> list[Program]:
    """Registry, selector and trainer on the control plane's host, and the agents of hosts in namespaces."""
    found = []
    for number, (name, port) in enumerate(PORTS.items()):
        folder = services_folder(plan, state) / name
        listen = ("--listen", f"{plan.control.address}:{port}", "--state", str(folder))
        arguments: tuple[str, ...] = (*listen, "--log-level", log_level)
        if name != "registry":
            arguments += ("--registry", f"{plan.control.address}:{REGISTRY_PORT}")
        elif plan.door:
            arguments += ("--join-listen", f"{plan.control.address}:{JOIN_PORT}")
        arguments += (*_plainness(plan), *_knobs(plan, name))
        command = (sys.executable, "-m", f"peerloom.services.{name}", *arguments)
        found.append(Program(name, plan.control.name, command, user=ProgramUser(number, folder)))
    for number, host in enumerate(plan.hosts, len(PORTS)):
        if host.isolation == "namespace":
            folder = node_folder(plan, state, host.name)
            arguments = agent_arguments(plan, host, str(folder), log_level)
            command = (sys.executable, "-m", "peerloom.services.node_agent", *arguments)
            found.append(Program(host.name, host.name, command, user=ProgramUser(number, folder)))
    return found


def agent_arguments(plan: Plan, host: Host, state: str, log_level: str) -> tuple[str, ...]:
    """The flags of a host's agent: its addresses are those of the emulated network."""
    return (
        *("--listen", f"{host.own_address}:{AGENT_PORT}"),
        *("--registry", f"{plan.control.address}:{REGISTRY_PORT}"),
        *("--state", state),
        *("--name", host.name),
        *("--slots", str(host.slots)),
        *("--threads-per-slot", "1"),
        *("--log-level", log_level),
        *(("--relay",) if host.relay else ()),
        *_plainness(plan),
        *_knobs(plan, "node"),
    )


def _plainness(plan: Plan) -> tuple[str, ...]:
    return () if plan.door else ("--allow-plain",)


def _knobs(plan: Plan, service: str) -> tuple[str, ...]:
    knobs = plan.settings.get(service, {})
    return tuple(part for name, value in knobs.items() for part in (f"--{name.replace('_', '-')}", value))


def start_inside(
    plan: Plan, state: Path, command: Sequence[str], host: str = "control", **arguments: object
) -> "subprocess.Popen[Any]":
    """Starts a program on a host of the testbed on a state folder, with PEERLOOM_ADDRESS and _IDENTITY set.

    Raises NotFoundError for either.
    """
    known = [one.name for one in plan.all_hosts]
    if host not in known:
        raise NotFoundError.of_name("host", host, known)
    address, identity = f"{plan.control.address}:{REGISTRY_PORT}", operator_file(plan, state)
    environment = {**os.environ, "PEERLOOM_ADDRESS": address, "PEERLOOM_IDENTITY": str(identity or "")}
    try:
        return namespaces.inside(
            Names.of_state(state).host(host),
            lambda: subprocess.Popen(list(command), env=environment, **arguments),  # type: ignore[call-overload]  # passed on as they are
        )
    except FileNotFoundError as error:
        raise NotFoundError(f"There is no program {command[0]!r}.") from error


class RunningProgram(SupervisedProcess):
    """One program in one namespace, which can be started again after its end."""

    def __init__(self, program: Program, namespace: str, log: Path) -> None:
        super().__init__(program.name, log, program.says)
        self.program = program
        self._namespace = namespace

    def launch(self, lifeline: int) -> None:
        """Starts it; `lifeline` is the read end of the pipe that ends Peerloom's own with their starter."""
        namespaces.inside(self._namespace, lambda: self._launch_here(lifeline))

    def _launch_here(self, lifeline: int) -> None:
        command, more, user = self.program.command, self.program.environment, self.program.user
        if user is None:
            self.start(command, lifeline, environment=more)
            return
        user.own()
        more = {**more, **user.environment}
        self.start(user.command(command), lifeline, environment=more, prepare=user.enter_view)
