"""A testbed from nothing to nothing: builds the network, starts the system on it, and removes both."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peerloom.embedded.folder import StateFolder
from peerloom.errors import DeadlineError
from peerloom.kit.interruptible import TURN_S, wait_for_event
from peerloom.kit.linux import check_linux
from peerloom.testbed import namespaces
from peerloom.testbed.backends import Backend, apply, open_backend
from peerloom.testbed.doorway import Doorway
from peerloom.testbed.entry import join_environments
from peerloom.testbed.names import Names
from peerloom.testbed.needs import check_needs, ns3_program
from peerloom.testbed.note import Note, remove_note, write_note
from peerloom.testbed.plan import Action, Isolation, Plan
from peerloom.testbed.program_supervisor import STOP_LIMIT_S, Supervisor
from peerloom.testbed.programs import (
    PORTS,
    REGISTRY_PORT,
    Program,
    operator_file,
    service_programs,
    start_inside,
)
from peerloom.testbed.removal import remove_all, remove_dead
from peerloom.testbed.services import ControlPlane
from peerloom.testbed.testbed_record import Record
from peerloom.testbed.traffic import Traffic
from peerloom.testbed.watch import Watch

if TYPE_CHECKING:
    from peerloom.testbed.container_hosts import ContainerHosts

READY_LIMIT_S = 120.0
_POLL_S = 0.1


class Testbed:
    """Hosts behind an emulated network, with the whole system on them; a context manager.

    `with Testbed(load_plan(path), state) as testbed: testbed.run(["train", "digits"])`. Leaving the block
    removes all that was made. After SIGKILL the next testbed on this machine, or `peerloom testbed down`,
    does. `netanim` and `pcap` are files that ns-3 writes; `log_level` is that of all services; without
    `system` only the network is built and `popen` alone puts programs on it.
    """

    __test__ = False  # pytest would take the class for tests, by its name

    def __init__(
        self,
        plan: Plan,
        state: Path,
        *,
        isolation: Isolation | None = None,
        log_level: str = "info",
        system: bool = True,
        netanim: Path | None = None,
        pcap: Path | None = None,
    ) -> None:
        self.plan = plan
        self.folder = StateFolder(Path(state))
        self.names = Names.of_state(self.folder.path)
        self._isolation, self._log_level, self._system = isolation, log_level, system
        self._netanim, self._pcap = netanim, pcap
        self._lock_descriptor = -1
        self._record: Record | None = None
        self._supervisor: Supervisor | None = None
        self._containers: ContainerHosts | None = None
        self._backend: Backend | None = None
        self._doorway: Doorway | None = None
        self._control: ControlPlane | None = None
        self._watch: Watch | None = None

    @property
    def address(self) -> str:
        """The registry's host:port on the emulated network: reached from inside only, see `run`."""
        return f"{self.plan.control.address}:{REGISTRY_PORT}"

    @property
    def backend(self) -> Backend:
        """What carries the frames, once it is up."""
        assert self._backend is not None, "start comes first"
        return self._backend

    @property
    def control(self) -> ControlPlane:
        """Asks the control plane how things are."""
        assert self._control is not None, "start comes first"
        return self._control

    def start(self) -> None:
        """Builds and starts everything; returns when every host is registered and can be chosen.

        Raises FailedPreconditionError for what the machine lacks, before anything is made, and for a state
        folder in use; UnavailableError when a part doesn't come up, DeadlineError when it takes longer than
        two minutes. Whatever was made is removed then.
        """
        check_linux("A testbed")
        check_needs(self.plan)
        remove_dead()
        record = Record.take(self.names)
        try:
            self._record = record
            record.write("state", str(self.folder.path))
            record.write("supervisor", "testbed", os.getpid())
            self._lock_descriptor = self.folder.lock()
            self._build(record)
            self._supervisor = Supervisor(record, self.folder.log_path)
            self._start_network(self._supervisor)
            if self._system:
                self._start_system(self._supervisor)
            self._supervisor.keep_all()
            self._begin_watch()
            note = Note(self.plan.source, self.plan.text, self.plan.backend, self._isolation, os.getpid())
            write_note(self.folder.path, note)
        except BaseException:
            self.stop()
            raise

    def _build(self, record: Record) -> None:
        # Here, as without pyroute2 `needs` shall tell of it.
        from peerloom.testbed.home import build_home
        from peerloom.testbed.lab import build_lab

        containers = [host for host in self.plan.hosts if host.isolation == "container"]
        if containers:
            from peerloom.testbed.container_hosts import ContainerHosts  # here, as not everybody needs Docker

            self._containers = ContainerHosts(self.plan, self.names, containers, record)
            self._containers.start_anchors()
        spaces = [self.names.lab]
        spaces += [self.names.host(h.name) for h in self.plan.all_hosts if h.isolation == "namespace"]
        behind_nat = [host for host in self.plan.hosts if host.nat]
        spaces += [self.names.router(host.name) for host in behind_nat]
        for space in spaces:
            record.write("namespace", space)
            namespaces.create(space)
        build_lab(self.plan, self.names)
        for host in behind_nat:
            build_home(self.plan, self.names, host)
        self._backend = open_backend(self.plan, self.names)

    def _start_system(self, supervisor: Supervisor) -> None:
        targets = {name: f"{self.plan.control.address}:{port}" for name, port in PORTS.items()}
        self._doorway = Doorway(self.names.host(self.plan.control.name), self.names.run_folder, targets)
        self._doorway.open()
        state = self.folder.path
        registry, *others = service_programs(self.plan, state, self._log_level)
        supervisor.start(registry, self.names.host(registry.host)).wait_until_ready()
        self._control = ControlPlane(self.names.run_folder, operator_file(self.plan, state))
        environments = join_environments(self.plan, state, self._control)
        started = [
            supervisor.start(
                replace(program, environment=environments.get(program.name, {})),
                self.names.host(program.host),
            )
            for program in others
        ]
        if self._containers is not None:
            self._containers.start_agents(state, self._log_level, environments)
        for running in started:
            running.wait_until_ready()
        self._wait_until_ready(supervisor, self._control)

    def _start_network(self, supervisor: Supervisor) -> None:
        if self.plan.backend == "netem":
            from peerloom.testbed.backends.netem import Netem

            Netem(self.plan, self.names).shape_all()
            return
        from peerloom.testbed.backends.ns3 import ns3_arguments

        arguments = ns3_arguments(self.plan, self.names, self._netanim, self._pcap)
        program = Program("ns3", "", (str(ns3_program()), *arguments), says="control=")
        supervisor.start(program, self.names.lab).wait_until_ready()

    def _wait_until_ready(self, supervisor: Supervisor, control: ControlPlane) -> None:
        deadline_s = time.monotonic() + READY_LIMIT_S
        while missing := control.missing(self.plan):
            if supervisor.failure:
                raise supervisor.failure
            if self._containers is not None:
                self._containers.check()
            if time.monotonic() > deadline_s:
                raise DeadlineError(
                    f"The testbed was not ready within {READY_LIMIT_S:.0f} s: {', '.join(missing)}. "
                    f"The logs are in {self.folder.path / 'logs'}."
                )
            supervisor.stopping.wait(_POLL_S)

    def _begin_watch(self) -> None:
        path = self.folder.path / "traffic.jsonl"
        jobs = self._control.jobs if self._control is not None else dict[str, bool]
        self._watch = Watch(self.plan, self.backend, path, jobs, self._keep_job)
        self._watch.start()

    def _keep_job(self, job_id: str, traffic: Traffic) -> None:
        self.control.record_traffic(job_id, traffic)
        # The file beside it is there also where the trainer was not, at that moment.
        folder = self.folder.path / "jobs"
        folder.mkdir(exist_ok=True)
        (folder / f"{job_id}.network.json").write_text(json.dumps(traffic.to_plain(), indent=2) + "\n")

    def traffic(self) -> Traffic:
        """What passed since all hosts were up, until now; also written to STATE/network.json."""
        assert self._watch is not None, "start comes first"
        self._watch.look()
        traffic = self._watch.traffic()
        text = json.dumps(traffic.to_plain(), indent=2) + "\n"
        (self.folder.path / "network.json").write_text(text)
        return traffic

    def shortcomings(self) -> list[str]:
        """What of the plan this back end doesn't do, a sentence each; nothing for ns-3."""
        if self.plan.backend == "ns3":
            return []
        from peerloom.testbed.backends.netem import Netem

        return Netem(self.plan, self.names).shortcomings()

    def apply(self, action: Action) -> None:
        """Changes the network now."""
        apply(self.backend, self.plan, action)

    def popen(
        self, command: Sequence[str], host: str = "control", **arguments: object
    ) -> "subprocess.Popen[Any]":
        """Starts a program on a host, as the registry's operator; `arguments` are those of Popen."""
        return start_inside(self.plan, self.folder.path, command, host, **arguments)

    def run(self, arguments: Sequence[str]) -> int:
        """Runs a `peerloom` command on the control plane's host; its exit status."""
        process = self.popen([sys.executable, "-m", "peerloom.cli", *arguments])
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(TURN_S)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the testbed has to stop, or is stopped; False if time ran out. Raises its failure."""
        if self._supervisor is None:
            return True
        ended = wait_for_event(self._supervisor.stopping, timeout_s)
        if self._supervisor.failure:
            raise self._supervisor.failure
        return ended

    def stop(self) -> None:
        """Ends all programs in order and removes all that was made; may be called again."""
        remove_note(self.folder.path)
        if self._watch is not None:
            self._watch.stop()
        if self._supervisor is not None:
            self._end_programs(self._supervisor)
            self._supervisor.stopping.set()
        for part in (self._control, self._doorway, self._backend):
            if part is not None:
                part.close()
        if self._record is not None:
            record, self._record = self._record, None
            try:
                remove_all(record)
            finally:
                record.close()
        if self._lock_descriptor >= 0:
            os.close(self._lock_descriptor)
            self._lock_descriptor = -1
        self._supervisor = self._watch = self._control = self._doorway = self._backend = None

    def _end_programs(self, supervisor: Supervisor) -> None:
        with ThreadPoolExecutor(1) as beside:
            if self._containers is not None:
                beside.submit(self._containers.stop, STOP_LIMIT_S, self.folder.log_path)

            def before(phase: int) -> None:
                if phase > 1:
                    beside.shutdown(wait=True)  # agents say goodbye to a registry that still listens

            supervisor.end(before)

    def __enter__(self) -> "Testbed":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
