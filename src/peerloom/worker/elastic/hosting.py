"""A script in a worker: it runs in a thread of its own, from its first line, and finds its training here."""

import json
import runpy
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path

import torch

from peerloom.errors import InvalidArgumentError, NotFoundError
from peerloom.worker.elastic.conversation import Conversation
from peerloom.worker.elastic.script_task import ScriptLoop, ScriptTask, Watcher


class Host:
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

    def measured(self, epoch: int, loss: float, metric: float) -> None:
        """Passes on what an epoch was like."""
        if self._watcher is not None:
            self._watcher.measured(epoch, loss, metric)


_hosts: list[Host] = []  # one at most: a worker runs one script


def host_of_script() -> Host | None:
    """The host of the script in this process; None outside a job."""
    return _hosts[0] if _hosts else None


def begin_script(arguments: Mapping[str, str], device: torch.device) -> ScriptTask:
    """Runs the script to where its loop begins; what it hands over then is the task.

    `arguments` are the script's path in the job's code, and its own arguments as a JSON list. Raises
    NotFoundError where there is no such script, InvalidArgumentError when it fails before its loop.
    """
    path = find_script(arguments["script"])
    own: list[str] = json.loads(arguments.get("arguments", "[]"))
    host = Host(device)
    _hosts.append(host)
    threading.Thread(target=_run, args=(host, path, own), name="script", daemon=True).start()
    return ScriptTask(host.conversation.wait_for_loop(), host.conversation, host)


def find_script(script: str) -> Path:
    """Where the script is: in the job's code, which is the first folder that modules are imported from."""
    path = Path(sys.path[0], script)
    if Path(script).is_absolute() or ".." in Path(script).parts or not path.is_file():
        text = f"The job's code has no script {script!r}: hand it in with the folder that it lies in."
        raise NotFoundError(text, reason="SCRIPT_NOT_FOUND")
    return path


def _run(host: Host, path: Path, arguments: list[str]) -> None:
    if host.device.type == "cuda":
        torch.cuda.set_device(host.device)  # each thread has its own
    sys.argv = [str(path), *arguments]
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # to the log, line by line
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as error:
        is_good = error.code in (None, 0)
        host.conversation.end(None if is_good else RuntimeError(f"it ended with status {error.code}"))
    except BaseException as error:
        traceback.print_exc()
        host.conversation.end(error)
    else:
        host.conversation.end(None)
