"""What `peerloom plan explain` prints."""

import json
import re
from pathlib import Path

import pytest
from cli_samples import ClientDouble, InvocationDouble
from click.testing import CliRunner, Result

from peerloom.cli.main import cli
from peerloom.cli.plan_timeline import timeline_rows
from peerloom.kit.parallel_plan import parse_plan
from peerloom.kit.plan_model.pipeline_simulation import simulate_pipeline
from peerloom.kit.plan_model.stage_costs import BoundaryCost, StageCost


def run(*arguments: str, columns: int = 80) -> Result:
    environment = {"COLUMNS": str(columns)}
    return CliRunner().invoke(
        cli, ("plan", "explain", *arguments), obj=InvocationDouble(ClientDouble()), env=environment
    )


LAYERS = [{"parameters": 100, "forward_s": 1, "backward_s": 2, "output_bytes": 1000, "kept_bytes": 10}] * 4
# Two layers fit into a slot: 2 x 100 x 16 bytes, and two micro-batches' activations of 20 bytes.
FLAGS = ("--slots", "2", "--memory", "3.3kB", "--rate", "1Gbps", "--batch", "2", "--pass-overhead", "0")


@pytest.fixture
def layers_file(tmp_path: Path) -> str:
    path = tmp_path / "layers.json"
    path.write_text(json.dumps(LAYERS))
    return str(path)


def test_a_plan_is_told_with_its_stages_its_step_and_what_loses(layers_file: str) -> None:
    """Two stages of two layers, two micro-batches: (2 + 2 - 1) x 6 s, and 8 us a message."""
    shown = run("--layers", layers_file, *FLAGS, "--order", "1f1b")
    assert shown.exit_code == 0, shown.output
    assert "shadows        off: they need " in shown.stdout
    assert "as a job's     --plan pipeline=2:,micro_batches=2,shadow=off\n" in shown.stdout
    first = " ".join(shown.stdout.splitlines()[0].split())
    assert first == "plan pipeline: each slot has a part of the layers, and sees all samples"
    assert "in steps of 18 s; no plan finishes more" in shown.stdout
    assert "slot-0" in shown.stdout
    assert "3.24 kB of 3.3 kB" in shown.stdout
    assert (
        "data:\n  doesn't fit: layers 0 to 3 would need 6.44 kB on slot-0, 3.14 kB more than it has"
        in shown.stdout
    )
    assert "as jobs' tensor=K, aren't searched" in shown.stdout


def test_split_backward_passes_are_taken_where_they_shorten_a_step(layers_file: str) -> None:
    """The second stage begins at 2 s, and has 2 x 6 s of passes."""
    shown = run("--layers", layers_file, *FLAGS)
    assert shown.exit_code == 0, shown.output
    assert "as a job's     --plan pipeline=2:,micro_batches=2,order=zb-h1,shadow=off\n" in shown.stdout
    assert "in steps of 14 s; no plan finishes more" in shown.stdout
    assert "as 1f1b, but the gradients of weights wait while" in shown.stdout
    lanes = [line.split()[-1] for line in shown.stdout.splitlines() if line.startswith("stage ")]
    assert [re.sub(r"(.)\1*", r"\1", lane) for lane in lanes] == ["ab.A+B+", ".aAbB+"]


def test_a_stage_of_several_slots_is_told_by_its_width(tmp_path: Path) -> None:
    """The first layer takes twice as long as the second, and the slots have no room for both."""
    costs = [(100, 2, 4), (100, 1, 2)]
    layers = [
        {"parameters": n, "forward_s": f, "backward_s": b, "output_bytes": 8, "kept_bytes": 0}
        for n, f, b in costs
    ]
    path = tmp_path / "layers.json"
    path.write_text(json.dumps(layers))
    flags = ("--slots", "3", "--memory", "1.8kB", "--rate", "1Gbps", "--batch", "4", "--pass-overhead", "0")
    shown = run("--layers", str(path), *flags)
    assert shown.exit_code == 0, shown.output
    assert "as a job's     --plan pipeline=1:,widths=2/1,micro_batches=" in shown.stdout
    lanes = [line.split("  ")[0] for line in shown.stdout.splitlines() if line.startswith("stage ")]
    assert lanes == ["stage 0, 1 of 2", "stage 0, 2 of 2", "stage 1"]


def test_shards_are_told_as_jobs_take_them(tmp_path: Path) -> None:
    """The first of eight layers costs as much as 25 others, and a slot has room for the states of five."""
    layers = [{"parameters": 1000, "forward_s": seconds} for seconds in (25, *(1,) * 7)]
    path = tmp_path / "layers.json"
    path.write_text(json.dumps(layers))
    flags = ("--slots", "2", "--memory", "95kB", "--rate", "1Gbps", "--batch", "4", "--pass-overhead", "0")
    shown = run("--layers", str(path), *flags)
    assert shown.exit_code == 0, shown.output
    told = dict(re.split(r"  +", line, maxsplit=1) for line in shown.stdout.splitlines()[:7] if line)
    assert (
        told["plan"]
        == "sharded: each slot holds a part of the layers, and computes its samples with all of them"
    )
    assert told["binds"].startswith("the computing: at twice its speed a step would be 50% shorter")
    assert told["micro-batches"] == "2, one of each slot's"
    assert told["as a job's"] == "--plan sharded=4:,shadow=off"
    assert "order" not in told
    assert "pipeline, 2 stages on 2 slots" in shown.stdout


