"""A training is one trace through all its processes, seen by a collector that speaks OTLP as real ones do.

One system for all: a short job, then one whose trainer and then whose worker is killed.
"""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import StartService
from otlp_collector import CollectedSpan, OtlpCollector
from paced_jobs import begin_patient_job
from worker_processes import workers_of

from peerloom import Client, Embedded
from peerloom.client.types import GenerationFormed, StepCommitted, WorkerLost
from peerloom.kit.tracing import UNTRACED
from peerloom.kit.tracing_setup import end_tracing

LIMIT_S = 120.0
SUBMIT = "peerloom.v1.TrainerService/SubmitJob"
SELECT = "peerloom.v1.SelectorService/SelectNodes"
START = "peerloom.v1.NodeAgentService/StartWorkers"
pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True)
class Traced:
    """What came of one job: its id, its trace by the record, its spans, and the log lines of processes."""

    job_id: str
    trace_id: str
    spans: list[CollectedSpan]
    lines: list[dict[str, object]]

    def named(self, name: str, service: str = "") -> list[CollectedSpan]:
        """The spans of that name, in the order of their beginnings; those of one service."""
        found = [one for one in self.spans if one.name == name and service in ("", one.service)]
        return sorted(found, key=lambda one: one.begin_ns)

    def above(self, below: CollectedSpan) -> CollectedSpan:
        """The span that this one stands below."""
        [found] = [one for one in self.spans if one.span_id == below.parent_id]
        return found


@pytest.fixture(scope="module")
def tracing_system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Embedded, OtlpCollector]]:
    """Two nodes, of which all processes send their spans to the collector."""
    with pytest.MonkeyPatch.context() as patch, OtlpCollector() as collector:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        patch.setenv("PEERLOOM_TRAINER_REQUEST_TIMEOUT_S", "60")
        try:
            with Embedded(tmp_path_factory.mktemp("system"), (1, 1)) as system:
                yield system, collector
        finally:
            end_tracing()  # this process traced too, as it uses the SDK


def lines_of(system: Embedded) -> list[dict[str, object]]:
    files = [path for path in Path(system.folder.path).rglob("*.log") if path.is_file()]
    read = [line for path in files for line in path.read_text(errors="replace").splitlines()]
    return [json.loads(line) for line in read if line.startswith("{")]


def traced(system: Embedded, collector: OtlpCollector, job_id: str, trace_id: str) -> Traced:
    """What came, once all workers of the ended job have said their last, and the job its own."""
    collector.wait("job", LIMIT_S, trace_id)
    spans = [span for span in collector.spans if span.trace_id == trace_id]
    return Traced(job_id, trace_id, spans, lines_of(system))


@pytest.fixture(scope="module")
def training(tracing_system: tuple[Embedded, OtlpCollector]) -> Traced:
    """A job of two workers and one epoch: 45 steps."""
    system, collector = tracing_system
    with Client(system.address) as client:
        job = client.train("digits", requests=2, epochs=1)
        result = job.result(LIMIT_S)
        assert result.succeeded, result.reason
        return traced(system, collector, job.id, job.status().trace_id)


def test_one_trace_goes_through_all_processes(training: Traced) -> None:
    services = {span.service.removeprefix("peerloom-") for span in training.spans}
    assert services == {"client", "registry", "selector", "trainer", "node", "worker"}
    assert len({span.process for span in training.spans if span.service == "peerloom-worker"}) == 2


def test_each_span_stands_below_the_one_that_asked_for_it(training: Traced) -> None:
    [root] = [span for span in training.spans if not span.parent_id]
    assert (root.name, root.service) == ("train", "peerloom-client")
    [job] = training.named("job")
    assert job.attributes["job"] == training.job_id
    taken, asked = training.above(job), training.above(training.above(job))
    assert (taken.name, taken.service) == (SUBMIT, "peerloom-trainer")
    assert (asked.name, asked.service) == (SUBMIT, "peerloom-client")
    assert training.above(asked) == root
    [found] = training.named("find nodes")
    assert training.above(found) == job
    [chosen] = training.named(SELECT, "peerloom-selector")
    assert training.above(training.above(chosen)) == found
    assert chosen.attributes["chosen"] == 2
    for prepared in training.named("prepare"):
        started = training.above(prepared)
        assert (started.name, started.service) == (START, "peerloom-node")
        assert training.above(training.above(started)) == found


