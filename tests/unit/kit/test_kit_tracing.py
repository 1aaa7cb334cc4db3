"""Which spans there are: below whom, how many, of which calls; and that nothing waits for a collector."""

import logging
import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import structlog
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from peerloom.errors import NotFoundError
from peerloom.kit import tracing, tracing_setup
from peerloom.kit.library_logs import hear_library
from peerloom.kit.otel_tracer import SPANS_A_TRACE, OtelTracer
from peerloom.kit.tracing import BEGINNING, UNTRACED, PastSpan
from peerloom.v1 import (
    admission_pb2,
    artifact_pb2,
    inference_pb2,
    node_agent_pb2,
    registry_pb2,
    selector_pb2,
    trainer_pb2,
)

FILES = (
    admission_pb2,
    artifact_pb2,
    inference_pb2,
    node_agent_pb2,
    registry_pb2,
    selector_pb2,
    trainer_pb2,
)
SERVICES = [service for file in FILES for service in file.DESCRIPTOR.services_by_name.values()]
TRACE, ABOVE = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{ABOVE}-01"
SUBMIT = "/peerloom.v1.TrainerService/SubmitJob"
GET = "/peerloom.v1.TrainerService/GetJob"
# Streams that end soon. Any other has to be on one of the lists.
SHORT_STREAMS = {
    f"/peerloom.v1.ArtifactService/{name}" for name in ("PutArtifact", "GetArtifact", "FetchArtifact")
}


class Kept(SpanExporter):
    """Keeps what would be sent."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += spans
        return SpanExportResult.SUCCESS


@pytest.fixture
def sent() -> Iterator[Any]:
    """Traces in this process; called, it ends that and gives the spans by name."""
    kept = Kept()
    tracer = OtelTracer("tested", kept, complains=False)
    before = tracing.use(tracer)

    def spans() -> dict[str, ReadableSpan]:
        tracer.close(30.0)
        return {span.name: span for span in kept.spans}

    yield spans
    tracing.use(before)
    tracer.close(30.0)


def call(code: grpc.StatusCode | None = None, **metadata: str) -> Any:
    """What gRPC tells of a call."""
    return SimpleNamespace(
        invocation_metadata=lambda: tuple(metadata.items()), code=lambda: code, details=lambda: "its words"
    )


def parent_of(span: ReadableSpan) -> str:
    return f"{span.parent.span_id:016x}" if span.parent else ""


def id_of(span: ReadableSpan) -> str:
    return f"{span.context.span_id:016x}"


def test_without_a_collector_all_of_it_does_nothing() -> None:
    assert not tracing.is_on()
    with tracing.begin("train"), tracing.span("inside"), tracing.serving(SUBMIT, None), tracing.muted():
        assert (tracing.traceparent(), tracing.trace_id()) == ("", "")
    with tracing.calling(trainer_pb2.GetJobRequest()) as carried:
        assert carried == ()


def test_a_span_needs_a_trace_to_stand_in(sent: Any) -> None:
    with tracing.span("of nobody"):
        assert tracing.trace_id() == ""
    with tracing.begin("train", task="digits"), tracing.span("inside"):
        pass
    found = sent()
    assert set(found) == {"train", "inside"}
    assert parent_of(found["inside"]) == id_of(found["train"])
    assert found["train"].attributes == {"task": "digits"}
    assert found["train"].resource.attributes["service.name"] == "peerloom-tested"


def test_an_error_is_told_in_the_words_of_its_message(sent: Any) -> None:
    with pytest.raises(NotFoundError), tracing.begin("train"):
        raise NotFoundError("There is no such task.")
    assert sent()["train"].status.description == "There is no such task."


def test_a_call_carries_the_trace_and_its_server_stands_below_it(sent: Any) -> None:
    with tracing.begin("ask"), tracing.calling(trainer_pb2.GetJobRequest()) as carried:
        pass
    with tracing.serving(GET, call(grpc.StatusCode.NOT_FOUND, **dict(carried))):
        here = tracing.trace_id()
    client, server = sent(), None
    server = client[GET[1:]]
    assert here == f"{client['ask'].context.trace_id:032x}"
    assert server.attributes["rpc.grpc.status_code"] == 5
    assert server.status.description == "NOT_FOUND: its words"
    assert dict(carried)["traceparent"].split("-")[2] == parent_of(server)


def test_a_caller_that_traces_nothing_begins_no_trace_but_a_job(sent: Any) -> None:
    for method in (GET, SUBMIT):
        with tracing.serving(method, call()):
            assert bool(tracing.trace_id()) == (method in BEGINNING)
    assert set(sent()) == {SUBMIT[1:]}


def test_who_was_not_drawn_is_carried_on_and_not_sent(sent: Any) -> None:
    with tracing.serving(GET, call(traceparent=f"00-{TRACE}-{ABOVE}-00")), tracing.span("inside"):
        assert tracing.traceparent().startswith(f"00-{TRACE}-")
        assert tracing.traceparent().endswith("-00")
    assert sent() == {}


@pytest.mark.parametrize("text", ["", "nonsense", "00-0-0-01", f"00-{TRACE}-{'0' * 16}-01", "ff" * 40])
def test_what_a_stranger_calls_a_trace_is_none(sent: Any, text: str) -> None:
    with tracing.serving(GET, call(traceparent=text)), tracing.span("inside"):
        assert tracing.trace_id() == ""
    assert sent() == {}


def test_what_is_muted_has_no_spans_and_keeps_the_name_of_its_trace(sent: Any) -> None:
    with tracing.continuing(PARENT), tracing.muted():
        with tracing.span("inside"), tracing.calling(trainer_pb2.GetJobRequest()) as carried:
            assert carried == ()
        assert tracing.trace_id() == TRACE
        assert tracing.traceparent() == ""
        with tracing.continuing(PARENT), tracing.span("heard again"):
            pass
    assert set(sent()) == {"heard again"}


def test_a_process_that_adopts_a_trace_works_in_it_in_every_thread(sent: Any) -> None:
    tracing.adopt(PARENT)

    def work() -> None:
        with tracing.span("in a thread"):
            pass

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert parent_of(sent()["in a thread"]) == ABOVE


def test_a_span_can_be_told_when_it_is_over_under_an_id_that_others_know(sent: Any) -> None:
    below = tracing.traceparent_below(PARENT, "job-1")
    known = below.split("-")[2]
    tracing.tell(PastSpan("form", below, 11.0, 12.5))
    tracing.tell(PastSpan("job", PARENT, 10.0, 20.0, {"state": "failed"}, "it failed", known))
    tracing.tell(PastSpan("of nobody", "", 1.0, 2.0))
    found = sent()
    assert set(found) == {"form", "job"}
    assert parent_of(found["form"]) == id_of(found["job"]) == known
    assert parent_of(found["job"]) == ABOVE
    assert (found["form"].start_time, found["form"].end_time) == (11_000_000_000, 12_500_000_000)
    assert found["job"].status.description == "it failed"
    assert tracing.traceparent_below("", "job-1") == ""


def test_a_trace_has_an_end_to_its_spans_but_not_to_the_job_itself(sent: Any) -> None:
    with tracing.continuing(PARENT):
        for number in range(SPANS_A_TRACE + 5):
            with tracing.span(f"span {number}"):
                pass
        with tracing.calling(trainer_pb2.GetJobRequest()) as carried:
            assert carried == (("traceparent", PARENT),)
    tracing.tell(PastSpan("job", PARENT, 1.0, 2.0, span_id="ab" * 8))
    with tracing.begin("another trace"):
        pass
    assert len(sent()) == SPANS_A_TRACE + 2


def test_log_lines_name_the_trace(sent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from peerloom.kit.logs import configure_logs, get_logger

    try:
        configure_logs("tested")
        with tracing.continuing(PARENT):
            get_logger().info("happened")
        get_logger().info("happened_elsewhere")
    finally:
        structlog.reset_defaults()
        structlog.contextvars.clear_contextvars()
    inside, outside = capsys.readouterr().err.splitlines()
    assert f'"trace_id": "{TRACE}"' in inside
    assert "trace_id" not in outside


class Stuck(SpanExporter):
    """A collector that takes what it is sent and never answers."""

    def __init__(self) -> None:
        self.is_over = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.is_over.wait()
        return SpanExportResult.FAILURE


def test_a_collector_that_hangs_holds_up_neither_work_nor_the_end() -> None:
    """More spans come than the queue has room for; the wait for the end is over after its limit."""
    stuck = Stuck()
    tracer = OtelTracer("tested", stuck, complains=False)
    before = tracing.use(tracer)
    try:
        for _ in range(6000):
            with tracing.begin("train"):
                pass
        tracer.close(0.01)
    finally:
        tracing.use(before)
        stuck.is_over.set()


class FirstAwayThenStuck(Stuck):
    """A collector that can't be reached, and then hangs."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked_again = threading.Event()
        self._answers = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._answers += 1
        if self._answers > 1:
            self.is_asked_again.set()
            return super().export(spans)
        return SpanExportResult.FAILURE


