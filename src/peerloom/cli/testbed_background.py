"""`peerloom testbed up --detach`: the same command again, in the background, until it says that all is up."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from peerloom.embedded.process import last_error
from peerloom.errors import DeadlineError, NotFoundError, UnavailableError

_LIMIT_S = 150.0
_POLL_S = 0.05


def start_detached(file: Path, state: Path, choices: dict[str, Any]) -> None:
    """Returns when the testbed is up. Raises what stopped it, in its own words."""
    from peerloom.testbed import load_plan
    from peerloom.testbed.needs import check_needs

    check_needs(load_plan(file, choices["backend"], choices["isolation"]))  # told now, in the foreground
    command = [sys.executable, "-m", "peerloom.cli", "testbed", "up", str(file), "--state", str(state)]
    for name, value in choices.items():
        command += [f"--{name.replace('_', '-')}", str(value)] if value is not None else []
    log = state / "logs" / "testbed.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    try:
        _wait_until_up(state, process, log)
    except BaseException:
        process.terminate()
        process.wait()
        raise


def _wait_until_up(state: Path, process: "subprocess.Popen[bytes]", log: Path) -> None:
    from peerloom.testbed.note import read_note

    deadline_s = time.monotonic() + _LIMIT_S
    while True:
        if process.poll() is not None:
            raise UnavailableError(last_error(log) or f"The testbed did not come up; {log} has more.")
        try:
            if read_note(state).pid == process.pid:
                return
        except NotFoundError:
            pass
        if time.monotonic() > deadline_s:
            raise DeadlineError(f"The testbed was not up within {_LIMIT_S:.0f} s; {log} has more.")
        time.sleep(_POLL_S)
