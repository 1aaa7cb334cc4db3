"""What `peerloom sync` prints, and where else a job's way to synchronise is seen."""

import json
from dataclasses import replace

import pytest
from cli_samples import JOB_ID, ClientDouble, HandleDouble, InvocationDouble
from click.testing import CliRunner, Result

from peerloom import GenerationFormed, Job, PredictedStep, StepCommitted, SyncInUse
from peerloom.cli.events import describe
from peerloom.cli.main import cli
from peerloom.client.conversions.events import event_of
from peerloom.kit.sync_method import PRESETS
from peerloom.kit.sync_model.sync_choice import candidates
from peerloom.v1.trainer_pb2 import (
    ClientPush,
    ClientTotals,
    FederatedRound,
    StepProgress,
    WatchJobResponse,
)


def run(*arguments: str, client: ClientDouble | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, obj=InvocationDouble(client or ClientDouble()))


def test_ways_to_synchronise_are_listed_with_their_defaults() -> None:
    lines = [" ".join(line.split()) for line in run("sync", "list").stdout.splitlines()]
    assert lines[1] == "wfbp-a2a (default) schedule=wfbp,topology=ring,codec=none"
    assert any(line.startswith("topology direct each rank gets") for line in lines)
    listed = json.loads(run("sync", "list", "-o", "json").stdout)
    assert [row["preset"] for row in listed["presets"]] == list(PRESETS)
    assert {"ps", "ps:K", "merged:BYTES", "cut:BYTES"} <= {row["value"] for row in listed["choices"]}
    keys = {row["key"] for row in listed["choices"]}
    exchanged = {
        "schedule",
        "topology",
        "codec",
        "codec_from",
        "period",
        "outer",
        "delay",
        "groups",
        "partial",
    }
    assert keys == exchanged | {"staleness", "late", "backup"}
    defaults = [row["value"] for row in listed["choices"] if row["is_default"]]
    assert defaults == ["wfbp", "ring", "none"]


def test_a_way_to_synchronise_is_explained_with_its_bytes_and_promises() -> None:
    """int4: 4 + 128 bytes for a block of 256 values, 0.516 for each."""
    shown = run("sync", "explain", "codec=int4").stdout
    assert "schedule=wfbp,topology=direct,codec=int4" in shown
    assert "0.516 for 4: 0.129 of codec=none" in shown
    assert "lossy" in shown
    assert "period" not in shown
    assert "once a round, so 0.125 a batch" in run("sync", "explain", "diloco").stdout
    groups = run("sync", "explain", "period=32,groups=2:8").stdout
    assert "once a round, and 4 in each average within groups, so 0.5 a batch" in groups
    parts = run("sync", "explain", "period=65,partial=4:1,codec=int8").stdout
    assert "once a round, and 0.254 in each average of a part, so 0.266 a batch" in parts
    assert json.loads(run("sync", "explain", "bsp-a2a", "-o", "json").stdout)["is_exact"] is True


def test_a_way_to_synchronise_that_is_not_there_is_told_the_nearest() -> None:
    result = run("sync", "explain", "bsp-a2b")
    assert result.exit_code == 2
    assert "did you mean bsp-a2a" in result.stderr


def test_auto_is_no_method_to_explain_and_one_is_told_where_its_choice_stands() -> None:
    result = run("sync", "explain", "auto,quality=near")
    assert result.exit_code == 2
    assert "'peerloom jobs show' explains" in result.stderr


def test_a_job_tells_how_it_is_synchronised() -> None:
    client = ClientDouble()
    run("train", "digits", "--sync", "codec=int8", client=client)
    assert client.asked["train"][1]["sync"] == "codec=int8"
    assert "schedule=bsp,topology=ring,codec=none" in run("jobs", "show", JOB_ID).stdout


class RoundsHandle(HandleDouble):
    """A job that trains in rounds of `period` batches."""

    def __init__(self, period: int) -> None:
        super().__init__()
        self._sync = f"schedule=bsp,topology=ring,codec=none,period={period},outer=average"

    def status(self) -> Job:
        found = super().status()
        return replace(found, spec=replace(found.spec, sync=self._sync))


