"""A system whose registry, selector and trainer each have a standby, all on one database."""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from worker_processes import workers_of

from benchmarks.chaos.system import COORDINATORS
from benchmarks.cuttable_network import CuttableNetwork
from benchmarks.takeover_replicas import HOSTS
from peerloom.client.types import (
    GenerationFormed,
    JobEvent,
    Ledger,
    StateChanged,
    StepCommitted,
    WorkerLost,
)
from peerloom.embedded.health import Prober

LIMIT_S = 90.0
START_TRIES = 3
StartService = Callable[..., Any]


class ReplicatedSystem:
    """Two processes of each coordinator, and one agent with as many slots as are asked for.

    `urls` are where those that lead first find the database, by name, if not at `url`. With a network, which
    has HOSTS, each coordinator is on one of these, and the agent here.
    """

    def __init__(
        self,
        start_service: StartService,
        url: str,
        folder: Path,
        slots: int,
        urls: Mapping[str, str] = MappingProxyType({}),
        network: CuttableNetwork | None = None,
    ) -> None:
        self._start_service, self._url, self._folder, self._network = start_service, url, folder, network
        self.registry, self.leaders, self.standbys = "", dict[str, Any](), dict[str, Any]()
        for name in COORDINATORS:
            self.leaders[name] = self._start(name, self._place(f"{name}-1"), urls.get(name, url))
            self.standbys[name] = self._start(name, self._place(f"{name}-2"))
            if name == "registry":
                self.registry = f"{self.leaders[name].address},{self.standbys[name].address}"
        agent = ["--state", str(folder / "node"), "--registry", self.registry, "--slots", str(slots)]
        if network is not None:
            agent += ["--listen", f"{network.ours}:0", "--allow-plain"]
        self.agent = start_service("node_agent", *agent)

    def _place(self, host: str) -> str:
        return "127.0.0.1:0" if self._network is None else f"{self._network.address(host)}:0"

    def _start(self, name: str, listen: str, url: str = "") -> Any:
        arguments = ["--database", url or self._url, "--listen", listen]
        if name != "registry":
            arguments += ["--registry", self.registry]
        if name == "trainer":
            arguments += ["--state", str(self._folder / "trainer")]
        if self._network is None:
            return self._start_service(name, *arguments)
        return self._network.on(
            self._host_at(listen), lambda: self._start_service(name, *arguments, "--allow-plain")
        )

    def _host_at(self, address: str) -> str:
        assert self._network is not None, "elsewhere they have no hosts of their own"
        by_address = {self._network.address(host): host for host in HOSTS}
        return by_address[address.partition(":")[0]]

    def cut(self, names: Sequence[str]) -> list[Any]:
        """Cuts the leaders' hosts from everybody; their standbys become the leaders."""
        assert self._network is not None, "without one nobody can be cut off"
        lost = [self.succeed(name) for name in names]
        self._network.cut([self._host_at(each.address) for each in lost])
        return lost

    def mend(self, lost: Sequence[Any]) -> None:
        """The hosts of those that were cut off have their network again."""
        assert self._network is not None, "without one nobody was cut off"
        self._network.mend([self._host_at(each.address) for each in lost])

    def lose(self, name: str, how: signal.Signals) -> Any:
        """Kills or freezes the leader; its standby becomes the leader."""
        lost = self.succeed(name)
        lost.process.send_signal(how)
        return lost

    def succeed(self, name: str) -> Any:
        """From now on the standby is to lead; who did until now."""
        if self.leaders[name].process.poll() is not None:
            # A machine that starves a leader for seconds has it deposed: right, and not what is tested here.
            ended, self.leaders[name] = self.leaders[name], self.standbys.pop(name)
            self.restore(name, ended)
        former = self.leaders[name]
        self.leaders[name] = self.standbys.pop(name)
        return former

    def wait_until_leads(self, name: str) -> None:
        """Until who is to lead does: a worker may be replaced sooner, by what had been asked before.

        One that a starving machine has deposed meanwhile is begun again, as whatever keeps it running would.
        """
        deadline_s = time.monotonic() + LIMIT_S
        with Prober() as prober:
            while prober.health(self.leaders[name].address) != "SERVING":  # each look is a call
                assert time.monotonic() < deadline_s, self.leaders[name].log()[-2000:]
                if self.leaders[name].process.poll() is not None:
                    self.leaders[name] = self._begun_again(name, self.leaders[name])

    def restore(self, name: str, lost: Any) -> None:
        """Ends the lost one, if it hasn't ended yet, and starts it anew as the standby."""
        lost.kill()
        self.standbys[name] = self._begun_again(name, lost)

    def _begun_again(self, name: str, ended: Any) -> Any:
        for _ in range(START_TRIES - 1):
            try:
                return self._start(name, ended.address)
            except pytest.fail.Exception:
                # One whose first connection to its database is reset ends, and is started again, as anywhere.
                if self._network is None:
                    raise
        return self._start(name, ended.address)

    def kill_worker(self) -> None:
        """SIGKILL to a worker."""
        workers_of(self.agent.process.pid)[0].kill()


def wakes_and_ends(lost: Any) -> int:
    """Thaws a leader that was frozen; the status that it ends with."""
    os.kill(lost.process.pid, signal.SIGCONT)
    return int(lost.process.wait(LIMIT_S))


class Followed:
    """A job's events, read as far as somebody waits for; each must carry the next number."""

    def __init__(self, events: Any, workers: int) -> None:
        self._events, self._workers = events, workers
        self.numbers: list[int] = []
        self.steps: list[int] = []
        self._formed: GenerationFormed | None = None

    def until(self, found: Callable[[JobEvent], bool]) -> JobEvent:
        """The first event that is looked for."""
        deadline_s = time.monotonic() + LIMIT_S
        for event in self._events:
            self.numbers.append(event.sequence)
            if isinstance(event, GenerationFormed):
                self._formed = event
            if isinstance(event, StepCommitted):
                self.steps.append(event.step)
            if found(event):
                return event  # type: ignore[no-any-return]
            assert time.monotonic() < deadline_s, f"not within {LIMIT_S:g} s; the last was {event}"
        raise AssertionError("the job ended before that")

    def until_whole(self, without: str = "") -> None:
        """Until a step of all workers, none of which is the one that was lost."""

        def is_whole(event: JobEvent) -> bool:
            formed = self._formed
            return (
                isinstance(event, StepCommitted)
                and formed is not None
                and len(formed.workers) == self._workers
                and without not in {worker.id for worker in formed.workers}
            )

        self.until(is_whole)

    def until_lost(self) -> str:
        """The id of the next worker that is lost."""
        event = self.until(lambda event: isinstance(event, WorkerLost))
        assert isinstance(event, WorkerLost)
        return event.worker.id

    def until_ended(self) -> None:
        self.until(lambda event: isinstance(event, StateChanged) and event.is_final)

    def check_whole(self, ledger: Ledger | None) -> None:
        """Every event once, every step once, and an exact ledger."""
        assert self.numbers == list(range(1, len(self.numbers) + 1)), "a gap, or an event twice"
        assert self.steps == list(range(1, len(self.steps) + 1)), "no step twice, none left out"
        assert ledger is not None
        assert ledger.is_exact, ledger.verdict
