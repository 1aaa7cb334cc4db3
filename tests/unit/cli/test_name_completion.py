"""Names of the system are completed where a command takes one; a system that is away completes nothing."""

import pytest
from cli_samples import JOB_ID, ClientDouble, InvocationDouble
from click.shell_completion import ShellComplete

from peerloom.cli.main import cli
from peerloom.errors import UnavailableError


def completed(typed: str, invocation: InvocationDouble | None = None) -> list[tuple[str, str | None]]:
    """What the shell would offer after these words, the last of which isn't finished."""
    *words, incomplete = typed.split(" ")
    context = {"obj": invocation or InvocationDouble(ClientDouble())}
    shell = ShellComplete(cli, context, "peerloom", "_PEERLOOM_COMPLETE")
    return [(item.value, item.help) for item in shell.get_completions(words, incomplete)]


@pytest.mark.parametrize("command", ["nodes show", "nodes drain", "beliefs show", "beliefs explain"])
def test_nodes_by_name_with_their_state(command: str) -> None:
    assert completed(f"{command} no") == [("node-1", "alive")]
    assert completed(f"{command} other") == []


@pytest.mark.parametrize("command", ["show", "watch", "logs", "cancel", "resume"])
def test_jobs_by_id_with_task_and_state(command: str) -> None:
    assert completed(f"jobs {command} ") == [(JOB_ID, "digits, running")]


def test_the_address_that_was_typed_is_asked() -> None:
    invocation = InvocationDouble(ClientDouble())
    assert completed("jobs show --address 10.0.0.1:7400 job", invocation)
    assert invocation.address == "10.0.0.1:7400"


def test_options_are_completed_as_before() -> None:
    assert ("--policy", "How to choose nodes; see 'peerloom policies'.") in completed("train digits --pol")


def test_nobody_to_ask_is_no_error() -> None:
    away = ClientDouble(error=UnavailableError("the registry is away"))
    assert completed("nodes show ", InvocationDouble(away)) == []
