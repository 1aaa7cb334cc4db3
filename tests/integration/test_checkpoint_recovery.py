"""What a job goes on from when its own record is all that is left, and what it refuses to go on from.

Faults strike at events of the job, never at a time.
"""

import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from peerloom import Client, Embedded, JobHandle
from peerloom.client.types import GenerationFormed, StateChanged, StepCommitted
from peerloom.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, PeerloomError
from peerloom.v1.trainer_pb2 import Job

JOB_LIMIT_S = 120.0
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """Two nodes for all tests, which have seeds of their own, so that no two jobs store the same state."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PEERLOOM_TRAINER_CHECKPOINT_INTERVAL_S", "0.2")
        with Embedded(tmp_path_factory.mktemp("system"), (1, 1)) as started:
            yield started


@pytest.fixture
def client(system: Embedded) -> Iterator[Client]:
    with Client(system.address) as opened:
        yield opened


def stored(system: Embedded, job: JobHandle) -> Job:
    """The trainer's record of a job, as its database has it."""
    with closing(sqlite3.connect(database(system))) as connection:
        query = "select record from jobs where job_id = ?"
        return Job.FromString(connection.execute(query, (job.id,)).fetchone()[0])


def store(system: Embedded, record: Job) -> None:
    """Changes the record of a job that has ended."""
    with closing(sqlite3.connect(database(system))) as connection, connection:
        query = "update jobs set record = ? where job_id = ?"
        connection.execute(query, (record.SerializeToString(), record.job_id))


def database(system: Embedded) -> Path:
    return system.folder.path / "trainer" / "trainer.sqlite"


def cancelled_with_two_checkpoints(system: Embedded, client: Client, seed: int) -> JobHandle:
    job = client.train("digits", requests=2, epochs=1000, seed=seed)
    for event in job.watch():
        if isinstance(event, StepCommitted) and stored(system, job).HasField("previous_checkpoint"):
            break
    assert job.cancel().state == "cancelled"
    return job


def resumed_from(system: Embedded, job: JobHandle) -> tuple[list[str], int]:
    """The reasons given since the resumption, and the step gone on from; then the job is cancelled."""
    after = max(event.sequence for event in job.watch())
    job.resume()
    reasons = []
    for event in job.watch(after):
        if isinstance(event, StateChanged):
            reasons.append(event.reason)
        if isinstance(event, GenerationFormed):
            first = event.first_step
        if isinstance(event, StepCommitted):
            assert event.step == first + 1
            assert job.cancel().state == "cancelled"
            ledger = job.status().ledger
            assert ledger is not None
            assert ledger.is_exact, ledger.verdict
            return reasons, first
    raise AssertionError(f"no step was made: {job.result(0)}")


def damage(folder: Path, digest: str) -> int:
    """Turns a byte of every copy of an artifact around; how many there were."""
    copies = [path for path in folder.rglob(digest) if path.is_file()]
    for path in copies:
        path.chmod(0o600)
        content = bytearray(path.read_bytes())
        content[-1] ^= 0xFF
        path.write_bytes(content)
    return len(copies)


def test_a_damaged_copy_of_a_checkpoint_is_replaced_by_a_sound_one(system: Embedded, client: Client) -> None:
    job = cancelled_with_two_checkpoints(system, client, seed=1)
    newest = stored(system, job).checkpoint
    assert damage(system.folder.path / "trainer", newest.artifact.digest) == 1
    _, first_step = resumed_from(system, job)
    assert first_step == newest.step


def test_without_a_sound_copy_the_older_checkpoint_is_taken_and_that_is_said(
    system: Embedded, client: Client
) -> None:
    job = cancelled_with_two_checkpoints(system, client, seed=2)
    record = stored(system, job)
    newest, older = record.checkpoint, record.previous_checkpoint
    assert damage(system.folder.path, newest.artifact.digest) == 3, "the trainer and two nodes keep it"
    reasons, first_step = resumed_from(system, job)
    assert first_step == older.step < newest.step
    refusal = f"the checkpoint of step {newest.step} ({newest.artifact.digest[:12]}) can't be used: "
    assert f"{refusal}it is damaged or gone, and no node has a sound copy; going on from the one of" in (
        " ".join(reasons)
    )


