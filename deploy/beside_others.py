"""Whether Peerloom resolves in one environment with what users have already: `make check-extras`.

Asks pip to resolve, installs nothing. It takes minutes and a package index; what was found is in
docs/installation.md. With `own` it asks in half a minute whether all of Peerloom's own parts resolve
together in the versions of constraints.txt, which is what CI does: `make check-own-extras`.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
OTHERS = ("ray", "mlflow", "prefect", "flwr")
SHOWN = ("grpcio", "protobuf", "rich", "sqlalchemy")
LIMIT_S = 900


def resolved(*wanted: str) -> dict[str, str] | str:
    """The versions by name of all that would be installed, or pip's last words."""
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        dry = ("--dry-run", "--ignore-installed", "--report", str(report))
        done = subprocess.run([*pip, *dry, *wanted], capture_output=True, text=True, timeout=LIMIT_S)
        if done.returncode != 0:
            return done.stderr.strip().splitlines()[-1]
        chosen = [each["metadata"] for each in json.loads(report.read_text())["install"]]
    return {each["name"].lower(): each["version"] for each in chosen}


def own_parts() -> int:
    """Prints a line of all parts that users may ask for, in one environment; 0 when they resolve."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    parts = sorted(project["optional-dependencies"].keys() - {"dev"})
    wanted = f"{ROOT}[{','.join(parts)}]"
    found = resolved(wanted, "--constraint", str(ROOT / "constraints.txt"))
    failed = isinstance(found, str)
    said = f"don't resolve together: {found}" if failed else f"resolve together: {len(found)} packages"
    print(f"{', '.join(parts)}: {said}", flush=True)
    return int(failed)


def main() -> int:
    """Prints a line for each; 0 when all resolve, and without torch."""
    failed = 0
    for other in ("", *OTHERS):
        found = resolved(str(ROOT), *([other] if other else []))
        name = other or "peerloom alone"
        if isinstance(found, str):
            print(f"{name}: doesn't resolve: {found}", flush=True)
        else:
            versions = ", ".join(f"{one} {found[one]}" for one in SHOWN if one in found)
            heavy = ", and torch!" if "torch" in found else ""
            print(f"{name} {found.get(other, '')}: {versions}; {len(found)} packages{heavy}", flush=True)
        failed += isinstance(found, str) or "torch" in found
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(own_parts() if sys.argv[1:] == ["own"] else main())
