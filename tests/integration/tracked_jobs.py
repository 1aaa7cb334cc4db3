"""A job for the tests of trackers: its events as the SDK gives them, without services."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from peerloom.client.types import (
    EpochFinished,
    GenerationFormed,
    Job,
    JobEvent,
    JobSpec,
    JobState,
    NodeAnswer,
    NodeAnswered,
    StateChanged,
    StepCommitted,
    Worker,
    WorkerLost,
)

JOB_ID = "job-0123456789ab"
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
SPEC = JobSpec("digits", learning_rate=0.25, name="tried|twice", arguments={"data": "/data"})


def worker(node: str, rank: int, attempt: int = 1) -> Worker:
    """A worker on a node."""
    return Worker(f"worker-{node}-{attempt}", f"node-{node}", node, rank, False, "")


def events() -> list[JobEvent]:
    """A job of four steps: anna and bert begin, anna is lost after the second, carl joins; it succeeds."""

    def at(sequence: int) -> tuple[int, str, datetime]:
        return sequence, JOB_ID, START + timedelta(seconds=sequence)

    def step(sequence: int, step: int, loss: float) -> StepCommitted:
        return StepCommitted(*at(sequence), step, 4, 1 + step // 3, loss, 64, 640.0, 0.1, 0.075, 0.025, 1000)

    answer = NodeAnswer("node-anna", "anna", "127.0.0.1:1", 2, 1.5, "high belief", 1, "free", 0.1)
    anna, bert, carl = worker("anna", 0), worker("bert", 1), worker("carl", 1)
    return [
        NodeAnswered(*at(1), answer),
        StateChanged(*at(2), "running", ""),
        GenerationFormed(*at(3), 1, (anna, bert), "gloo", 1),
        step(4, 1, 2.0),
        step(5, 2, 1.5),
        WorkerLost(*at(6), anna, "killed"),
        GenerationFormed(*at(7), 2, (replace(bert, rank=0), carl), "gloo", 3),
        step(8, 3, 1.0),
        step(9, 4, 0.5),
        EpochFinished(*at(10), 1, "accuracy", 0.75, 1.25, 100),
        StateChanged(*at(11), "succeeded", "all steps are made"),
    ]


def job(state: JobState, spec: JobSpec = SPEC) -> Job:
    """The job's snapshot in a state."""
    end = START + timedelta(seconds=11) if state == "succeeded" else None
    return Job(JOB_ID, spec, state, "", (), (), 1, "gloo", None, None, START, START, end)


class RecordedJob:
    """A job that is watched; its events end after `until`, as if it had, or the trainer had been left."""

    def __init__(self, until: int = 11, told: Sequence[JobEvent] = ()) -> None:
        self.id = JOB_ID
        self._events = [event for event in told or events() if event.sequence <= until]

    async def watch(self, after: int = 0) -> AsyncGenerator[JobEvent, None]:
        """The events after a sequence number."""
        for event in self._events:
            if event.sequence > after:
                yield event

    async def status(self) -> Job:
        """Succeeded with the last event, before that running."""
        return job("succeeded" if self._events[-1].sequence == 11 else "running")
