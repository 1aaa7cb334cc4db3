"""Traces: what is worth a span says so here. Needs no library, and does nothing before tracing was set up.

A trace begins where somebody hands work in, and everybody else continues the one that they were called in:
what a process does by itself, its heartbeats and probes, is in none.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Protocol, TypeAlias

from google.protobuf.message import Message

Attributes: TypeAlias = Mapping[str, str | int | float | bool]
Carried: TypeAlias = Sequence[tuple[str, str]]
_PACKAGE = "/peerloom.v1."
# Streams that live for hours, whose spans would be told of hours later; and calls that come by the hundred.
UNTRACED = frozenset(
    f"{_PACKAGE}{method}"
    for method in (
        "AdmissionService/WatchTrust",
        "ArtifactService/GetChunk",
        "InferenceService/PassActivations",
        "InferenceService/RunStage",
        "NodeAgentService/GetWorkerLogs",
        "NodeAgentService/OpenTunnel",
        "NodeAgentService/WatchWorkers",
        "RegistryService/Heartbeat",
        "RegistryService/WatchNodes",
        "TrainerService/GetJobLogs",
        "TrainerService/WatchJob",
        "TrainerService/WorkerSession",
    )
)
# A job's trace begins here where its user's side traces nothing.
BEGINNING = frozenset(f"{_PACKAGE}TrainerService/{method}" for method in ("SubmitJob", "ResumeJob"))


@dataclass(frozen=True)
class PastSpan:
    """A span whose beginning and end (seconds since 1970) are known afterwards.

    `parent` is the W3C traceparent that it stands under. `span_id` (16 hexadecimal digits) is what its own
    children were told already; empty: any. `error` says what went wrong; empty: nothing.
    """

    name: str
    parent: str
    begin_s: float
    end_s: float
    attributes: Attributes = field(default_factory=dict)
    error: str = ""
    span_id: str = ""


class Tracer(Protocol):
    """What keeps and sends spans; `otel_tracer` has the only one."""

    def span(self, name: str, attributes: Attributes, *, begins: bool) -> AbstractContextManager[None]:
        """See `span` and `begin`."""

    def serving(self, method: str, context: Any) -> AbstractContextManager[None]:
        """See `serving`."""

    def calling(self, method: str) -> AbstractContextManager[Carried]:
        """See `calling`."""

    def continuing(self, traceparent: str) -> AbstractContextManager[None]:
        """See `continuing`."""

    def muted(self) -> AbstractContextManager[None]:
        """See `muted`."""

    def adopt(self, traceparent: str) -> None:
        """See `adopt`."""

    def note(self, attributes: Attributes) -> None:
        """See `note`."""

    def tell(self, told: PastSpan) -> None:
        """See `tell`."""

    def traceparent(self) -> str:
        """See `traceparent`."""

    def trace_id(self) -> str:
        """See `trace_id`."""

    def close(self, limit_s: float) -> None:
        """Sends what is left, for at most `limit_s` seconds."""


_tracer: Tracer | None = None


def use(tracer: Tracer | None) -> Tracer | None:
    """Traces with this one from now on (None: not at all); returns the one before."""
    global _tracer
    before, _tracer = _tracer, tracer
    return before


def is_on() -> bool:
    """Whether this process traces."""
    return _tracer is not None


def span(name: str, **attributes: str | int | float | bool) -> AbstractContextManager[None]:
    """The block is a span of the trace that we are in, if we are in one."""
    return nullcontext() if _tracer is None else _tracer.span(name, attributes, begins=False)


def begin(name: str, **attributes: str | int | float | bool) -> AbstractContextManager[None]:
    """The block is a span, which begins a trace where we are in none."""
    return nullcontext() if _tracer is None else _tracer.span(name, attributes, begins=True)


def serving(method: str, context: Any) -> AbstractContextManager[None]:
    """The block answers a call of `method`, as gRPC writes it: a span, if that is short and traced."""
    if _tracer is None or not is_traced(method):
        return nullcontext()
    return _tracer.serving(method, context)


def calling(request: object) -> AbstractContextManager[Carried]:
    """The block calls the method that takes this request; gives the metadata that the call carries."""
    if _tracer is None or not is_traced(method := method_of(request)):
        return nullcontext(())
    return _tracer.calling(method)


def carried() -> Carried:
    """The metadata of a call that streams requests and is made in this trace."""
    return () if _tracer is None else (("traceparent", found),) if (found := _tracer.traceparent()) else ()


def carried_to(request: object) -> Carried:
    """The metadata of a call that is answered by a stream; a long one carries nothing."""
    return carried() if _tracer is not None and is_traced(method_of(request)) else ()


def continuing(traceparent: str) -> AbstractContextManager[None]:
    """The block goes on with what was begun elsewhere; with an empty `traceparent` it is in no trace."""
    return nullcontext() if _tracer is None else _tracer.continuing(traceparent)


def muted() -> AbstractContextManager[None]:
    """The block has no spans, and neither have those whom it calls; its log lines still name the trace."""
    return nullcontext() if _tracer is None else _tracer.muted()


def adopt(traceparent: str) -> None:
    """Whatever this process does in no other trace, in any thread, belongs to this one."""
    if _tracer is not None:
        _tracer.adopt(traceparent)


def note(**attributes: str | int | float | bool) -> None:
    """Adds to the span that we are in."""
    if _tracer is not None:
        _tracer.note(attributes)


def tell(told: PastSpan) -> None:
    """Sends a span that is over."""
    if _tracer is not None:
        _tracer.tell(told)


def traceparent() -> str:
    """W3C traceparent of the span that we are in, for whoever goes on with it elsewhere; empty: in none."""
    return "" if _tracer is None else _tracer.traceparent()


def trace_id() -> str:
    """Id of the trace that we are in, 32 hexadecimal digits; empty: we are in none."""
    return "" if _tracer is None else _tracer.trace_id()


def trace_id_in(traceparent: str) -> str:
    """The trace's id in a traceparent; empty where that is."""
    return traceparent.split("-")[1] if traceparent else ""


def traceparent_below(parent: str, what: str) -> str:
    """The traceparent of `what`, a span below `parent` whose id is known before it has ended."""
    if not parent:
        return ""
    version, trace, _, flags = parent.split("-")
    return f"{version}-{trace}-{span_id_below(parent, what)}-{flags}"


def span_id_below(parent: str, what: str) -> str:
    """Id of that span, 16 hexadecimal digits."""
    return sha256(f"{parent} {what}".encode()).hexdigest()[:16]


def is_traced(method: str) -> bool:
    """Whether calls of a method, as gRPC writes it, may have spans: ours, but for the long and the many."""
    return method.startswith(_PACKAGE) and method not in UNTRACED


def method_of(request: object) -> str:
    """The method that takes this request, as gRPC writes it: the schema names it so; empty for others."""
    if not isinstance(request, Message):
        return ""
    name = request.DESCRIPTOR.name.removesuffix("Request")
    for service in request.DESCRIPTOR.file.services_by_name.values():
        if name in service.methods_by_name:
            return f"/{service.full_name}/{name}"
    return ""
