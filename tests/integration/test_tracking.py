"""Trackers by their own libraries, on files: what they read back of a job, also one taken up again."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from client_system import System
from tracked_jobs import JOB_ID, RecordedJob

from peerloom import Client, InvalidArgumentError
from peerloom.cli.invocation import Invocation
from peerloom.cli.main import cli
from peerloom.client.tracking.job_tracking import JobTracking
from peerloom.v1 import trainer_pb2

# The libraries' own warnings, of their dependencies and of what they will change, are theirs.
pytestmark = pytest.mark.filterwarnings("ignore::Warning")
LOSSES = [(1, 2.0), (2, 1.5), (3, 1.0), (4, 0.5)]


@pytest.fixture(autouse=True)
def nothing_is_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What libraries tell their makers of their use would leave this machine."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a database's tables take seconds to make
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))


async def track(place: str, *, until: int = 11) -> list[str]:
    """Tracks the job up to an event; what was told of the tracker."""
    told: list[str] = []
    await JobTracking(RecordedJob(until), place, told.append).run()
    return told


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    return [(one.step, one.value) for one in found.Scalars(tag)]


def texts(folder: Path) -> dict[str, list[str]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    found.Reload()
    return {
        tag: [one.tensor_proto.string_val[0].decode() for one in found.Tensors(tag)]
        for tag in found.Tags()["tensors"]
    }


async def test_tensorboard_reads_curves_events_and_what_was_asked(tmp_path: Path) -> None:
    assert await track(f"tensorboard:{tmp_path}") == []
    run = tmp_path / JOB_ID
    assert scalars(run, "train/loss") == LOSSES
    assert scalars(run, "time/compute_s") == [(step, pytest.approx(0.075)) for step in (1, 2, 3, 4)]
    assert scalars(run, "time/communication_s")[0] == (1, pytest.approx(0.025))
    assert scalars(run, "test/accuracy") == [(4, 0.75)]
    assert scalars(run, "belief/anna") == [(0, 1.5)]
    assert scalars(run, "workers/lost") == [(2, 1.0)]
    said = texts(run)
    assert said["events/lost"] == ["lost worker-anna-1 on anna: killed"]
    assert said["events/generations"][1].endswith("(bert, carl), gloo; joined: carl")
    assert said["events/states"] == ["running", "succeeded: all steps are made"]
    assert "| name | tried\\|twice |" in said["job"][0]
    assert "| arguments.data | /data |" in said["job"][0]


async def test_tensorboard_is_taken_up_where_it_ended_even_within_a_record(tmp_path: Path) -> None:
    await track(f"tensorboard:{tmp_path}", until=5)
    (first,) = (tmp_path / JOB_ID).glob("events.*")
    first.write_bytes(first.read_bytes()[:-7])  # of step 2, as a process leaves it that is killed there
    assert await track(f"tensorboard:{tmp_path}") == []
    before = sorted((tmp_path / JOB_ID).iterdir())
    assert await track(f"tensorboard:{tmp_path}") == []
    assert scalars(tmp_path / JOB_ID, "train/loss") == LOSSES
    assert len(texts(tmp_path / JOB_ID)["job"]) == 1
    assert sorted((tmp_path / JOB_ID).iterdir()) == before  # nothing was new, so there is no file for it


async def test_one_run_of_mlflow_is_taken_up_without_repeats_and_ends_as_the_job_does(tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    place = f"file://{tmp_path}/runs"
    client = MlflowClient(tracking_uri=place)
    assert await track(f"mlflow:{place}", until=5) == []
    experiment = client.get_experiment_by_name("peerloom").experiment_id
    assert [run.info.status for run in client.search_runs([experiment])] == ["RUNNING"]
    for _ in range(2):
        assert await track(f"mlflow:{place}") == []
    (run,) = client.search_runs([experiment])
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert [(one.step, one.value) for one in history] == LOSSES
    assert (run.info.status, run.info.end_time) == ("FINISHED", 1772366411000)
    assert run.data.metrics["test/accuracy"] == 0.75
    assert run.data.params["learning_rate"] == "0.25"
    assert run.data.tags["peerloom.state"] == "succeeded"
    assert "    2026-03-01 12:00:06 step 2: lost worker-anna-1 on anna: killed" in (
        run.data.tags["mlflow.note.content"].splitlines()
    )


def wandb_rows(path: Path) -> Iterator[dict[str, str]]:
    """The rows of an offline run's file: a log of records in blocks of 32 KiB after a head of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, at, whole = path.read_bytes(), 7, b""
    while at < len(content):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, size, kind = struct.unpack_from("<IHB", content, at)
        whole += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part of it
            record = Record.FromString(whole)
            whole = b""
            if record.WhichOneof("record_type") == "history":
                yield {item.nested_key[0] or item.key: item.value_json for item in record.history.item}