def test_a_job_tells_that_its_steps_are_rounds_and_how_much_was_exchanged() -> None:
    """The double has 10 of 20 steps."""
    shown = run("jobs", "show", JOB_ID, client=ClientDouble(RoundsHandle(16))).stdout
    assert "10/20, 16 a round" in shown
    assert "that one worker gave to the others" in shown
    assert "a round of" not in run("jobs", "show", JOB_ID, client=ClientDouble(RoundsHandle(1))).stdout
    assert "a round of" not in run("jobs", "show", JOB_ID).stdout


class ChosenHandle(HandleDouble):
    """A job whose trainer chose."""

    def status(self) -> Job:
        parts = PredictedStep(0.4, 0.3, 0.08, 0.02)
        chosen = SyncInUse("a=1", "it is best", parts, 1.5, 0.3, 1.2, "b=2", 1.6, 2)
        return replace(super().status(), sync=chosen)


def test_a_job_tells_what_was_chosen_with_the_measured_step_beside_the_predicted_one() -> None:
    shown = run("jobs", "show", JOB_ID, client=ClientDouble(ChosenHandle())).stdout
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    begin = lines.index("in use a=1 (changed 2 times)")
    assert lines[begin + 1 : begin + 5] == [
        "because it is best",
        "a step 400 ms predicted: computing 300 ms, exposed communication 80 ms, compression 20 ms",
        "1.5 s measured: computing 300 ms, exposed communication 1.2 s",
        "next best b=2: 1.6 s expected",
    ]
    assert "in use" not in run("jobs", "show", JOB_ID).stdout


def test_a_generation_names_its_way_to_synchronise_unless_it_is_the_usual_one() -> None:
    formed = GenerationFormed(1, JOB_ID, None, 1, (), "gloo", 0, "schedule=wfbp,topology=ring,codec=none")
    assert describe(formed) == "generation 1: 0 workers over gloo"
    other = replace(formed, sync="schedule=bsp,topology=ring,codec=fp16")
    assert describe(other) == "generation 1: 0 workers over gloo by schedule=bsp,topology=ring,codec=fp16"


SETTING = ("--workers", "4", "--rate", "8Mbps", "--delay", "10ms", "--parameters", "1M", "--compute", "3s")


def test_a_method_is_explained_with_what_a_step_would_take() -> None:
    """4 MB around a ring of four: 6 rounds of 1 s and a round trip of 40 ms, in one bucket after the pass."""
    found = json.loads(run("sync", "explain", "bsp-a2a", *SETTING, "--layers", "1", "-o", "json").stdout)
    assert found["is_exact"] is True
    prediction = found["prediction"]
    assert abs(prediction["step_s"] - 9.24) < 1e-9
    assert abs(prediction["exposed_s"] - 6.24) < 1e-9
    assert prediction["sent_bytes"] == 6_000_000
    assert prediction["timeline"][-1]["what"] == "all-reduce 0"
    shown = run("sync", "explain", "bsp-a2a", *SETTING, "--layers", "1").stdout
    assert "9.24 s" in shown
    assert "6 MB by the busiest worker" in shown


def test_unequal_links_are_given_one_for_each_worker() -> None:
    """Two ranks: 2 MB each way at the slower rate of 4 Mbit/s, twice."""
    flags = ("--workers", "2", "--rate", "8Mbps,4Mbps", "--parameters", "1M", "--compute", "1s", "-o", "json")
    found = json.loads(run("sync", "explain", "bsp-a2a", *flags, "--layers", "1").stdout)
    assert abs(found["prediction"]["step_s"] - 9) < 1e-9