def test_the_layers_of_a_task_are_those_of_its_jobs(tmp_path: Path) -> None:
    """Four slots that hold 3.4 kB: the parameters of layers 3 and 7 are in stages of their own."""
    known = CliRunner().invoke(cli, ("plan", "layers", "digits"))
    assert known.exit_code == 0, known.output
    path = tmp_path / "layers.json"
    path.write_text(known.stdout)
    flags = ("--slots", "2", "--memory", "110kB", "--rate", "1Gbps", "--batch", "4", "--operations", "1G")
    shown = run("--layers", str(path), *flags)
    assert shown.exit_code == 0, shown.output
    (words,) = [line for line in shown.stdout.splitlines() if line.startswith("as a job's")]
    plan = parse_plan("plan", words.split()[-1])
    assert plan.stages == 2
    assert 1 <= plan.starts[0] <= 7, "the model has eight layers, of which the search's own has three"


def test_the_layers_of_an_unknown_task_are_asked_for_in_vain() -> None:
    done = CliRunner().invoke(cli, ("plan", "layers", "digts"))
    assert done.exit_code == 3


def test_a_plan_as_a_document(layers_file: str) -> None:
    found = json.loads(run("--layers", layers_file, *FLAGS, "--order", "1f1b", "-o", "json").stdout)
    assert found["is_best_of_all"] is True
    plan = found["plan"]
    assert (plan["kind"], plan["micro_batches"]) == ("pipeline", 2)
    assert [(one["first"], one["last"], one["slots"]) for one in plan["stages"]] == [
        (0, 1, ["slot-0"]),
        (2, 3, ["slot-1"]),
    ]
    assert abs(plan["step_s"] - 18) < 0.001
    assert len(plan["timeline"]) == 8
    assert [one["kind"] for one in found["too_large"]] == ["single", "data", "sharded"]


def test_a_step_is_drawn_in_letters_however_narrow_the_terminal_is(layers_file: str) -> None:
    """18 columns would be a second each; stage 1 begins after the 2 s of stage 0's first forward pass."""
    free = StageCost((1,), (2.0,), (4.0,), 0.0, 0.0, 0.0)
    simulated = simulate_pipeline([free, free], [(BoundaryCost(0, 0, 0, 0),)], 2, "1f1b")
    rows = timeline_rows(simulated, 9 + 36)
    assert rows == [
        "stage 0  aaaabbbb........AAAAAAAA....BBBBBBBB",
        "stage 1  ....aaaaAAAAAAAAbbbbBBBBBBBB........",
    ]
    for columns in (30, 60):
        drawn = [
            line
            for line in run("--layers", layers_file, *FLAGS, columns=columns).stdout.splitlines()
            if line.startswith("stage ")
        ]
        assert [len(line) for line in drawn] == [columns, columns]


def test_gradients_sums_are_drawn_too() -> None:
    simulated = simulate_pipeline([StageCost((1, 1), (1.0,), (1.0,), 2.0, 0.0, 0.0)], [], 1, "gpipe")
    assert timeline_rows(simulated, 9 + 20) == ["stage 0  aaaaaAAAAA=========="]


def test_slots_may_differ_and_share_a_host() -> None:
    """At a quarter of the speed, on one host, so that no rate is needed: 7 samples, and 1 as long as 4."""
    flags = ("--model", "mlp:64:64:64", "--slots", "2", "--memory", "1GB,2GB", "--speed", "1,0.25")
    more = ("--hosts", "here", "--batch", "8", "--interruption", "never,2h", "-o", "json")
    found = json.loads(run(*flags, *more).stdout)
    assert found["plan"]["kind"] == "data"
    assert found["plan"]["stages"][0]["shares"] == [7, 1]


def test_the_step_is_drawn_into_a_file(tmp_path: Path, layers_file: str) -> None:
    path = tmp_path / "step.svg"
    shown = run("--layers", layers_file, *FLAGS, "--out", str(path), "-o", "json")
    assert json.loads(shown.stdout)["plan"]["kind"] == "pipeline"
    assert str(path) in shown.stderr
    assert "stage 1: layers 2 to 3" in path.read_text()


MODEL = ("--model", "digits")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (MODEL, "--slots and --memory and --batch"),
        ((*MODEL, "--slots", "2", "--memory", "1GB", "--batch", "8"), "--rate"),
        (FLAGS, "--model NAME or --layers FILE.json"),
        ((*MODEL, *FLAGS, "--layers", "none.json"), "one of both"),
        ((*FLAGS, "--layers", "none.json"), "none.json can't be read"),
        (("--model", "digitz", *FLAGS), "digits"),
        ((*MODEL, *FLAGS, "--speed", "1,1,1"), "values of --speed is 3"),
        ((*MODEL, *FLAGS, "--slots", "0"), "at least 1"),
        ((*MODEL, *FLAGS, "--batch", "0"), "at least 1 sample"),
        ((*MODEL, *FLAGS, "--speed", "0"), "above 0"),
        ((*MODEL, *FLAGS, "--operations", "0"), "above 0"),
        ((*MODEL, *FLAGS, "--sync", "local-sgd"), "period"),
        ((*MODEL, *FLAGS, "--out", "step.txt"), "ends in .png or .svg"),
    ],
)
def test_what_is_missing_or_wrong_is_said(arguments: tuple[str, ...], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_file_that_is_not_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "layers.json"
    path.write_text("[")
    result = run("--layers", str(path), *FLAGS)
    assert result.exit_code == 2
    assert "isn't JSON" in result.stderr


def test_a_model_that_is_too_large_is_told_what_is_missing() -> None:
    result = run(
        "--model", "transformer:4:512", "--slots", "2", "--memory", "1MB", "--rate", "1Gbps", "--batch", "2"
    )
    assert result.exit_code != 0
    assert "layer 5 (output) alone needs" in result.stderr
