"""A script in a worker: it runs in a thread of its own, from its first line, and finds its training here."""

import runpy
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from peerloom.errors import InvalidArgumentError, NotFoundError
from peerloom.kit.elastic_scripts import script_and_arguments
from peerloom.worker.elastic.conversation import Conversation
from peerloom.worker.elastic.script_task import ScriptLoop, ScriptTask, Watcher


class ScriptHost:
    """What a worker has for the script that it started; `conversation` is theirs, `device` the worker's."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.conversation: Conversation[ScriptLoop] = Conversation()
        self._watcher: Watcher | None = None

    def watched_by(self, watcher: Watcher) -> None:
        """The script's run wants to know where the worker stands."""
        self._watcher = watcher

    def placed(self, rank: int, size: int) -> None:
        """Passes on the worker's rank."""
        if self._watcher is not None:
            self._watcher.placed(rank, size)

    def reached(self, steps: int) -> None:
        """Passes on how far the job is."""
        if self._watcher is not None:
            self._watcher.reached(steps)

    def measured(self, epoch: int, loss: float, metric: float) -> None:
        """Passes on what an epoch was like."""
        if self._watcher is not None:
            self._watcher.measured(epoch, loss, metric)


_hosts: list[ScriptHost] = []  # one at most: a worker runs one script


def host_of_script() -> ScriptHost | None:
    """The host of the script in this process; None outside a job."""
    return _hosts[0] if _hosts else None


def begin_script(arguments: Mapping[str, str], code: Path | None, device: torch.device) -> ScriptTask:
    """Runs the script to where its loop begins; what it hands over then is the task.

    `arguments` are the script's path in the folder of the job's `code`, and its own arguments. Raises
    NotFoundError where there is no such script, InvalidArgumentError when it fails before its loop.
    """
    try:
        script, own = script_and_arguments(arguments)
    except (KeyError, ValueError) as error:
        raise InvalidArgumentError.of_field(
            "task_arguments", str(error), "a script and its arguments"
        ) from error
    path = find_script(script, code)

    def run() -> None:
        sys.argv = [str(path), *own]
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # to the log, line by line
        runpy.run_path(str(path), run_name="__main__")

    return host_script(run, device)


def host_script(run: Callable[[], None], device: torch.device) -> ScriptTask:
    """Calls `run` in a thread of its own, and waits for where its loop begins, as `begin_script` does."""
    host = ScriptHost(device)
    _hosts[:] = [host]
    threading.Thread(target=_host, args=(host, run), name="script", daemon=True).start()
    return ScriptTask(host.conversation.wait_for_loop(), host.conversation, host)


def find_script(script: str, code: Path | None) -> Path:
    """Where the script is: in the job's code, and nowhere else on the node. Raises NotFoundError."""
    path = Path(code or "", script).resolve()
    if code is None or not path.is_relative_to(code.resolve()) or not path.is_file():
        text = f"The job's code has no script {script!r}: hand it in with the folder that it lies in."
        raise NotFoundError(text, reason="SCRIPT_NOT_FOUND")
    return path


def _host(host: ScriptHost, run: Callable[[], None]) -> None:
    if host.device.type == "cuda":
        torch.cuda.set_device(host.device)  # each thread has its own
    try:
        run()
    except SystemExit as error:
        host.conversation.end(error if error.code else None)
    except BaseException as error:
        traceback.print_exc()
        host.conversation.end(error)
    else:
        host.conversation.end(None)
