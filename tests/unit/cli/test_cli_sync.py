"""What `peerloom sync` prints, and where else a job's way to synchronise is seen."""

import json
from dataclasses import replace

from cli_samples import JOB_ID, ClientDouble, InvocationDouble
from click.testing import CliRunner, Result

from peerloom import GenerationFormed
from peerloom.cli.events import describe
from peerloom.cli.main import cli


def run(*arguments: str, client: ClientDouble | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, obj=InvocationDouble(client or ClientDouble()))


def test_ways_to_synchronise_are_listed_with_their_defaults() -> None:
    lines = [" ".join(line.split()) for line in run("sync", "list").stdout.splitlines()]
    assert lines[1] == "wfbp-a2a (default) schedule=wfbp,topology=ring,codec=none"
    assert any(line.startswith("topology direct each rank gets") for line in lines)
    listed = json.loads(run("sync", "list", "-o", "json").stdout)
    assert [row["preset"] for row in listed["presets"]] == ["wfbp-a2a", "bsp-a2a"]
    assert {row["key"] for row in listed["choices"]} == {"schedule", "topology", "codec"}


def test_a_way_to_synchronise_is_explained_with_its_bytes_and_promises() -> None:
    """int4: 4 + 128 bytes for a block of 256 values, 0.516 for each."""
    shown = run("sync", "explain", "codec=int4").stdout
    assert "schedule=wfbp,topology=direct,codec=int4" in shown
    assert "0.516 for 4: 0.129 of codec=none" in shown
    assert "lossy" in shown
    assert json.loads(run("sync", "explain", "bsp-a2a", "-o", "json").stdout)["is_exact"] is True


def test_a_way_to_synchronise_that_is_not_there_is_told_the_nearest() -> None:
    result = run("sync", "explain", "bsp-a2b")
    assert result.exit_code == 2
    assert "did you mean bsp-a2a" in result.stderr


def test_a_job_tells_how_it_is_synchronised() -> None:
    client = ClientDouble()
    run("train", "digits", "--sync", "codec=int8", client=client)
    assert client.asked["train"][1]["sync"] == "codec=int8"
    assert "schedule=bsp,topology=ring,codec=none" in run("jobs", "show", JOB_ID).stdout


def test_a_generation_names_its_way_to_synchronise_unless_it_is_the_usual_one() -> None:
    formed = GenerationFormed(1, JOB_ID, None, 1, (), "gloo", 0, "schedule=wfbp,topology=ring,codec=none")
    assert describe(formed) == "generation 1: 0 workers over gloo"
    other = replace(formed, sync="schedule=bsp,topology=ring,codec=fp16")
    assert describe(other) == "generation 1: 0 workers over gloo by schedule=bsp,topology=ring,codec=fp16"
