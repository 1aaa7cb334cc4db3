"""An agent sends a job's workers to the trainer that leads, and refuses one that was deposed."""

from pathlib import Path

import pytest

from peerloom.errors import FailedPreconditionError
from peerloom.services.node_agent.workers.job_trainers import JobTrainer, JobTrainers
from peerloom.worker.assignment import TRAINER_FILE

JOB = "job-1"


def test_workers_are_told_where_the_trainer_is_that_took_over(tmp_path: Path) -> None:
    trainers = JobTrainers()
    trainers.tell(JOB, [tmp_path])
    assert list(tmp_path.iterdir()) == [], "their assignment says it"
    trainers.follow(JOB, JobTrainer("a:1", 1))
    trainers.follow(JOB, JobTrainer("b:1", 2))
    trainers.tell(JOB, [tmp_path, tmp_path / "gone"])
    assert (tmp_path / TRAINER_FILE).read_text() == "b:1\n"
    assert not (tmp_path / "gone").exists()


def test_a_deposed_trainer_is_refused_with_the_one_that_leads() -> None:
    trainers = JobTrainers()
    trainers.follow(JOB, JobTrainer("b:1", 2))
    for refused in (lambda: trainers.check(JOB, 1), lambda: trainers.follow(JOB, JobTrainer("a:1", 1))):
        with pytest.raises(FailedPreconditionError, match="run by the trainer at b:1") as error:
            refused()
        assert error.value.reason == "TRAINER_DEPOSED"
    trainers.check(JOB, 2)
    trainers.check("job-2", 1)


def test_a_job_is_watched_while_one_of_its_trainers_is_there() -> None:
    trainers = JobTrainers()
    with trainers.watching(JOB):
        with trainers.watching(JOB):
            assert trainers.is_watched(JOB)
        assert trainers.is_watched(JOB)
        assert not trainers.is_watched("job-2")
    assert not trainers.is_watched(JOB)
