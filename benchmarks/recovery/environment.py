"""A virtual environment of the rivals' own, made when first needed in benchmarks/.rivals, never in ours."""

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.measure import ROOT

FOLDER = ROOT / "benchmarks" / ".rivals"
TORCH = "torch==2.13.0"
NEEDED = ("opentelemetry-api", "opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http", "numpy")


def python() -> Path:
    """The environment's interpreter. Raises CalledProcessError with pip's words when it can't be made."""
    interpreter = FOLDER / "bin" / "python"
    if not (FOLDER / "ready").exists():
        _call(sys.executable, "-m", "venv", str(FOLDER))
        _call(str(interpreter), "-m", "pip", "install", "-q", TORCH)
        (FOLDER / "constraints.txt").write_text(TORCH + "\n")
        _install(*NEEDED)
        (FOLDER / "ready").touch()
    return interpreter


def package(requirement: str) -> Path:
    """A folder with this package alone, so that two versions can be compared. Raises CalledProcessError."""
    folder = FOLDER / requirement.replace("==", "-")
    if not folder.exists():
        part = folder.with_suffix(".part")
        _call(str(python()), "-m", "pip", "install", "-q", "--no-deps", "--target", str(part), requirement)
        part.rename(folder)
    return folder


def install(requirement: str) -> None:
    """Adds a package to the environment, with what it needs. Raises CalledProcessError."""
    mark = FOLDER / f"ready-{requirement}"
    python()
    if not mark.exists():
        _install(requirement)
        mark.touch()


def variables(*packages: Path, **more: str) -> dict[str, str]:
    """A worker's environment: one thread, our benchmark's modules, these packages, nothing of our own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PEERLOOM")}
    paths = os.pathsep.join([str(ROOT), *map(str, packages)])
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, "GLOO_SOCKET_IFNAME": "lo", **more}


def _install(*requirements: str) -> None:
    pip = (str(FOLDER / "bin" / "python"), "-m", "pip", "install", "-q")
    _call(*pip, "-c", str(FOLDER / "constraints.txt"), *requirements)


def _call(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
