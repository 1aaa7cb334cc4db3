"""STATE/testbed.json: what is up on a state folder, so that other commands find it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from peerloom.errors import NotFoundError
from peerloom.testbed.names import Names
from peerloom.testbed.plan import BackendName, Isolation, Plan
from peerloom.testbed.reading import parse_plan, with_choices
from peerloom.testbed.testbed_record import is_up


@dataclass(frozen=True)
class Note:
    """The file's text with what was chosen beside it, and the supervisor's pid."""

    source: str
    text: str
    backend: BackendName
    isolation: Isolation | None
    pid: int

    def plan(self) -> Plan:
        """The plan that is up."""
        return with_choices(parse_plan(self.source, self.text), self.backend, self.isolation)


def write_note(state: Path, note: Note) -> None:
    """Others see the old note or the new one, never half of it."""
    fresh = state / "testbed.json.new"
    fresh.write_text(json.dumps(asdict(note), indent=2) + "\n")
    fresh.replace(state / "testbed.json")


def remove_note(state: Path) -> None:
    """Nobody looks for the testbed here any more."""
    (state / "testbed.json").unlink(missing_ok=True)


def read_note(state: Path) -> Note:
    """The note of the testbed that is up. Raises NotFoundError when none is."""
    try:
        note = Note(**json.loads((state / "testbed.json").read_text()))
    except (OSError, ValueError, TypeError):
        note = None
    if note is None or not is_up(Names.of_state(state)):
        raise NotFoundError(
            f"No testbed is up on {state}. Start one with: peerloom testbed up FILE", reason="TESTBED_NOT_UP"
        )
    return note