def test_a_slow_worker_is_a_time_of_its_own_and_older_gradients_are_predicted() -> None:
    """Shares by speed: 4 / (3 / 0.5 s + 1 / 5 s). By equal parts the slow one has 5 s for two steps."""
    flags = (
        "--workers",
        "4",
        "--rate",
        "1000Gbps",
        "--parameters",
        "1k",
        "--compute",
        "0.5s,0.5s,0.5s,5s",
    )

    def step_s(method: str) -> float:
        prediction = json.loads(run("sync", "explain", method, *flags, "-o", "json").stdout)["prediction"]
        return float(prediction["step_s"])

    assert step_s("bsp-a2a") == pytest.approx(4 / 6.2, rel=0.01)
    assert step_s("ssp:2") == pytest.approx(2.5, rel=0.01)
    refused = run("sync", "explain", "ssp:2", *flags[:-1], "1s,2s")
    assert refused.exit_code != 0
    assert "1, or 4" in refused.output


def test_all_methods_are_ranked_by_their_predicted_step() -> None:
    found = json.loads(run("sync", "list", *SETTING, "-o", "json").stdout)
    times = [row["step_s"] for row in found["ranked"]]
    assert times == sorted(times)
    assert found["ranked"][0]["method"] in found["reason"]
    exact = json.loads(run("sync", "list", *SETTING, "--quality", "exact", "-o", "json").stdout)["ranked"]
    assert len(exact) == len(candidates("exact"))
    lines = run("sync", "list", *SETTING).stdout.splitlines()
    assert lines[0].split() == ["METHOD", "STEP", "COMPUTING", "EXPOSED", "COMPRESSION", "SENT"]
    assert "Predicted, not measured." in lines[-1]


def test_what_is_missing_or_wrong_for_a_prediction_is_named() -> None:
    asked = {
        ("--workers", "3"): "--rate and --parameters and --compute must be given",
        (*SETTING, "--rate", "50"): "a rate such as 50Mbps",
        (*SETTING, "--rate", "8Mbps,8Mbps"): "must be 1, or 4",
        (*SETTING, "--parameters", "many"): "a number such as 6000 or 11M",
        (*SETTING, "--workers", "0"): "from 1 to 1,024",
        (*SETTING, "--rate", "0Mbps"): "above 0 bits/s",
        (*SETTING, "--quality", "exakt"): "did you mean exact",
    }
    for flags, told in asked.items():
        result = run("sync", "list", *flags)
        assert result.exit_code == 2, flags
        assert told in result.stderr


def test_federated_rounds_are_listed_and_explained_and_not_predicted() -> None:
    listed = json.loads(run("sync", "list", "-o", "json").stdout)["federated"]
    assert [row["value"] for row in listed if row["is_default"]] == ["fedavg", "even", "refuse", "even"]
    assert "federated,algorithm=fedprox" in run("sync", "list").stdout
    shown = run("sync", "explain", "federated,stale=bound:3").stdout
    assert "4 for 4: 1 of codec=none; once a round\n" in shown
    assert "(S is 3); an update counts once" in shown
    setting = ("--workers", "3", "--rate", "10Mbps", "--parameters", "1M", "--compute", "1s")
    refused = run("sync", "explain", "federated", *setting)
    assert "a federated client's data decide how many" in " ".join(refused.stderr.split())


def test_a_federated_step_is_told_as_a_round_with_its_late_updates() -> None:
    """The worker's message, as the SDK and the command show it."""
    pushes = [
        ClientPush(client=0, node_id="a", version=4, samples=30, verdict="accepted", weight=1.0),
        ClientPush(client=2, version=3, samples=9, verdict="refused", reason="it is late"),
    ]
    totals = [ClientTotals(client=0, updates=1, samples=30), ClientTotals(client=2, refused_updates=1)]
    told = FederatedRound(drawn=[0], reason="1 of 3 clients", pushes=pushes, clients=totals)
    event = event_of(WatchJobResponse(step=StepProgress(step=5, federated=told)))
    assert isinstance(event, StepCommitted)
    assert event.federated is not None
    assert (
        describe(event)
        == "round 5: drew 1 of 3 clients; 1 update counts; client 2 from version 3 refused: it is late"
    )
    assert [str(each) for each in event.federated.clients] == [
        "0: 1 update with 30 samples",
        "2: 0 updates with 0 samples, 1 refused",
    ]
