"""What commands print, where, and with which exit code; the client is a double, the wire is not the point."""

import json
from dataclasses import replace
from typing import Any

import click
import pytest
import yaml
from cli_samples import EXPLAINED, JOB_ID, ClientDouble, HandleDouble, InvocationDouble, job
from click.testing import CliRunner, Result

from peerloom import Model, RawInput, ScaleShift, ScoreTerm, Standardise, errors
from peerloom.cli.main import cli
from peerloom.client.types import Accusation, AuditReport, Dismissal, JobState, Worker


def run(*arguments: str, client: ClientDouble | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, obj=InvocationDouble(client or ClientDouble()))


def test_a_table_goes_to_standard_output_aligned_and_without_colour() -> None:
    result = run("nodes", "list")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "NODE    STATE  FREE  CPU  MEM  GPU  DEVICE      ONLINE  ADDRESS",
        "node-1  alive   2/3    -    -    -  -       1 min 15 s  127.0.0.1:5001",
    ]
    assert result.stderr == ""


def test_an_empty_list_is_a_message_on_standard_error() -> None:
    result = run("nodes", "list", client=ClientDouble(found_nodes=()))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith("no nodes; start one with:")


@pytest.mark.parametrize(
    "command", [("nodes", "list"), ("beliefs", "list"), ("jobs", "list"), ("models", "list")]
)
def test_a_list_as_json_is_one_document_also_when_it_is_empty(command: tuple[str, ...]) -> None:
    assert isinstance(json.loads(run(*command, "-o", "json").stdout), list)


def test_json_holds_every_field_with_full_precision() -> None:
    shown = json.loads(run("beliefs", "show", "node-1", "-o", "json").stdout)
    assert shown["terms"]["weights"]["time_score_cap"] == 10.0
    assert shown["update_time"] == "2026-03-01T12:00:00+00:00"


def test_a_belief_is_explained_by_terms_evidence_and_the_last_choices() -> None:
    client = ClientDouble()
    lines = run("beliefs", "explain", "node-1", "--policy", "survival", client=client).stdout.splitlines()
    assert client.asked["explain_belief"] == (("node-1", "survival"), {})
    assert lines[0] == "node-1  by the policy survival"
    assert " ".join(lines[3].split()) == "hazard 0.5 ends a day 2.00 interruptions in 96.00 h online"
    assert any("it was no candidate: draining" in line and line.startswith("not chosen") for line in lines)


def test_the_thesis_s_score_is_taken_apart_as_the_belief_that_it_is() -> None:
    found = replace(EXPLAINED, policy="thesis", score_terms=[ScoreTerm("belief", 2.65, "", "formula (4)")])
    shown = run("beliefs", "explain", "node-1", client=ClientDouble(explained=found)).stdout
    alone = run("beliefs", "show", "node-1").stdout
    formulas = alone[alone.index("(1) score_new") :]
    assert formulas in shown
    assert "transmissions" in formulas
    assert "(1) score_new" not in run("beliefs", "explain", "node-1").stdout, "survival has terms of its own"


def test_yaml_is_the_same_document() -> None:
    as_json = json.loads(run("jobs", "show", JOB_ID, "-o", "json").stdout)
    assert yaml.safe_load(run("jobs", "show", JOB_ID, "-o", "yaml").stdout) == as_json


def test_filters_reach_the_client() -> None:
    client = ClientDouble()
    run("nodes", "list", "--state", "alive", "--label", "room=12", "--label", "gpu=yes", client=client)
    assert client.asked["nodes"] == ((), {"states": ("alive",), "labels": {"room": "12", "gpu": "yes"}})


def test_train_hands_over_what_was_given_and_watches() -> None:
    client = ClientDouble()
    result = run(
        *("train", "digits", "--requests", "2", "--epochs", "4", "--learning-rate", "0.5"),
        *("--set", "data=/d=1", "--label", "a=b", "--max-workers", "3"),
        client=client,
    )
    args, given = client.asked["train"]
    assert args == ("digits",)
    assert {
        name: given[name] for name in ("requests", "epochs", "batch_size", "learning_rate", "max_workers")
    } == {
        "requests": 2,
        "epochs": 4,
        "batch_size": None,
        "learning_rate": 0.5,
        "max_workers": 3,
    }
    assert (given["arguments"], given["labels"]) == ({"data": "/d=1"}, {"a": "b"})
    assert result.exit_code == 0
    assert "accuracy 0.9722" in result.stdout
    assert result.stderr.splitlines() == [
        f"{JOB_ID} submitted",
        "selecting",
        "node-1 (belief 2.6500) gave 2 slots: 2 of 3 slots are free",
        "epoch 1: accuracy 0.9722, loss 0.5000",
    ]


