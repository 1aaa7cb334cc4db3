"""Where results are kept: benchmarks/results/NAME.json, and in history.jsonl what each of them replaced.

A result is of a commit, so it is written from a clean tree only, and it replaces another only with a reason.
"""

import json
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.measure import ROOT, Measurement
from peerloom.experiments.records import machine

RESULTS = ROOT / "benchmarks" / "results"
HISTORY = ROOT / "benchmarks" / "history.jsonl"
PACKAGES = ("peerloom", "torch", "grpcio", "protobuf", "sqlalchemy", "numpy")
# What measuring itself writes; all else has to be as it was committed.
WRITTEN = (":!benchmarks/results", ":!benchmarks/history.jsonl", ":!docs")


def check_may_keep(name: str, why: str) -> None:
    """Ends the program, before it measures in vain, when the result could not be kept."""
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", *WRITTEN)
    if changed.strip():
        raise SystemExit(
            f"error: a result is of a commit, and these files differ from it:\n{changed}Commit or stash "
            "them first, or try with --quick, which keeps nothing."
        )
    if _path(name).exists() and not why:
        raise SystemExit(
            f'error: there is a result of {name} already: say why this one replaces it (WHY="..." with make, '
            "--why with python), or try with --quick, which keeps nothing."
        )


def keep(name: str, measurements: Sequence[Measurement], why: str) -> None:
    """Stores the result, and tells in the history what it replaces."""
    check_may_keep(name, why)
    result = {
        "benchmark": name,
        **stamp(),
        "machine": machine(),
        "versions": _versions(),
        "measurements": [asdict(one) for one in measurements],
    }
    if _path(name).exists():
        lines = replaced(json.loads(_path(name).read_text()), result, why)
        with HISTORY.open("a") as history:
            history.writelines(json.dumps(line) + "\n" for line in lines)
    RESULTS.mkdir(parents=True, exist_ok=True)
    _path(name).write_text(json.dumps(result, indent=2) + "\n")


def keep_profile(name: str, profile: str) -> None:
    """Stores what was seen of a goal that isn't met, in place of an older one; "" where all are met."""
    told = _path(name).with_suffix(".profile.txt")
    if profile:
        told.write_text(profile)
    else:
        told.unlink(missing_ok=True)


def replaced(old: dict[str, Any], new: dict[str, Any], why: str) -> list[dict[str, Any]]:
    """A line for each figure that there was, or is now; None where it wasn't measured, or is no more."""
    before, now = ({one["name"]: one["value"] for one in each["measurements"]} for each in (old, new))
    return [
        {
            "benchmark": new["benchmark"],
            "figure": figure,
            "old": before.get(figure),
            "new": now.get(figure),
            "old_commit": old["commit"],
            "new_commit": new["commit"],
            "date": new["date"],
            "why": why,
        }
        for figure in {**before, **now}
    ]


def stamp() -> dict[str, str]:
    """When something was measured (UTC), and the commit that was."""
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return {"date": date, "commit": git("rev-parse", "--short=12", "HEAD").strip()}


def git(*arguments: str) -> str:
    """What git says about this repository. Raises subprocess.CalledProcessError."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def _path(name: str) -> Path:
    return RESULTS / f"{name}.json"


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