def offline_rows(folder: Path) -> list[dict[str, str]]:
    files = sorted(folder.glob(f"wandb/offline-run-*-{JOB_ID}*/run-{JOB_ID}.wandb"))
    return [row for file in files for row in wandb_rows(file)]


async def test_wandb_keeps_offline_what_it_wasn_t_told_before(tmp_path: Path) -> None:
    import wandb

    try:
        for until in (5, 11, 11):
            assert await track("wandb:lab/digits?mode=offline", until=until) == []
    finally:
        wandb.teardown()  # its own process, which lives as long as ours, writes the last rows as it ends
    rows = offline_rows(tmp_path)
    assert [int(row["event"]) for row in rows] == list(range(1, 12))
    assert [(int(row["step"]), float(row["train/loss"])) for row in rows if "train/loss" in row] == LOSSES


async def test_a_server_that_is_away_is_told_once_and_holds_nothing_up(tmp_path: Path) -> None:
    told: list[str] = []
    place, again = "mlflow:http://127.0.0.1:9", f"peerloom jobs watch {JOB_ID} --track"
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    # The port of "discard", where nobody listens.
    await JobTracking(RecordedJob(), "mlflow:http://user:secret@127.0.0.1:9", told.append, sleep).run()
    assert len(pauses) < 12
    assert [line.partition(" (")[0] for line in told] == [
        f"{place} fails",
        f"{place} is given up. The rest gets there by: {again} {place}",
    ]
    assert "secret" not in "".join(told)


async def test_two_at_once_don_t_write_one_run_of_tensorboard_twice(tmp_path: Path) -> None:
    from peerloom.client.tracking.tensorboard_tracker import TensorboardTracker

    job = await RecordedJob().status()
    holder = TensorboardTracker(tmp_path)
    holder.begin(job)
    told: list[str] = []

    async def leave(_: float) -> None:
        holder.release()

    await JobTracking(RecordedJob(), f"tensorboard:{tmp_path}", told.append, leave).run()
    assert [line.partition(" works")[0].partition(" (")[0] for line in told] == [
        f"tensorboard:{tmp_path} fails",
        f"tensorboard:{tmp_path}",
    ]
    assert scalars(tmp_path / JOB_ID, "train/loss") == LOSSES


class Asked(Invocation):
    """What flags say, for a system at an address."""

    def client(self) -> Client:
        return Client(self.address)


def test_a_watched_job_is_tracked_over_the_wire(tmp_path: Path) -> None:
    def event(system: System, **what: Any) -> None:
        system.add("job-1", trainer_pb2.JOB_STATE_RUNNING, **what)

    with System(tmp_path / "store") as system:
        event(system, step=trainer_pb2.StepProgress(step=1, epoch=1, loss=2.0, samples=64))
        event(system, step=trainer_pb2.StepProgress(step=2, epoch=1, loss=1.5, samples=64))
        system.add("job-1", trainer_pb2.JOB_STATE_SUCCEEDED)
        command = ["jobs", "watch", "job-1", "--track", f"tensorboard:{tmp_path}/runs"]
        result = CliRunner().invoke(cli, command, obj=Asked(system.address))
        assert (result.exit_code, "track" in result.stderr) == (0, False), result.output
        with Client(system.address) as client, pytest.raises(InvalidArgumentError, match="comet:here"):
            client.job("job-1").track("comet:here")
    assert scalars(tmp_path / "runs" / "job-1", "train/loss") == [(1, 2.0), (2, 1.5)]