def test_train_as_json_prints_one_document_the_result() -> None:
    assert json.loads(run("train", "digits", "-o", "json").stdout)["state"] == "succeeded"


def test_train_detached_prints_the_id_only() -> None:
    result = run("train", "digits", "--detach")
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{JOB_ID}\n", "")


@pytest.mark.parametrize(
    ("ending", "code"), [("succeeded", 0), ("failed", 1), ("cancelled", 1), ("no_compute", 5)]
)
@pytest.mark.parametrize("command", [("train", "digits"), ("jobs", "watch", JOB_ID)])
def test_the_exit_code_tells_how_a_watched_job_ended(command: Any, ending: JobState, code: int) -> None:
    result = run(*command, client=ClientDouble(HandleDouble(ending)))
    assert result.exit_code == code
    if code:
        assert result.stdout == ""
        assert result.stderr.splitlines()[-1].startswith(f"error: {JOB_ID} ")


def test_a_watch_as_json_is_one_object_a_line_with_its_kind() -> None:
    lines = run("jobs", "watch", JOB_ID, "-o", "json", "--after", "2").stdout.splitlines()
    kinds = [json.loads(line)["event"] for line in lines]
    assert kinds == ["step_committed", "epoch_finished", "state_changed"]


@pytest.mark.parametrize("command", [("train", "digits"), ("jobs", "watch", JOB_ID)])
def test_ctrl_c_leaves_the_job_running_and_says_how_to_come_back(command: Any) -> None:
    result = run(*command, client=ClientDouble(HandleDouble(interrupted=True)))
    assert result.exit_code == 130
    assert f"{JOB_ID} goes on without you. Come back with: peerloom jobs watch {JOB_ID}" in result.stderr


def test_ctrl_c_elsewhere_ends_with_130() -> None:
    result = run("nodes", "list", client=ClientDouble(error=KeyboardInterrupt()))
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidArgumentError("m"), 2),
        (errors.ConfigurationError("m"), 2),
        (errors.AlreadyExistsError("m"), 2),
        (errors.FailedPreconditionError("m"), 2),
        (errors.PermissionDeniedError("m"), 2),
        (errors.NotFoundError("m"), 3),
        (errors.UnavailableError("m"), 4),
        (errors.DeadlineError("m"), 4),
        (errors.ResourceExhaustedError("m"), 1),
        (errors.DataLossError("m"), 1),
        (errors.CancelledError("m"), 1),
        (errors.InternalError("m"), 1),
    ],
)
def test_an_error_is_one_line_on_standard_error_and_a_code(error: errors.PeerloomError, code: int) -> None:
    result = run("nodes", "show", "x", client=ClientDouble(error=error))
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", "error: m\n")


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (("beleifs",), "beliefs"),
        (("jobs", "wach"), "watch"),
        (("train", "digits", "--epoch", "1"), "--epochs"),
        (("nodes", "list", "-o", "jsn"), "json"),
    ],
)
def test_an_unknown_word_ends_with_2_and_the_nearest_one(arguments: tuple[str, ...], near: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert near in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [("train", "digits", "--set", "data"), ("train", "digits", "--label", "=x"), ("up", "--nodes", "3,two")],
)
def test_a_value_of_the_wrong_form_ends_with_2(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


def test_the_address_may_stand_before_or_after_the_command() -> None:
    for arguments in (("--address", "h:1", "nodes", "list"), ("nodes", "list", "--address", "h:1")):
        invocation = InvocationDouble(ClientDouble())
        CliRunner().invoke(cli, arguments, obj=invocation)
        assert invocation.address == "h:1"


def test_a_belief_is_shown_as_a_calculation() -> None:
    shown = run("beliefs", "show", "node-1").stdout
    assert "= 0.3*2 + 0.1*3 + 0.5*4 - 1*0.25" in shown
    assert "= 2.65 + 1.5 - 1.5" in shown
    assert "training: finished its part" in shown


def test_status_ends_with_4_when_the_trainer_is_away_and_still_shows_the_nodes() -> None:
    class NoTrainer(ClientDouble):
        def jobs(self, **_: object) -> list[object]:
            raise errors.UnavailableError("no trainer")

    result = run("status", client=NoTrainer())
    assert result.exit_code == 4
    assert "node-1" in result.stdout
    assert result.stderr == "error: no trainer\n"


def test_logs_stand_beside_the_worker_that_printed_them() -> None:
    result = run("jobs", "logs", JOB_ID, "-f", "--tail", "5")
    assert result.stdout == "node-1 worker-1  follow=True tail=5\n"


def test_a_model_is_fetched_to_a_file_named_after_it() -> None:
    client = ClientDouble()
    result = run("models", "get", "abab", client=client)
    assert str(client.asked["fetch_model"][0][1]) == "abab.safetensors"
    assert result.stdout == "there.safetensors\n"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (
            RawInput((1, 8, 8), "uint8", 0, 16, Standardise((0.3,), (0.4,), 16), ("nought", "one")),
            {
                "takes": "uint8[1, 8, 8] for each input, values from 0 to 16",
                "prepared by": "(value / 16 - 0.3) / 0.4",
                "labels": "nought, one",
            },
        ),
        (
            RawInput((3, 2, 2), "float32", -1, 1, ScaleShift((1, 2, 3), (-1, 0, 0.5))),
            {
                "takes": "float32[3, 2, 2] for each input, values from -1 to 1",
                "prepared by": "[1, 2, 3] * value + [-1, 0, 0.5]",
                "labels": "none: its outputs are no classes",
            },
        ),
        (RawInput.of_text(64), {"takes": "text of 1 to 64 tokens", "tokens": "its bytes in UTF-8"}),
        (RawInput.of_text(64, "ab "), {"takes": "text of 1 to 64 tokens", "tokens": "3 characters: 'ab '"}),
        (None, {"takes": "tensors; its task declared no raw inputs"}),
    ],
)
def test_a_model_says_what_it_takes_and_tells(raw: RawInput | None, shown: dict[str, str]) -> None:
    model = Model("ab" * 32, 920, "digits", 1, JOB_ID, "digits", 0.9, "accuracy", None, "", raw)
    result = run("models", "show", "digits", client=ClientDouble(found_model=model))
    assert result.exit_code == 0, result.output
    for name, value in shown.items():
        lines = result.stdout.splitlines()
        assert any(line.startswith(name) and line.endswith(value) for line in lines), result.stdout
    as_json = run("models", "show", "x", "-o", "json", client=ClientDouble(found_model=model))
    document = json.loads(as_json.stdout)
    assert (document["model"]["raw_input"] is None) == (raw is None)


