"""A testbed that is up, from another process: for `status`, `exec`, `do`, `show`, `down`, the dashboard."""

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from peerloom.errors import DeadlineError, NotFoundError
from peerloom.testbed import namespaces
from peerloom.testbed.backends import NodeCount, Stats, apply, open_backend
from peerloom.testbed.names import Names
from peerloom.testbed.note import read_note
from peerloom.testbed.plan import Action, Plan
from peerloom.testbed.programs import REGISTRY_PORT, operator_file, start_inside
from peerloom.testbed.removal import remove_dead
from peerloom.testbed.services import ControlPlane, HostState
from peerloom.testbed.testbed_record import Entry, is_up, read_entries, wait_until_down

STOP_LIMIT_S = 60.0


@dataclass(frozen=True)
class Standing:
    """How a testbed is now; `entries` is all that it made."""

    plan: Plan
    pid: int
    hosts: tuple[HostState, ...]
    stats: Stats
    entries: tuple[Entry, ...]


def plan_on(state: Path) -> Plan:
    """The plan of the testbed that is up on a state folder. Raises NotFoundError when none is."""
    return read_note(state).plan()


def look(state: Path) -> Standing:
    """Looks at the testbed on a state folder. Raises NotFoundError when none is up."""
    note, its = read_note(state), Names.of_state(state)
    plan = note.plan()
    stats = count(state, plan)
    with ControlPlane(its.run_folder, operator_file(plan, state)) as control:
        hosts = tuple(control.hosts(plan))
    return Standing(plan, note.pid, hosts, stats, tuple(read_entries(its)))


def count(state: Path, plan: Plan) -> Stats:
    """The counters of the testbed on a state folder, whose plan is known. Raises a PeerloomError."""
    backend = open_backend(plan, Names.of_state(state))
    try:
        return backend.stats()
    finally:
        backend.close()


def enter(state: Path, plan: Plan) -> tuple[str, Path | None]:
    """Moves this process into the network of the testbed's control plane, for good.

    What it listens on already stays reachable from outside. Returns where the registry is from now on, and
    the file of who may ask it, None where anybody may. Call it before there is any other thread.
    """
    namespaces.enter(Names.of_state(state).host(plan.control.name))
    return f"{plan.control.address}:{REGISTRY_PORT}", operator_file(plan, state)


def act(state: Path, action: Action) -> None:
    """Changes the network of the testbed on a state folder."""
    plan, its = plan_on(state), Names.of_state(state)
    backend = open_backend(plan, its)
    try:
        apply(backend, plan, action)
    finally:
        backend.close()


def execute(state: Path, command: Sequence[str], host: str) -> int:
    """Runs a program on a host of the testbed on a state folder, in this terminal; its exit status."""
    process: subprocess.Popen[bytes] = start_inside(plan_on(state), state, command, host)
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise


def take_down(state: Path) -> int:
    """Stops the testbed on a state folder, and removes what killed ones left anywhere on this machine.

    Returns how many things of killed testbeds there were. Raises NotFoundError when there was nothing to do,
    DeadlineError when the supervisor doesn't end within a minute.
    """
    its = Names.of_state(state)
    pid = next((entry.pid for entry in read_entries(its) if entry.kind == "supervisor"), 0)
    if is_up(its):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        if not wait_until_down(its, STOP_LIMIT_S):
            raise DeadlineError(
                f"The testbed of process {pid} on {state} still runs after {STOP_LIMIT_S:.0f} s; its logs: "
                f"{state / 'logs'}"
            )
        remove_dead()
        return 0
    count = remove_dead()
    if not count:
        raise NotFoundError(
            f"No testbed is up on {state}. Another folder is named by --state.", reason="TESTBED_NOT_UP"
        )
    return count


def read_samples(state: Path) -> list[Stats]:
    """The samples of STATE/traffic.jsonl, oldest first. Raises NotFoundError when there are none."""
    path = state / "traffic.jsonl"
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise NotFoundError(f"{path} isn't there: no testbed has run on this folder.") from error
    found = []
    for line in lines:
        with suppress(ValueError, TypeError):
            row = json.loads(line)
            found.append(Stats(**{**row, "nodes": tuple(NodeCount(**node) for node in row["nodes"])}))
    if not found:
        raise NotFoundError(f"{path} holds no samples.")
    return found
