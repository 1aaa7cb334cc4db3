"""The supervisor of an embedded system."""

import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from peerloom.embedded.child import Child
from peerloom.embedded.dashboard_process import DashboardProcess
from peerloom.embedded.folder import StateFolder, SystemNote
from peerloom.embedded.health import Prober, Seen, not_ready
from peerloom.embedded.process import end_together, keep_running
from peerloom.embedded.process_plan import DEFAULT_SLOTS, SERVICES, plan_processes
from peerloom.errors import DeadlineError, PeerloomError, UnavailableError
from peerloom.kit.interruptible import wait_for_event
from peerloom.kit.linux import check_linux

READY_LIMIT_S = 60.0
STOP_LIMIT_S = 10.0
_POLL_S = 0.1


class Embedded:
    """All services and one agent for each entry of `slots`, as processes on loopback.

    A context manager: `with Embedded(Path("state")) as system: Client(system.address)`. `services` chooses
    some of registry, selector and trainer; the registry must be among them. Jobs may name files below
    `data_roots`. With `metrics` each process serves them to Prometheus, on loopback. With `dashboard` that
    runs beside them, on loopback; it needs peerloom[dashboard]. Nothing outlives it: leaving the block stops
    every process in order, and a SIGKILL of this process ends them too.
    """

    def __init__(
        self,
        state: Path,
        slots: Sequence[int] = DEFAULT_SLOTS,
        *,
        services: Collection[str] = SERVICES,
        log_level: str = "info",
        data_roots: Sequence[Path] = (),
        metrics: bool = False,
        dashboard: bool = False,
    ) -> None:
        self.folder = StateFolder(Path(state))
        plans = plan_processes(self.folder.path, slots, services, log_level, data_roots)
        self._children = [Child(plan, self.folder.log_path(plan.name), metrics) for plan in plans]
        self.dashboard = DashboardProcess(self.folder.log_path("dashboard")) if dashboard else None
        self._keepers: list[threading.Thread] = []
        self._stopping = threading.Event()
        self._launching = threading.Lock()
        self._lock_descriptor = self._lifeline_read = self._lifeline_write = -1
        self.failure: PeerloomError | None = None

    @property
    def address(self) -> str:
        """host:port of the registry, the one address that a client needs; empty before `start`."""
        return self._children[0].address

    @property
    def addresses(self) -> dict[str, str]:
        """host:port of each process by its name."""
        return {child.plan.name: child.address for child in self._children}

    @property
    def metrics(self) -> dict[str, str]:
        """host:port of each process's metrics by its name; empty without them."""
        return {child.plan.name: child.metrics for child in self._children if child.metrics}

    @property
    def pids(self) -> dict[str, int]:
        """The pid of each process by its name."""
        return {child.plan.name: child.pid for child in self._children}

    def start(self) -> None:
        """Starts everything and returns when all is healthy and every node is registered.

        Raises FailedPreconditionError when the folder is in use, or where this isn't Linux, UnavailableError
        when a process does not come up, DeadlineError when it takes longer than a minute. Whatever was
        started is stopped then.
        """
        check_linux("A system of processes (peerloom up, peerloom demo)")
        self._lock_descriptor = self.folder.lock()
        try:
            self._lifeline_read, self._lifeline_write = os.pipe()
            self.folder.remove_note()
            self._launch_all()
            self._wait_until_ready()
            url = self.dashboard.url if self.dashboard else ""
            self.folder.write_note(SystemNote(self.address, os.getpid(), self.addresses, self.metrics, url))
        except BaseException:
            self.stop()
            raise

    def _launch_all(self) -> None:
        registry, *others = self._children
        self._launch(registry)
        registry.wait_for_address()
        for child in others:
            self._launch(child)
        if self.dashboard:
            self._launch_beside(self.dashboard)
        for child in others:
            child.wait_for_address()
        for child in self._children:
            self._start_keeper(child.plan.name, self._keep, child)
        if self.dashboard:
            self.dashboard.wait_for_url()
            self._start_keeper("dashboard", self._keep_beside, self.dashboard)

    def _launch_beside(self, dashboard: DashboardProcess) -> bool:
        with self._launching:
            if self._stopping.is_set():
                return False
            dashboard.launch(self.address, self._lifeline_read, [self._lock_descriptor])
            return True

    def _keep_beside(self, dashboard: DashboardProcess) -> None:
        # The system goes on without it; its log says why.
        keep_running(
            dashboard, lambda: self._launch_beside(dashboard), dashboard.wait_for_url, self._stopping
        )

    def _start_keeper(self, name: str, keep: Callable[..., None], *arguments: object) -> None:
        keeper = threading.Thread(target=keep, args=arguments, name=name, daemon=True)
        keeper.start()
        self._keepers.append(keeper)

    def _launch(self, child: Child) -> bool:
        with self._launching:
            if self._stopping.is_set():
                return False
            registry = "" if child is self._children[0] else self.address
            child.launch(registry, self._lifeline_read, [self._lock_descriptor])
            return True

    def _keep(self, child: Child) -> None:
        given_up = keep_running(child, lambda: self._launch(child), child.wait_for_address, self._stopping)
        if given_up is not None:
            self.failure = UnavailableError(
                f"{child.plan.name} keeps failing: {given_up.reason}. The system is stopped; the log "
                f"{child.log} has more."
            )
            self._stopping.set()

    def _wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + READY_LIMIT_S
        with Prober() as prober:
            while missing := self._missing(prober):
                if self.failure:
                    raise self.failure
                if time.monotonic() > deadline_s:
                    raise DeadlineError(
                        f"The system was not ready within {READY_LIMIT_S:.0f} s: {', '.join(missing)}. "
                        f"The logs are in {self.folder.path / 'logs'}."
                    )
                self._stopping.wait(_POLL_S)

    def _missing(self, prober: Prober) -> list[str]:
        addresses = self.addresses
        unhealthy = (name for name, address in addresses.items() if prober.health(address) != "SERVING")
        selector = addresses.get("selector")
        seen = Seen(
            unhealthy=tuple(unhealthy),
            nodes=tuple(prober.nodes(self.address)),
            services=tuple(prober.services(self.address)),
            selectable=prober.selectable(selector) if selector else None,
        )
        return not_ready(addresses, seen)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the system has to stop, or is stopped; False if time ran out. Raises its failure."""
        ended = wait_for_event(self._stopping, timeout_s)
        if self.failure:
            raise self.failure
        return ended

    def stop(self) -> None:
        """Ends all processes: the trainer first, the registry last; who takes over 10 s is killed."""
        with self._launching:
            self._stopping.set()
        self.folder.remove_note()
        if self.dashboard:
            end_together([self.dashboard], STOP_LIMIT_S)
        for phase in sorted({child.plan.stop_phase for child in self._children}):
            end_together([child for child in self._children if child.plan.stop_phase == phase], STOP_LIMIT_S)
        for keeper in self._keepers:
            keeper.join()
        for process in (*self._children, *([self.dashboard] if self.dashboard else ())):
            process.close()
        for descriptor in (self._lifeline_write, self._lifeline_read, self._lock_descriptor):
            if descriptor >= 0:
                os.close(descriptor)
        self._lock_descriptor = self._lifeline_read = self._lifeline_write = -1

    def __enter__(self) -> "Embedded":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