def test_the_help_lists_every_command_and_the_exit_codes() -> None:
    text = run("--help").stdout
    for name in cli.list_commands(click.Context(cli)):
        assert f"\n  {name} " in text
    for code in ("0 ", "1 ", "2 ", "3 ", "4 ", "5 ", "130"):
        assert f"\n    {code}" in text


def test_every_command_has_help_and_its_line_in_the_table() -> None:
    def walk(group: click.Group, path: list[str]) -> None:
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None, name
            assert command.name == name
            if isinstance(command, click.Group):
                walk(command, [*path, name])
            elif command.add_help_option:
                assert run(*path, name, "--help").exit_code == 0

    walk(cli, [])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(shell: str) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0
    assert "_PEERLOOM_COMPLETE" in result.stdout
    assert "peerloom completion" in result.stderr


def test_a_job_shows_what_came_of_its_audits() -> None:
    accusation = Accusation("worker-2", "eve", "node-1", "anna", 4, 2.0)
    audits = AuditReport(9, (accusation,), (Dismissal("node-2", "bob", "it lied", ()),), ("the job: noise",))
    handle = HandleDouble()
    handle.status = lambda: replace(job("succeeded"), audits=audits)  # type: ignore[method-assign]
    [line] = [one for one in _shown(handle) if one.startswith("audits")]
    assert " ".join(line.split()) == (
        "audits 9 shares computed again; 1 accusation that didn't suffice, of anna; dismissed bob: it lied; "
        "none on the job: noise"
    )


def test_a_spare_worker_has_no_rank() -> None:
    workers = (
        Worker("w1", "node-1", "ada", 1, ended=False, end_reason="", generation=2),
        Worker("w2", "node-2", "bob", 0, ended=False, end_reason=""),
        Worker("w3", "node-3", "eve", 0, ended=True, end_reason="it was killed", generation=1),
    )
    handle = HandleDouble()
    handle.status = lambda: replace(job("running"), workers=workers, generation=2)  # type: ignore[method-assign]
    lines = [" ".join(one.split()) for one in _shown(handle)]
    first = lines.index("RANK WORKER NODE STATE")
    assert lines[first + 1 : first + 4] == [
        "1 w1 ada working",
        "w2 bob spare, or not yet ready",
        "0 w3 eve it was killed",
    ]


def _shown(handle: HandleDouble) -> list[str]:
    return run("jobs", "show", JOB_ID, client=ClientDouble(handle)).stdout.splitlines()
