"""`python -m benchmarks.check`: whether the results say what their samples say; runs nothing."""

import json
import subprocess
import sys
from dataclasses import asdict
from typing import Any

from benchmarks.deciding import unanswered
from benchmarks.keeping import HISTORY, RESULTS, git
from benchmarks.measure import again
from benchmarks.report import PAGE, page


def flaws_of(result: dict[str, Any]) -> list[str]:
    """What is wrong with one kept result, in words; nothing if all is well."""
    name = result["benchmark"]
    if not all("rival_samples" in one for one in result["measurements"]):
        return [f"{name} doesn't keep the samples of both sides"]
    found = [flaw for one in result["measurements"] for flaw in _figure_flaws(name, one)]
    aside = is_known(result["commit"]) and not is_before(result["commit"])
    return found + ([f"{name} is of no commit before this one"] if aside else [])


def _figure_flaws(name: str, kept: dict[str, Any]) -> list[str]:
    computed = json.loads(json.dumps(asdict(again(kept))))
    return [
        f"{name}, {kept['name']!r}: {key} is {kept.get(key)!r}, but its samples give {value!r}"
        for key, value in computed.items()
        if kept.get(key) != value
    ]


def is_known(commit: str) -> bool:
    """Whether this clone has the commit: a shallow one lacks most, and a rewritten history its old ones."""
    return _succeeds("cat-file", "-e", f"{commit}^{{commit}}")


def is_before(commit: str) -> bool:
    """Whether it is the commit that is checked out, or one before it."""
    return _succeeds("merge-base", "--is-ancestor", commit, "HEAD")


def _succeeds(*arguments: str) -> bool:
    try:
        git(*arguments)
    except subprocess.CalledProcessError:
        return False
    return True


def history_flaws(lines: list[dict[str, Any]], results: list[dict[str, Any]]) -> list[str]:
    """Figures that are other than what the last line about them says."""
    last = {(line["benchmark"], line["figure"]): line["new"] for line in lines}
    now = {(one["benchmark"], m["name"]): m["value"] for one in results for m in one["measurements"]}
    return [
        f"{benchmark}, {figure!r} is {now[benchmark, figure]!r}, but the history ends with {value!r}"
        for (benchmark, figure), value in last.items()
        if (benchmark, figure) in now and now[benchmark, figure] != value
    ]


def main() -> None:
    results = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    lines = [json.loads(line) for line in HISTORY.read_text().splitlines()] if HISTORY.exists() else []
    found = [flaw for result in results for flaw in flaws_of(result)] + history_flaws(lines, results)
    found += [f"no result answers what decides: {question!r}" for question in unanswered(results)]
    if PAGE.read_text() != page(results):
        found.append("docs/benchmarks.md isn't what the results give: make bench-report")
    for flaw in found:
        print(f"error: {flaw}", file=sys.stderr)
    if found:
        sys.exit(1)
    for result in results:
        if not is_known(result["commit"]):
            print(f"this clone lacks the commit {result['commit']} that {result['benchmark']} is of")
    print(f"{len(results)} results say what their samples say")


if __name__ == "__main__":
    main()
