"""Counts the calls that a server answers, for its interceptor."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, ClassVar

import grpc
from grpc import aio

from peerloom.kit.metrics import Metric, MetricKind, Reading, Tally
from peerloom.kit.roles import MAY_CALL

DURATION_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
UNKNOWN_METHOD = "other"
CALLS = Metric(
    "peerloom_grpc_calls_total",
    MetricKind.COUNTER,
    "Calls that have ended, by method and status code; CANCELLED: the caller went, or its deadline passed.",
    ("method", "code"),
)
DURATION = Metric(
    "peerloom_grpc_call_duration_seconds",
    MetricKind.HISTOGRAM,
    "How long calls with one answer took.",
    ("method",),
)
_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}
STREAMS = Metric(
    "peerloom_grpc_streams_open",
    MetricKind.GAUGE,
    "Calls with a stream of answers that are open now.",
    ("method",),
)


class CallMetrics:
    """Calls by method and status, how long those with one answer took, and open streams.

    How long a stream was open says nothing of latency, so it isn't told. A stream costs nothing while
    messages pass.
    """

    metrics: ClassVar[tuple[Metric, ...]] = (CALLS, DURATION, STREAMS)

    def __init__(self, monotonic_s: Callable[[], float] = time.perf_counter) -> None:
        self._monotonic_s = monotonic_s
        self._calls: Counter[tuple[str, ...]] = Counter()
        self._took_s: dict[tuple[str, ...], Tally] = {}
        self._open: Counter[tuple[str, ...]] = Counter()

    async def collect(self) -> Sequence[Reading]:
        """All three as of now."""
        return [Reading(CALLS, self._calls), Reading(DURATION, self._took_s), Reading(STREAMS, self._open)]

    def ended(self, method: str, code: str) -> None:
        """A call of `method`, as gRPC writes it, has ended with this status."""
        self._calls[label_of(method), code] += 1

    def unary(self, method: str, context: Any) -> AbstractContextManager[None]:
        """The block answers a call with one answer."""
        return _UnaryCall(self, method, context)

    def stream(self, method: str, context: Any) -> AbstractContextManager[None]:
        """The block answers a call with a stream."""
        return _StreamCall(self, method, context)

    def now_s(self) -> float:
        """The time that calls are measured by, in seconds."""
        return self._monotonic_s()

    def took(self, method: str, seconds: float) -> None:
        """A call with one answer took so long."""
        label = (label_of(method),)
        if label not in self._took_s:
            self._took_s[label] = Tally(DURATION_BOUNDS_S)
        self._took_s[label].add(seconds)

    def opened(self, method: str, change: int) -> None:
        """So many streams more are open, or with -1 one less."""
        self._open[(label_of(method),)] += change


class _Call:
    def __init__(self, told: CallMetrics, method: str, context: Any) -> None:
        self._told, self._method, self._context = told, method, context

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._told.ended(self._method, code_of(kind, self._context))


class _UnaryCall(_Call):
    def __enter__(self) -> None:
        self._begin_s = self._told.now_s()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._told.took(self._method, self._told.now_s() - self._begin_s)
        super().__exit__(kind, error, trace)


class _StreamCall(_Call):
    def __enter__(self) -> None:
        self._told.opened(self._method, 1)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._told.opened(self._method, -1)
        super().__exit__(kind, error, trace)


def label_of(method: str) -> str:
    """A method as the label says it; one that isn't ours, which a stranger may invent, is "other"."""
    return method.removeprefix("/") if method in MAY_CALL else UNKNOWN_METHOD


def code_of(kind: type[BaseException] | None, context: Any) -> str:
    """The status that a call ends with whose answering raised `kind` (None: nothing)."""
    if kind is not None and issubclass(kind, asyncio.CancelledError | GeneratorExit):
        return "CANCELLED"
    if kind is not None and not issubclass(kind, aio.AbortError):
        return "UNKNOWN"
    # gRPC's contexts tell the status that was set, or its number; None or 0 where none was.
    code = context.code() or grpc.StatusCode.OK
    return code.name if isinstance(code, grpc.StatusCode) else _NAMES[code]
