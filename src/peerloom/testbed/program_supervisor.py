"""Keeps a testbed's programs running: starts them, starts them again when they end, ends them in order."""

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from peerloom.embedded.process import end_together, keep_running
from peerloom.embedded.rules import GiveUp, decide_restart, describe_exit
from peerloom.errors import PeerloomError, UnavailableError
from peerloom.testbed.programs import Program, RunningProgram
from peerloom.testbed.testbed_record import Record

STOP_LIMIT_S = 10.0


class Supervisor:
    """The programs of one testbed. `stopping` is set when all has to end: by `end`, or by a `failure`."""

    def __init__(self, record: Record, log_path: Callable[[str], Path]) -> None:
        self.stopping = threading.Event()
        self.failure: PeerloomError | None = None
        self._record, self._log_path = record, log_path
        self._programs: list[RunningProgram] = []
        self._keepers: list[threading.Thread] = []
        self._launching = threading.Lock()
        self._lifeline_read, self._lifeline_write = os.pipe()

    def start(self, program: Program, namespace: str) -> RunningProgram:
        """Starts a program; it isn't looked after before `keep_all`."""
        running = RunningProgram(program, namespace, self._log_path(program.name))
        self._programs.append(running)
        self._launch(running)
        return running

    def keep_all(self) -> None:
        """From now on, what ends is started again."""
        for running in self._programs:
            keeper = threading.Thread(
                target=self._keep, args=(running,), name=running.program.name, daemon=True
            )
            keeper.start()
            self._keepers.append(keeper)

    def end(self, before_phase: Callable[[int], None]) -> None:
        """Ends all in order; `before_phase` is called with each phase before it begins."""
        with self._launching:
            self.stopping.set()
        for phase in sorted({one.program.stop_phase for one in self._programs}):
            before_phase(phase)
            end_together([one for one in self._programs if one.program.stop_phase == phase], STOP_LIMIT_S)
        for keeper in self._keepers:
            keeper.join()
        for one in self._programs:
            one.close()
        os.close(self._lifeline_write)
        os.close(self._lifeline_read)

    def _launch(self, running: RunningProgram) -> bool:
        with self._launching:
            if self.stopping.is_set():
                return False
            running.launch(self._lifeline_read)
            self._record.write("process", running.program.name, running.pid)
            return True

    def _keep(self, running: RunningProgram) -> None:
        decide = _give_up if running.program.name == "ns3" else decide_restart
        given_up = keep_running(
            running, lambda: self._launch(running), running.wait_until_ready, self.stopping, decide
        )
        if given_up is not None:
            self.failure = UnavailableError(
                f"{running.program.name} is gone: {given_up.reason}. The testbed is stopped; "
                f"{running.log} has more."
            )
            self.stopping.set()


def _give_up(ends_s: Sequence[float], now_s: float, exit_code: int) -> GiveUp:
    return GiveUp(f"it {describe_exit(exit_code)}, and what was under way in it is lost")
