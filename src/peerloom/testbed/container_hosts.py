"""The hosts of a testbed that are containers."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from peerloom.errors import UnavailableError
from peerloom.testbed import namespaces
from peerloom.testbed.containers import Engine, state_in_container
from peerloom.testbed.names import Names
from peerloom.testbed.plan import Host, Plan
from peerloom.testbed.programs import agent_arguments, node_folder
from peerloom.testbed.testbed_record import Record


class ContainerHosts:
    """Starts them side by side: Docker takes half a second for each. All is recorded before it is made."""

    def __init__(self, plan: Plan, its: Names, hosts: Sequence[Host], record: Record) -> None:
        self._plan, self._names, self._hosts, self._record = plan, its, hosts, record
        for host in hosts:
            record.write("namespace", its.host(host.name))
            record.write("container", its.container(host.name))
            record.write("container", its.anchor(host.name))

    def start_anchors(self) -> None:
        """Starts the containers that hold the networks, and gives these their names."""

        def start(host: Host) -> None:
            with Engine() as engine:
                pid = engine.start_anchor(self._names, host, self._plan.containers)
            namespaces.attach(self._names.host(host.name), pid)

        self._each(start)

    def start_agents(
        self, state: Path, log_level: str, environments: Mapping[str, Mapping[str, str]]
    ) -> None:
        """Starts the agents, whose networks must stand, each with what its environment has besides."""

        def start(host: Host) -> None:
            arguments = agent_arguments(self._plan, host, state_in_container(), log_level)
            folder = node_folder(self._plan, state, host.name)
            own = {**self._plan.containers.environment, **environments.get(host.name, {})}
            limits = replace(self._plan.containers, environment=own)
            with Engine() as engine:
                engine.start_agent(self._names, host, limits, arguments, folder)

        self._each(start)

    def check(self) -> None:
        """Raises UnavailableError when an agent's container has ended for good, with what it said."""
        with Engine() as engine:
            for host in self._hosts:
                name = self._names.container(host.name)
                if not engine.is_running(name):
                    raise UnavailableError(
                        f"The agent of {host.name} ended: {engine.log(name).strip()[-500:]}"
                    )

    def stop(self, grace_s: float, log_path: Callable[[str], Path]) -> None:
        """Ends the agents, so that they say goodbye, and keeps what they wrote in the state folder's logs."""
        with Engine() as engine:
            engine.stop([self._names.container(host.name) for host in self._hosts], grace_s)
            for host in self._hosts:
                log_path(host.name).write_text(engine.log(self._names.container(host.name)))

    def _each(self, work: Callable[[Host], None]) -> None:
        with ThreadPoolExecutor(max(1, len(self._hosts))) as pool:
            for done in [pool.submit(work, host) for host in self._hosts]:
                done.result()
