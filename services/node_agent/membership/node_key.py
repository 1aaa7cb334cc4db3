"""Who this node is: a secret in its state folder proves it after every restart."""

import asyncio
import fcntl
import json
import os
import re
from pathlib import Path
from typing import IO

from peerloom.errors import ConfigurationError, FailedPreconditionError
from peerloom.kit.ids import new_secret
from peerloom.kit.state_folder import make_private


def lock_state(state: Path) -> IO[str]:
    """Makes the state folder ours until the returned file is closed, or this process dies.

    Raises FailedPreconditionError when another agent has it, ConfigurationError when it can't be used.
    """
    try:
        make_private(state)
        file = (state / "lock").open("w")
    except OSError as error:
        raise ConfigurationError(
            f"the state folder {state} can't be used: {error}. Choose another with --state."
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise FailedPreconditionError(
            f"The state folder {state} is in use by another agent. Stop that one, or choose another with "
            "--state.",
            reason="STATE_IN_USE",
        ) from None
    return file


async def probe_state(state: Path) -> None:
    """Raises OSError unless a file can be written in the state folder; for health."""
    await asyncio.to_thread((state / "probe").write_text, "the agent could write here\n")


def load_node_key(state: Path) -> str:
    """The node's secret, made at the first call. Raises ConfigurationError when it can't be read or kept."""
    path = state / "node.json"
    try:
        if path.exists():
            return str(json.loads(path.read_text())["node_key"])
        key = new_secret()
        _write(path, json.dumps({"node_key": key}))
        return key
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"the node's identity {path} can't be read or written: {error!r}. Remove the file to become a "
            "new node."
        ) from error


def _write(path: Path, text: str) -> None:
    temporary = path.with_suffix(".part")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)


def valid_name(host_name: str) -> str:
    """A host's name as a node's name: lower case, other characters as '-', at most 63 of them."""
    name = re.sub(r"[^a-z0-9]+", "-", host_name.lower())[:63].strip("-")
    return name or "node"
