"""A whole system behind ns-3, hosts in namespaces: training, cuts, partitions, and what is told of them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packet_capture import keys_in, keys_seen
from testbed_parts import (
    ask_inside,
    assert_equal,
    captured,
    is_cut_off,
    parameters_seen,
    parameters_without_network,
    plan_of,
    reaches,
    require,
    states,
    train_inside,
    wait_until,
)

from peerloom.errors import FailedPreconditionError, InternalError, NotFoundError
from peerloom.experiments.emulated_jobs import EmulatedJob, inside
from peerloom.testbed import Action, Testbed

pytestmark = [pytest.mark.network, pytest.mark.timeout(180)]
ALIVE = {"host-1": "alive", "host-2": "alive", "host-3": "alive"}
HISTORY = """
import json
from peerloom import Client
with Client() as client:
    gone = [[one.node_name, one.end_reason] for one in client.interruptions()]
    evidence = [[one.evidence.kind, one.evidence.detail if hasattr(one.evidence, "detail") else ""]
                for one in client.belief_history("host-3") if one.evidence]
print(json.dumps({"interruptions": gone, "evidence": evidence}))
"""


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    require()
    with Testbed(plan_of(3), tmp_path_factory.mktemp("testbed")) as up:
        yield up


def test_training_over_ns3_gives_the_parameters_of_training_without_a_network(
    testbed: Testbed, tmp_path: Path
) -> None:
    """And whoever looks at what crosses ns-3 meanwhile sees neither parameters nor keys."""
    with captured(testbed) as capture:
        job, parameters = train_inside(testbed, requests=3)
    assert_equal(parameters, parameters_without_network(tmp_path, workers=3))
    assert parameters_seen(parameters, capture.seen) == []
    assert len(keys_in(testbed.folder.path)) >= 7, "those of registry, operator, selector, trainer and hosts"
    assert keys_seen(testbed.folder.path, capture.seen) == []
    parameter_bytes = sum(one.numel() * one.element_size() for one in parameters.values())

    path = testbed.folder.path / "jobs" / f"{job}.network.json"
    wait_until(path.exists, "the job's traffic is kept")
    kept = json.loads(path.read_text())
    sent = {link["host"]: link["sent_bytes"] for link in kept["links"]}
    assert len(capture.seen) > sum(link["sent_bytes"] for link in kept["links"]) / 2, "it was all seen"
    # 45 steps, in each of which a ring of three passes on 2 * 2/3 of the gradient.
    assert all(sent[f"host-{number}"] > 45 * 4 / 3 * parameter_bytes for number in (1, 2, 3))
    assert kept["lag_worst_s"] >= 0
    assert job_record(testbed, job)["links"] == kept["links"], (
        "the trainer keeps the same in the job's record"
    )
    assert kept["faithful"] == (kept["lag_worst_s"] <= 0.1)


def test_emulated_jobs_are_asked_from_inside_with_a_look_at_the_emulator(testbed: Testbed) -> None:
    """MNIST's network on two of the hosts: computing is waited for, its gradients cross ns-3."""
    with inside(testbed) as ask:
        row = ask(EmulatedJob("mnist", 2, 2, 4, sample_s=0.01, step_s=0.02, steps=2))
        with pytest.raises(InternalError, match="batch"):
            ask(EmulatedJob("mnist", 2, 2, 0, sample_s=0.01, step_s=0.02))
    assert (row["state"], row["workers"], len(row["nodes"])) == ("succeeded", 2, 2)
    # Two samples each: 40 ms, all of it waited for.
    assert row["compute_s"] > 0.03
    # In each of four steps both send the gradient of 50,914 values once.
    assert row["network_bytes"] > 4 * 2 * 4 * 50_914
    assert row["lag_s"] >= 0


def job_record(testbed: Testbed, job: str) -> dict[str, Any]:
    """What the job's record at the trainer says of its network."""
    words = "import dataclasses, json; from peerloom import Client; client = Client()"
    script = f"{words}; print(json.dumps(dataclasses.asdict(client.job('{job}').status().traffic)))"
    record: dict[str, Any] = ask_inside(testbed, script)
    return record


def test_a_host_taken_down_is_suspected_then_dead_and_its_interruption_is_evidence(testbed: Testbed) -> None:
    wait_until(lambda: states(testbed) == ALIVE, "all are alive")
    testbed.apply(Action("leave", ("host-3",)))
    try:
        wait_until(lambda: states(testbed)["host-3"] == "suspect", "host-3 is suspected")
        wait_until(lambda: states(testbed)["host-3"] == "dead", "host-3 is dead")
        wait_until(lambda: is_told_of(ask_inside(testbed, HISTORY)), "host-3's interruption is evidence")
    finally:
        testbed.apply(Action("join", ("host-3",)))
    wait_until(lambda: states(testbed) == ALIVE, "host-3 is back")


def is_told_of(told: dict[str, list[list[str]]]) -> bool:
    """Whether host-3 was interrupted, as the registry and the selector tell it."""
    is_evidence = "interruption" in [kind for kind, _ in told["evidence"]]
    return "host-3" in [name for name, _ in told["interruptions"]] and is_evidence


def test_a_partition_hides_one_side_from_the_registry_until_it_heals(testbed: Testbed) -> None:
    wait_until(lambda: states(testbed) == ALIVE, "all are alive")
    testbed.apply(Action("partition", sets=(("control", "host-1"), ("host-2", "host-3"))))
    try:
        assert is_cut_off(testbed, "host-1", "host-2")
        assert reaches(testbed, "host-2", "host-3")
        wait_until(lambda: hides_host_2(states(testbed)), "host-2 is missed, and host-1 isn't")
    finally:
        testbed.apply(Action("heal"))
    assert reaches(testbed, "host-1", "host-2")
    wait_until(lambda: states(testbed) == ALIVE, "all are back")


def hides_host_2(seen: dict[str, str]) -> bool:
    return seen["host-2"] in ("suspect", "dead") and seen["host-1"] == "alive"


def test_what_ns3_refuses_is_told_with_its_reason(testbed: Testbed) -> None:
    with pytest.raises(FailedPreconditionError, match="ns-3 refused to rate"):
        testbed.apply(Action("rate", ("host-1",), 1e6))


def test_the_command_line_shows_draws_and_changes_what_is_up(testbed: Testbed, tmp_path: Path) -> None:
    def peerloom(*words: str) -> str:
        command = [sys.executable, "-m", "peerloom.cli", "testbed", words[0], "--state", *words[1:]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ)
        assert done.returncode == 0, done.stderr
        return done.stdout

    state = str(testbed.folder.path)
    shown = json.loads(peerloom("status", state, "-o", "json"))
    assert [host["name"] for host in shown["hosts"]] == ["host-1", "host-2", "host-3"]
    assert {entry["kind"] for entry in shown["made"]} >= {"namespace", "process", "supervisor"}
    peerloom("do", state, "loss", "0.0", "host-1")
    assert "host-1" in peerloom("exec", state, "--", sys.executable, "-m", "peerloom.cli", "nodes", "list")
    for name, arguments in {"topology.svg": (), "bytes.svg": ("--bytes",)}.items():
        peerloom("show", state, *arguments, "--out", str(tmp_path / name))
        assert "host-2" in (tmp_path / name).read_text()


def test_a_program_or_host_that_is_not_there_is_named(testbed: Testbed) -> None:
    with pytest.raises(NotFoundError, match="host-1"):
        testbed.popen(["true"], host="hots-1")
    with pytest.raises(NotFoundError, match="no-such-program"):
        testbed.popen(["no-such-program"])