def test_nobody_waits_at_the_end_for_a_collector_that_was_away() -> None:
    """Two full batches are sent at once; the wait of an hour isn't begun, or this test would see it out."""
    exporter = FirstAwayThenStuck()
    tracer = OtelTracer("tested", exporter, complains=False)
    before = tracing.use(tracer)
    try:
        for _ in range(1100):
            with tracing.begin("train"):
                pass
        assert exporter.is_asked_again.wait(60.0)
        tracer.close(3600.0)
    finally:
        tracing.use(before)
        exporter.is_over.set()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_SDK_DISABLED": "True"}, False),
        ({"OTEL_TRACES_SAMPLER": "always_on"}, False),
    ],
)
def test_traces_are_wanted_where_a_collector_is_named(environment: dict[str, str], expected: bool) -> None:
    assert tracing_setup.is_wanted(environment) == expected


def test_a_protocol_that_is_not_spoken_is_named_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with structlog.testing.capture_logs() as logs:
        tracing_setup.start_tracing("tested")
    assert not tracing.is_on()
    [line] = logs
    assert line["event"] == "traces_off"
    assert "OTEL_EXPORTER_OTLP_PROTOCOL says 'grpc', and only http/protobuf" in line["reason"]
    assert "port 4318" in line["reason"]


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
def test_a_request_names_its_method(service: Any) -> None:
    for method in service.methods:
        path = f"/{service.full_name}/{method.name}"
        [made] = [
            getattr(file, method.input_type.name)()
            for file in FILES
            if method.input_type.name in file.DESCRIPTOR.message_types_by_name
        ]
        assert tracing.method_of(made) == path


def test_each_stream_is_known_as_short_or_as_long() -> None:
    streams = {
        f"/{service.full_name}/{method.name}"
        for service in SERVICES
        for method in service.methods
        if method.client_streaming or method.server_streaming
    }
    assert streams == UNTRACED | SHORT_STREAMS
    assert set() == UNTRACED & SHORT_STREAMS


def test_a_library_that_complains_fills_no_log() -> None:
    name = "tests.library"
    hear_library(name, "traces_not_sent")
    with structlog.testing.capture_logs() as logs:
        for number in range(3):
            logging.getLogger(f"{name}.exporter").warning("away: %d", number)
    assert logs == [{"event": "traces_not_sent", "reason": "away: 0", "log_level": "warning"}]