def test_the_job_tells_how_it_began_formed_and_ended(training: Traced) -> None:
    names = ("start worker", "form generation", "generation", "collect model", "evaluate model", "end job")
    assert [len(training.named(name)) for name in names] == [2, 1, 1, 1, 1, 1]
    [job], [formed] = training.named("job"), training.named("form generation")
    assert formed.attributes["generation"] == 1
    assert formed.attributes["workers"] == 2
    assert job.begin_ns <= formed.begin_ns < formed.end_ns <= job.end_ns
    assert job.attributes["steps"] == 45
    assert job.error == ""


def test_a_worker_tells_of_its_beginning_and_not_of_its_steps(training: Traced) -> None:
    in_workers = [span.name for span in training.spans if span.service == "peerloom-worker"]
    once_each = ["first step", "join generation", "prepare", "train generation"]
    calls = [name for name in in_workers if name.startswith("peerloom.")]
    assert sorted(set(in_workers) - set(calls)) == once_each
    assert len(in_workers) - len(calls) == 2 * len(once_each)
    for first in training.named("first step"):
        assert training.above(first).name == "train generation"


def test_what_lives_for_hours_has_no_span(
    training: Traced, tracing_system: tuple[Embedded, OtlpCollector]
) -> None:
    _, collector = tracing_system
    assert {f"/{span.name}" for span in collector.spans} & UNTRACED == set()
    assert "peerloom.v1.TrainerService/WorkerSession" not in {span.name for span in collector.spans}


def test_nothing_is_traced_that_nobody_asked_for(
    training: Traced, tracing_system: tuple[Embedded, OtlpCollector]
) -> None:
    """Probes, announcements and beats go on all the time, and each would begin a trace of its own."""
    _, collector = tracing_system
    assert {span.name for span in collector.spans if not span.parent_id} == {"train"}


def test_log_lines_carry_the_trace(training: Traced) -> None:
    of_trace = [line for line in training.lines if line.get("trace_id") == training.trace_id]
    told = {(line["service"], line["event"]) for line in of_trace if "service" in line}
    assert ("trainer", "generation_formed") in told
    assert ("node", "work_answered") in told
    assert ("worker", "generation_joined") in told
    assert not [line for line in training.lines if line["event"] == "service_started" and "trace_id" in line]


def test_a_trainer_that_comes_back_goes_on_with_the_trace(
    tracing_system: tuple[Embedded, OtlpCollector], training: Traced
) -> None:
    """The trainer is killed, then, when it leads again, a worker: the recovery stands in the job's trace."""
    system, collector = tracing_system
    with Client(system.address, patience_s=LIMIT_S) as client:
        job = begin_patient_job(client, workers=2)
        events = job.watch()
        next(event for event in events if isinstance(event, StepCommitted) and event.step >= 3)
        first_trainer = system.pids["trainer"]

        def comes_from_another() -> bool:
            return system.pids["trainer"] not in (0, first_trainer)

        os.kill(first_trainer, signal.SIGKILL)
        next(event for event in events if isinstance(event, StepCommitted) and comes_from_another())
        [worker] = workers_of(system.pids["node-1"])
        worker.kill()
        lost = next(event for event in events if isinstance(event, WorkerLost))
        next(event for event in events if isinstance(event, GenerationFormed) and len(event.workers) == 2)
        recovered = collector.wait("recover", LIMIT_S)
        job.cancel()
        found = traced(system, collector, job.id, job.status().trace_id)
    [whole] = found.named("job")
    assert recovered.attributes["worker"] == lost.worker.id
    assert recovered.parent_id == whole.span_id
    assert {recovered.trace_id, found.named("train")[0].trace_id} == {found.trace_id}
    assert found.trace_id != training.trace_id
    assert whole.process == system.pids["trainer"]
    submitted = found.above(whole)
    assert (submitted.name, submitted.process) == (SUBMIT, first_trainer)
    assert whole.error == "cancelled: its user cancelled it"
    placed = [span for span in found.named(START, "peerloom-node") if span.begin_ns > recovered.begin_ns]
    assert placed, "the worker that was found in its place belongs to the trace"


def test_a_collector_that_is_away_stops_nobody(start_service: StartService, tmp_path: Path) -> None:
    """Nobody listens at port 9 (discard). A client and a registry work and end as ever."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
        registry = start_service("registry", "--state", str(tmp_path))
        end_tracing()
        with Client(registry.address) as client:
            assert client.nodes() == []
        assert registry.stop() == 0
        end_tracing()
