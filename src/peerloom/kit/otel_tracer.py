"""Keeps spans and sends them to a collector, by OTLP over HTTP. The only module that imports OpenTelemetry.

It is set up by OpenTelemetry's own environment variables. Spans are sent by a thread of the library's, from a
queue that forgets the newest when it is full: a collector that is slow or away costs nobody anything else.
"""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from importlib.metadata import version
from typing import Any

import grpc
from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from peerloom.errors import PeerloomError
from peerloom.kit.call_metrics import code_of
from peerloom.kit.library_logs import hear_library
from peerloom.kit.tracing import BEGINNING, Attributes, Carried, PastSpan

SPANS_A_TRACE = 1000  # of one process: what a job of weeks goes on to do is in its events
TRACES_COUNTED = 1000
_MUTED = otel_context.create_key("peerloom-muted")
_NUMBERS: dict[str, int] = {code.name: code.value[0] for code in grpc.StatusCode}
_propagator = TraceContextTextMapPropagator()
_next_span_id: ContextVar[int] = ContextVar("next_span_id", default=0)


class OtelTracer:
    """One process's spans, as those of `service`; `exporter` sends them (None: to the collector).

    If it `complains` the log says when they can't be sent.
    """

    def __init__(self, service: str, exporter: SpanExporter | None = None, *, complains: bool = True) -> None:
        hear_library("opentelemetry", "traces_not_sent" if complains else "")
        # A provider of our own: what an application that uses the SDK, or a job's code, set up stays theirs.
        self._provider = TracerProvider(
            resource=_resource(service), id_generator=_Ids(), shutdown_on_exit=False
        )
        self._sending = _Sending(exporter or OTLPSpanExporter())
        self._provider.add_span_processor(BatchSpanProcessor(self._sending))
        self._tracer = self._provider.get_tracer("peerloom", version("peerloom"))
        self._adopted: Context | None = None
        self._counted: OrderedDict[int, int] = OrderedDict()

    @contextmanager
    def span(self, name: str, attributes: Attributes, *, begins: bool) -> Iterator[None]:
        """See `tracing.span` and `tracing.begin`."""
        here = self._here()
        if (
            otel_context.get_value(_MUTED, here)
            or not (begins or _is_in_trace(here))
            or not self._has_room(here)
        ):
            yield
            return
        with self._begun(name, here, SpanKind.INTERNAL, attributes) as started:
            try:
                yield
            except Exception as error:
                started.set_status(Status(StatusCode.ERROR, _told(error)))
                raise

    def _begun(
        self, name: str, here: Context, kind: SpanKind, attributes: Attributes
    ) -> AbstractContextManager[Span]:
        # How a span ended is said in our own words.
        return self._tracer.start_as_current_span(
            name, here, kind, dict(attributes), record_exception=False, set_status_on_exception=False
        )

    @contextmanager
    def serving(self, method: str, context: Any) -> Iterator[None]:
        """See `tracing.serving`."""
        told = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        here = _propagator.extract(told, Context())
        if not (_is_in_trace(here) or method in BEGINNING) or not self._has_room(here):
            yield
            return
        with self._begun(method[1:], here, SpanKind.SERVER, _rpc(method)) as started:
            kind: type[BaseException] | None = None
            try:
                yield
            except BaseException as error:
                kind = type(error)
                raise
            finally:
                _end_with(started, code_of(kind, context), context.details() or "")

    @contextmanager
    def calling(self, method: str) -> Iterator[Carried]:
        """See `tracing.calling`."""
        here = self._here()
        if otel_context.get_value(_MUTED, here) or not _is_in_trace(here):
            yield ()
            return
        if not self._has_room(here):
            yield _carried(here)
            return
        with self._begun(method[1:], here, SpanKind.CLIENT, _rpc(method)) as started:
            try:
                yield _carried(otel_context.get_current())
            except PeerloomError as error:
                _end_with(started, error.status, error.message)
                raise
            except BaseException:
                _end_with(started, "CANCELLED", "")
                raise
            _end_with(started, "OK", "")

    @contextmanager
    def continuing(self, traceparent: str) -> Iterator[None]:
        """See `tracing.continuing`."""
        token = otel_context.attach(_context_of(traceparent))
        try:
            yield
        finally:
            otel_context.detach(token)

    @contextmanager
    def muted(self) -> Iterator[None]:
        """See `tracing.muted`."""
        token = otel_context.attach(otel_context.set_value(_MUTED, True, self._here()))
        try:
            yield
        finally:
            otel_context.detach(token)

    def adopt(self, traceparent: str) -> None:
        """See `tracing.adopt`."""
        self._adopted = _context_of(traceparent) if traceparent else None

    def note(self, attributes: Attributes) -> None:
        """See `tracing.note`."""
        get_current_span().set_attributes(dict(attributes))

    def tell(self, told: PastSpan) -> None:
        """See `tracing.tell`."""
        here = _context_of(told.parent)
        # One whose id was told to others must come: they stand below it.
        if not _is_in_trace(here) or not (told.span_id or self._has_room(here)):
            return
        with _numbered(int(told.span_id, 16) if told.span_id else 0):
            past = self._tracer.start_span(
                told.name, here, attributes=dict(told.attributes), start_time=_ns(told.begin_s)
            )
        if told.error:
            past.set_status(Status(StatusCode.ERROR, told.error))
        past.end(_ns(max(told.begin_s, told.end_s)))

    def traceparent(self) -> str:
        """See `tracing.traceparent`."""
        if otel_context.get_value(_MUTED, self._here()):
            return ""
        return dict(_carried(self._here())).get("traceparent", "")

    def trace_id(self) -> str:
        """See `tracing.trace_id`."""
        context = get_current_span(self._here()).get_span_context()
        return f"{context.trace_id:032x}" if context.is_valid else ""

    def close(self, limit_s: float) -> None:
        """Sends what is left, for at most `limit_s` seconds; not where the collector was away just now."""
        if self._sending.is_vain(limit_s):
            return
        # Its own shutdown waits for 30 s, which a collector that is away isn't worth.
        sending = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        sending.start()
        sending.join(limit_s)

    def _here(self) -> Context:
        here = otel_context.get_current()
        return self._adopted if self._adopted is not None and not _is_in_trace(here) else here

    def _has_room(self, here: Context) -> bool:
        """Counts one more span of the trace that `here` is in; False when it has had its share."""
        trace = get_current_span(here).get_span_context().trace_id
        count = self._counted[trace] = self._counted.get(trace, 0) + 1
        self._counted.move_to_end(trace)
        if len(self._counted) > TRACES_COUNTED:
            self._counted.popitem(last=False)
        return not trace or count <= SPANS_A_TRACE


