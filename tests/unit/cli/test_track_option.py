"""--track: what is refused before a job is handed in, and what trackers say while it is watched."""

import pytest
from cli_samples import ClientDouble, InvocationDouble
from click.testing import CliRunner, Result

from peerloom.cli.main import cli


def run(client: ClientDouble, *arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, obj=InvocationDouble(client))


@pytest.mark.parametrize("command", [("train", "digits"), ("run", "train.py"), ("jobs", "watch", "job-1")])
def test_a_tracker_that_is_none_is_refused_before_anything_is_asked(command: tuple[str, ...]) -> None:
    client = ClientDouble()
    where = 1 if command[0] == "run" else len(command)
    result = run(client, *command[:where], "--track", "comet:x", *command[where:])
    assert (result.exit_code, client.asked) == (2, {})
    assert "tensorboard:DIR, mlflow:URI or wandb:PROJECT" in result.stderr


def test_a_command_that_doesn_t_wait_tracks_nothing_and_says_what_does() -> None:
    client = ClientDouble()
    result = run(client, "train", "digits", "--detach", "--track", "tensorboard:runs")
    assert (result.exit_code, client.asked) == (2, {})
    assert "peerloom jobs watch JOB --track" in result.stderr


def test_trackers_are_told_while_the_job_is_watched_and_their_words_are_escaped() -> None:
    places = ("--track", "tensorboard:runs", "--track", "mlflow:http://127.0.0.1:9")
    result = run(ClientDouble(), "train", "digits", *places)
    assert result.exit_code == 0
    told = "told tensorboard:runs and mlflow:http://127.0.0.1:9\\u001b[2J"
    assert told in result.stderr.splitlines()