def test_a_checkpoint_of_another_model_is_refused_by_the_workers_and_the_older_one_taken(
    system: Embedded, client: Client
) -> None:
    """The record of one job names another's checkpoint, and a file that is no checkpoint at all."""
    other = client.train("digits", requests=2, epochs=1, seed=5)
    assert other.result(JOB_LIMIT_S).succeeded
    with pytest.raises(FailedPreconditionError, match="succeeded"):
        other.resume()
    job = cancelled_with_two_checkpoints(system, client, seed=3)
    record = stored(system, job)
    model = stored(system, other).result.model  # parameters without an optimiser: not a state
    record.checkpoint.artifact.CopyFrom(model)
    store(system, record)
    reasons, first_step = resumed_from(system, job)
    assert first_step == record.previous_checkpoint.step
    assert f"({model.digest[:12]}) can't be used: it isn't a state of this model" in " ".join(reasons)


def test_without_any_usable_checkpoint_the_job_fails_with_the_reason(
    system: Embedded, client: Client
) -> None:
    job = cancelled_with_two_checkpoints(system, client, seed=4)
    record = stored(system, job)
    for checkpoint in (record.checkpoint, record.previous_checkpoint):
        assert damage(system.folder.path, checkpoint.artifact.digest)
    job.resume()
    result = job.result(JOB_LIMIT_S)
    assert result.state == "failed"
    assert "can't be used" in result.reason
    assert "there is no older one" in result.reason


def test_only_a_job_that_has_ended_is_resumed(system: Embedded, client: Client) -> None:
    with pytest.raises(NotFoundError, match="job-000000000000"):
        client.job("job-000000000000").resume()
    job = client.train("digits", requests=2, epochs=1000)
    next(event for event in job.watch() if isinstance(event, StepCommitted))
    with pytest.raises(FailedPreconditionError, match="it has not ended"):
        job.resume()
    job.cancel()


def test_more_workers_than_there_can_be_are_refused_with_the_reason(client: Client) -> None:
    with pytest.raises(InvalidArgumentError, match="at least min_workers, which is 3"):
        client.train("digits", min_workers=3, max_workers=2)
    result = client.train("digits", requests=2, min_workers=3).result(JOB_LIMIT_S)
    assert result.state == "no_compute"
    assert "2 slots given, and the job needs at least 3 workers" in result.reason


def test_a_cancelled_job_stays_cancelled_when_the_trainer_dies_while_it_frees_the_slots(
    system: Embedded, client: Client
) -> None:
    """Both agents are frozen, so that the slots can't be freed before the trainer is killed."""
    job = client.train("digits", requests=2, epochs=1000)
    agents = [psutil.Process(system.pids[name]) for name in ("node-1", "node-2")]
    watch = job.watch()
    for event in watch:
        if isinstance(event, StepCommitted) and stored(system, job).HasField("checkpoint"):
            break
    for agent in agents:
        agent.send_signal(signal.SIGSTOP)

    def cancel() -> None:
        with suppress(PeerloomError), Client(system.address) as canceller:
            canceller.job(job.id).cancel()

    cancelling = threading.Thread(target=cancel)
    try:
        cancelling.start()
        for event in watch:
            if isinstance(event, StateChanged) and event.reason.startswith("freeing the slots"):
                psutil.Process(system.pids["trainer"]).kill()
                break
    finally:
        for agent in agents:
            agent.send_signal(signal.SIGCONT)
    last = [event for event in watch if isinstance(event, StateChanged)][-1]
    cancelling.join(JOB_LIMIT_S)
    assert (last.state, last.reason) == ("cancelled", "its user cancelled it")