class _Sending(SpanExporter):
    """Knows how the collector fares: nobody waits at the end for one that is away."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._begun_s = 0.0
        self._is_away = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._begun_s = time.monotonic()
        result = self._exporter.export(spans)
        self._begun_s, self._is_away = 0.0, result is not SpanExportResult.SUCCESS
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def is_vain(self, limit_s: float) -> bool:
        """Whether the last spans couldn't be sent, or are being sent for longer than that."""
        return self._is_away or 0.0 < self._begun_s < time.monotonic() - limit_s


class _Ids(RandomIdGenerator):
    """Random ids, but for a span whose id was told to others before it was over."""

    def generate_span_id(self) -> int:
        return _next_span_id.get() or super().generate_span_id()


@contextmanager
def _numbered(span_id: int) -> Iterator[None]:
    token = _next_span_id.set(span_id)
    try:
        yield
    finally:
        _next_span_id.reset(token)


def _resource(service: str) -> Resource:
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": f"peerloom-{service}"}
    return Resource.create(
        {
            **named,
            "service.namespace": "peerloom",
            "service.version": version("peerloom"),
            "process.pid": os.getpid(),
        }
    )


def _context_of(traceparent: str) -> Context:
    return _propagator.extract({"traceparent": traceparent}, Context()) if traceparent else Context()


def _carried(here: Context) -> Carried:
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, here)
    return tuple(carrier.items())


def _is_in_trace(here: Context) -> bool:
    return get_current_span(here).get_span_context().is_valid


def _rpc(method: str) -> dict[str, str]:
    service, _, name = method[1:].partition("/")
    return {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}


def _end_with(ended: Span, code: str, message: str) -> None:
    ended.set_attribute("rpc.grpc.status_code", _NUMBERS.get(code, 2))
    if code not in ("OK", "CANCELLED"):  # who asked needs no answer any more: nothing went wrong
        ended.set_status(Status(StatusCode.ERROR, f"{code}: {message}" if message else code))


def _told(error: Exception) -> str:
    return error.message if isinstance(error, PeerloomError) else f"{type(error).__name__}: {error}"


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
