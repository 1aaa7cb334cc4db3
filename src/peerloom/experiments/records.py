"""Results as JSON, with where and when they were made."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from peerloom.errors import DataLossError, FailedPreconditionError, NotFoundError
from peerloom.testbed.needs import own_congestion_control

FORMAT = 1


def record(
    experiment: str, figures: str, settings: Mapping[str, Any], found: Mapping[str, Any]
) -> dict[str, Any]:
    """A result with its surroundings; `settings` are those that it was asked for."""
    return {
        "format": FORMAT,
        "experiment": experiment,
        "thesis_figures": figures,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "peerloom": metadata.version("peerloom"),
        "commit": commit(Path(__file__).parent),
        "machine": machine(),
        "settings": dict(settings),
        **found,
    }


def commit(folder: Path) -> str | None:
    """The commit that the code in `folder` is of, with "+changes" where it differs.

    None where git doesn't keep that code: an installed package, also one that lies in a repository.
    """
    try:
        _git(folder, "ls-files", "--error-unmatch", "__init__.py")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ":/src", ":/services")
        return _git(folder, "rev-parse", "--short=12", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def machine() -> dict[str, Any]:
    """This machine: processor, cores, bytes of memory, system with the kernel's release, and its own TCP."""
    import psutil  # here, because it is slow to import

    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
        "congestion_control": own_congestion_control(),
    }


def _git(folder: Path, *arguments: str) -> str:
    told = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return told.stdout.strip()


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def write(result: Mapping[str, Any], path: Path) -> None:
    """Writes a result; its folder is made if need be. Raises FailedPreconditionError naming the file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise FailedPreconditionError(f"{path} can't be written: {error.strerror or error}.") from error


def read(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises NotFoundError, FailedPreconditionError or DataLossError naming it."""
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        raise NotFoundError(
            f"There is no file {path}. Give one that `peerloom experiment` has written.",
            reason="RESULT_NOT_FOUND",
        ) from None
    except OSError as error:
        raise FailedPreconditionError(f"{path} can't be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise DataLossError(f"{path} isn't JSON: {error}.") from None
    if not isinstance(found, dict):
        raise DataLossError(f"{path} holds a {type(found).__name__}, but a result is an object.")
    return found
