"""`python -m benchmarks.report`: all of benchmarks/results/*.json as docs/benchmarks.md with pictures."""

import json
import math
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from benchmarks.measure import RESULTS, ROOT

PAGE = ROOT / "docs" / "benchmarks.md"
PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 2
OURS, RIVALS = "#1f6f8b", "#b9c4c9"
INTRODUCTION = """# Benchmarks

Made by `make bench-report` from the files in benchmarks/results, which `make bench` writes. Every figure is
the median of its runs; where there is a rival, the two ran in turn (A B A B) on the same machine, and the
ratio is our figure divided by the rival's.
"""


def main() -> None:
    results = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    PICTURES.mkdir(parents=True, exist_ok=True)
    for result in results:
        draw(result, PICTURES / f"benchmark-{result['benchmark']}.png")
    PAGE.write_text(INTRODUCTION + "".join(section(result) for result in results))
    print(f"{PAGE.relative_to(ROOT)}: {len(results)} benchmarks")


def section(result: dict[str, Any]) -> str:
    """One benchmark: its table, its picture, where it ran."""
    name, machine = result["benchmark"], result["machine"]
    lines = [
        "",
        f"## {name}",
        "",
        "| what | ours | goal | rival | rival's | ratio |",
        "| --- | ---: | --- | --- | ---: | ---: |",
        *(row(one) for one in result["measurements"]),
        "",
        f"![{name}](pictures/benchmark-{name}.png)",
        "",
    ]
    if (RESULTS / f"{name}.profile.txt").exists():
        profile = f"[the profile](../benchmarks/results/{name}.profile.txt)"
        lines += [f"A goal was missed; {profile} shows where the time goes.", ""]
    versions = ", ".join(f"{package} {version}" for package, version in result["versions"].items())
    memory_gib = machine["memory_bytes"] / 2**30
    lines += [
        f"{result['date']}, commit {result['commit']}; {machine['processor']}, {machine['cores']} cores, "
        f"{memory_gib:.0f} GiB, {machine['system']}; {versions}.",
        "",
    ]
    return "\n".join(lines)


def row(one: dict[str, Any]) -> str:
    """One measurement as a line of the table."""
    verdict = {None: "", True: ": met", False: ": **missed**"}[one["met"]]
    goal = one["goal"] + verdict if one["goal"] else "-"
    against = "- | - | -"
    if one["ratio"] is not None:
        against = f"{one['rival']} | {figure(one['rival_value'])} {one['unit']} | {figure(one['ratio'])}"
    return f"| {one['name']} | {figure(one['value'])} {one['unit']} | {goal} | {against} |"


def figure(value: float) -> str:
    """Three digits are what a benchmark is good for."""
    if not value:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def draw(result: dict[str, Any], path: Path) -> None:
    """Our figure and the rival's for each measurement, with our single runs as dots."""
    shown = result["measurements"]
    rows = math.ceil(len(shown) / COLUMNS)
    picture, axes = pyplot.subplots(rows, COLUMNS, figsize=(5.2 * COLUMNS, 1.5 * rows), squeeze=False)
    for axis, one in zip(axes.flat, shown, strict=False):
        draw_one(axis, one)
    for axis in axes.flat[len(shown) :]:
        axis.set_visible(False)
    picture.tight_layout()
    # Without the version in it, the same figures give the same file.
    picture.savefig(path, dpi=120, metadata={"Software": None})
    pyplot.close(picture)


def draw_one(axis: Any, one: dict[str, Any]) -> None:
    """Two bars, or one where there is no rival."""
    names, values, colours = ["Peerloom"], [one["value"]], [OURS]
    if one["rival_value"] is not None:
        names, values, colours = [*names, "rival"], [*values, one["rival_value"]], [*colours, RIVALS]
    axis.barh(names, values, color=colours, height=0.6)
    axis.plot(one["samples"], [0] * len(one["samples"]), "k.", markersize=3)
    axis.set_ylim(1.5, -0.5)
    axis.set_title(f"{one['name']} ({one['unit']})", fontsize=8, loc="left")
    axis.tick_params(labelsize=7)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


if __name__ == "__main__":
    main()
