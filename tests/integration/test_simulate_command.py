"""`peerloom simulate` as a process: the same bytes twice, a policy of one's own, and bad input named."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

QUICK = ("--population", "thesis20", "--rounds", "10", "--seeds", "2")
OWN_POLICY = """
import numpy as np
from peerloom.services.selector.policies.interface import Selection


class First:
    name, description, source = "first", "takes the first", "a test"

    def select(self, candidates, request, rng):
        count = min(request.budget, len(candidates))
        return Selection(np.arange(count), ["it is first"] * count)

    def explain(self, candidates, request, index):
        return []
"""


def simulate(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(path) if path else ""}
    command = [sys.executable, "-m", "peerloom.cli", "simulate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


def test_the_same_arguments_give_the_same_bytes() -> None:
    runs = [simulate(*QUICK, "--policy", "pso", "--policy", "survival", "-o", "json") for _ in range(2)]
    assert runs[0].returncode == 0, runs[0].stderr
    assert runs[0].stdout == runs[1].stdout
    report = json.loads(runs[0].stdout)
    assert [(one["policy"], one["budget"]) for one in report["reports"]] == [("pso", 3), ("survival", 3)]
    assert {"mean", "half_width", "values"} == set(report["reports"][0]["figures"]["interruptions"])


def test_processes_change_no_byte() -> None:
    one, two = (simulate(*QUICK, "--processes", number, "-o", "json") for number in ("1", "2"))
    assert one.returncode == 0, one.stderr
    assert one.stdout == two.stdout


def test_a_table_names_each_policy_and_budget() -> None:
    done = simulate(*QUICK, "--policy", "thesis", "--budget", "2", "--budget", "8")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "thesis20: 20 nodes, 10 rounds, 2 seeds"
    assert [line.split()[:2] for line in lines[3:5]] == [["thesis", "2"], ["thesis", "8"]]


def test_a_policy_of_one_s_own_and_a_trace(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN_POLICY)
    trace = tmp_path / "trace.csv"
    trace.write_text("".join(f"host-{n},{n},inf,0\n" for n in range(20)))
    own = ("--policy", "mine:First", "--rounds", "3", "--seeds", "1", "--trace", str(trace), "-o", "json")
    done = simulate(*own, path=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["population"], report["nodes"]) == ("trace.csv", 20)
    assert report["reports"][0]["figures"]["reached"]["mean"] == 1


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (("--policy", "survial"), "Did you mean survival?", 3),
        (("--population", "thesis2"), "Did you mean thesis20", 3),
        (("--budget", "0"), "budget is 0, but must be 1 to 1,000.", 2),
        (("--seeds", "0"), "seeds is 0", 2),
        (("--processes", "0"), "processes is 0", 2),
        (("--population", "thesis20", "--budget", "3", "--budget", "20"), "at most 19", 2),
        (("--rounds", "0"), "rounds is 0", 2),
        (("--days", "1", "--rounds", "1"), "give one of them", 2),
        (("--policy", "nowhere:Nobody"), "can't be loaded", 2),
    ],
)
def test_bad_input_is_refused_with_what_to_do(arguments: tuple[str, ...], message: str, code: int) -> None:
    done = simulate(*arguments)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr


def test_a_malformed_trace_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("a,0,10,0\na,5,20,0\n")
    done = simulate("--trace", str(path))
    assert done.returncode == 2
    assert "line 2" in done.stderr
