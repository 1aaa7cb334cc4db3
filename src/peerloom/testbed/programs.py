"""Programs that run in a testbed's namespaces: what they are, and one running process."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from peerloom.embedded.process import SupervisedProcess
from peerloom.testbed import namespaces
from peerloom.testbed.plan import Host, Plan

REGISTRY_PORT, SELECTOR_PORT, TRAINER_PORT, AGENT_PORT = 7400, 7401, 7402, 7410
PORTS = {"registry": REGISTRY_PORT, "selector": SELECTOR_PORT, "trainer": TRAINER_PORT}


@dataclass(frozen=True)
class Program:
    """What runs where; `says` begins the one line that it prints when it is ready."""

    name: str
    host: str
    command: tuple[str, ...]
    says: str = "address="
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def stop_phase(self) -> int:
        """Lower stops earlier: who gives work, who does it, whom they report to, and last the network."""
        return {"trainer": 0, "selector": 2, "registry": 3, "ns3": 4}.get(self.name, 1)


def service_programs(plan: Plan, state: Path, log_level: str) -> list[Program]:
    """Registry, selector and trainer on the control plane's host, and the agents of hosts in namespaces."""
    found = []
    for name, port in PORTS.items():
        listen = ("--listen", f"{plan.control.address}:{port}", "--state", str(state / name))
        arguments = (*listen, "--allow-plain", "--log-level", log_level, *_knobs(plan, name))
        if name != "registry":
            arguments += ("--registry", f"{plan.control.address}:{REGISTRY_PORT}")
        command = (sys.executable, "-m", f"peerloom.services.{name}", *arguments)
        found.append(Program(name, plan.control.name, command))
    for host in plan.hosts:
        if host.isolation == "namespace":
            arguments = agent_arguments(plan, host, str(state / "nodes" / host.name), log_level)
            command = (sys.executable, "-m", "peerloom.services.node_agent", *arguments)
            found.append(Program(host.name, host.name, command))
    return found


def agent_arguments(plan: Plan, host: Host, state: str, log_level: str) -> tuple[str, ...]:
    """The flags of a host's agent: its addresses are those of the emulated network."""
    return (
        *("--listen", f"{host.address}:{AGENT_PORT}"),
        *("--registry", f"{plan.control.address}:{REGISTRY_PORT}"),
        *("--state", state),
        *("--name", host.name),
        *("--slots", str(host.slots)),
        *("--threads-per-slot", "1"),
        *("--log-level", log_level),
        "--allow-plain",
        *_knobs(plan, "node"),
    )


def _knobs(plan: Plan, service: str) -> tuple[str, ...]:
    knobs = plan.settings.get(service, {})
    return tuple(part for name, value in knobs.items() for part in (f"--{name.replace('_', '-')}", value))


class RunningProgram(SupervisedProcess):
    """One program in one namespace, which can be started again after its end."""

    def __init__(self, program: Program, namespace: str, log: Path) -> None:
        super().__init__(program.name, log, program.says)
        self.program = program
        self._namespace = namespace

    def launch(self, lifeline: int) -> None:
        """Starts it; `lifeline` is the read end of the pipe that ends Peerloom's own with their starter."""
        command, more = self.program.command, self.program.environment
        namespaces.inside(self._namespace, lambda: self.start(command, lifeline, environment=more))
