"""`python -m benchmarks.report`: all of benchmarks/results/*.json as docs/benchmarks.md with pictures."""

import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.deciding import table
from benchmarks.keeping import RESULTS
from benchmarks.measure import MET, MISSED, OPEN, ROOT
from benchmarks.pictures import draw_networks, draw_policies, draw_rows
from benchmarks.words import SWEEP, figure, verdict_of, within

PAGE = ROOT / "docs" / "benchmarks.md"
PICTURES = ROOT / "docs" / "pictures"
RECOVERY = "recovery"  # what begins so is one question: how long a fault holds the others up
INTRODUCTION = """# Benchmarks

Made by `make bench-report` from the files in benchmarks/results, which `make bench` writes from a clean tree;
a result that is replaced leaves its figures, and why, in benchmarks/history.jsonl. `make bench-check`
computes every figure again from the samples in the files.

Where there is a rival, both ran in turn (A B A B) on the same machine, and the ratio is our figure divided by
the rival's. In brackets stands the interval in which a figure or a ratio lies with 95 % (percentile
bootstrap, by pairs). A goal is met where the whole interval lies on its side, **missed** where none of it
does, and **open** else, as it is for fewer than five samples. Machines differ, so figures compare within one
of them only.
"""
PICTURES_SAY = """
In pictures a filled dot is Peerloom, with its interval as a bar and single runs as points, a hollow one the
rival that the table names, and an upright stroke the goal.
"""
# Written before the rivals' samples were kept (check.py lists them).
WITHOUT_VERDICT = "Measured before both sides' samples were kept: without intervals, and so without verdicts."


def main() -> None:
    results = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    PICTURES.mkdir(parents=True, exist_ok=True)
    for result in results:
        draw(result)
    draw_rows(_pauses(results), picture_of(RECOVERY))
    PAGE.write_text(page(results))
    print(f"{PAGE.relative_to(ROOT)}: {len(results)} benchmarks")


def picture_of(name: str) -> Path:
    """Where the picture of a benchmark, or of a question, lies."""
    return PICTURES / f"benchmark-{name}.png"


def draw(result: dict[str, Any]) -> None:
    """The picture of one benchmark; those of recovery have one together."""
    name = result["benchmark"]
    if name == "network":
        draw_networks(result["measurements"], picture_of(name))
    elif name == "policies":
        draw_policies(result["measurements"], picture_of(name))
    elif not name.startswith(RECOVERY):
        draw_rows(result["measurements"], picture_of(name))


def _pauses(results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    pauses = [
        one
        for result in results
        if result["benchmark"].startswith(RECOVERY)
        for one in result["measurements"]
        # The sweep is not a recovery to compare; and less than nothing has no place on a logarithmic axis.
        if one["unit"] == "s" and one["value"] > 0 and not one["name"].startswith(SWEEP)
    ]
    return sorted(pauses, key=lambda one: float(one["value"]))


def page(results: Sequence[dict[str, Any]]) -> str:
    """What decides, then all of them, a chapter a machine."""
    by_machine = sorted(results, key=lambda result: (machine_of(result), result["benchmark"]))
    chapters = [
        f"\n## On {machine}\n" + "".join(section(result) for result in group)
        for machine, group in groupby(by_machine, key=machine_of)
    ]
    decides = f"\n## What decides\n\n{table(results)}"
    recovery = f"\n![Recovery](pictures/{picture_of(RECOVERY).name})\n"
    return INTRODUCTION + decides + PICTURES_SAY + recovery + "".join(chapters)


def machine_of(result: dict[str, Any]) -> str:
    """In words, without the release of its kernel; older results don't say what TCP did."""
    machine = result["machine"]
    memory_gib = machine["memory_bytes"] / 2**30
    tcp = f", TCP by {machine['congestion_control']}" if "congestion_control" in machine else ""
    return f"{machine['processor']}, {machine['cores']} cores, {memory_gib:.0f} GiB{tcp}"


def section(result: dict[str, Any]) -> str:
    """One benchmark, folded but for its verdicts: its table, its picture, of which code."""
    name, measurements = result["benchmark"], result["measurements"]
    lines = [
        "",
        f"### {name}",
        "",
        "<details>",
        f"<summary>{_in_short(measurements)}</summary>",
        *([] if "statistic" in measurements[0] else ["", WITHOUT_VERDICT]),
        "",
        "| what | from | ours | goal | rival | rival's | ratio |",
        "| --- | --- | ---: | --- | --- | ---: | ---: |",
        *(row(one) for one in measurements),
        "",
        *([] if name.startswith(RECOVERY) else [f"![{name}](pictures/{picture_of(name).name})", ""]),
    ]
    if (RESULTS / f"{name}.profile.txt").exists():
        profile = f"[the profile](../benchmarks/results/{name}.profile.txt)"
        lines += [f"Not every goal was met; {profile} shows where the time goes.", ""]
    versions = ", ".join(f"{package} {version}" for package, version in result["versions"].items())
    told = f"{result['date']}, commit {result['commit']}; {result['machine']['system']}; {versions}."
    lines += [told, "", "</details>", ""]
    return "\n".join(lines)


def _in_short(measurements: Sequence[dict[str, Any]]) -> str:
    verdicts = [one.get("verdict", "") for one in measurements]
    counts = [
        f"{verdicts.count(verdict)} {verdict}" for verdict in (MET, OPEN, MISSED) if verdict in verdicts
    ]
    goals = f"; goals: {', '.join(counts)}" if counts else ""
    plural = "" if len(measurements) == 1 else "s"
    return f"{len(measurements)} figure{plural}{goals}"


def row(one: dict[str, Any]) -> str:
    """One measurement as a line of the table."""
    against = "- | - | -"
    if one["ratio"] is not None:
        ratio = figure(one["ratio"]) + within(one.get("ratio_interval"))
        against = f"{one['rival']} | {figure(one['rival_value'])} {one['unit']} | {ratio}"
    samples = len(one["samples"])
    how = "-" if "statistic" not in one else f"{one['statistic']} of {samples}" if samples > 1 else "one"
    ours = f"{figure(one['value'])} {one['unit']}{within(one.get('interval'))}"
    return f"| {one['name']} | {how} | {ours} | {verdict_of(one)} | {against} |"


if __name__ == "__main__":
    main()
