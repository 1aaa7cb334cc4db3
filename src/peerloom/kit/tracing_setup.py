"""Sets up traces in a process whose environment names a collector; else nothing of it is even imported."""

import atexit
import os
from collections.abc import Mapping
from contextlib import suppress

from peerloom.kit import tracing
from peerloom.kit.logs import get_logger

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
SPOKEN = "http/protobuf"
LAST_SPANS_LIMIT_S = 1.0
_log = get_logger()


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Whether traces were asked for, by OpenTelemetry's own variables."""
    disabled = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return not disabled and any(environment.get(name) for name in ENDPOINTS)


def start_tracing(service: str) -> None:
    """Traces from now on as `service`, if the environment asks for it.

    Where that can't be done the log says why, and nothing else changes: the variables are often set for all
    programs of a machine.
    """
    if is_wanted(os.environ) and (why_not := _start(service, complains=True)):
        _log.warning("traces_off", reason=why_not)


def start_client_tracing() -> None:
    """The same for a program that uses the SDK: what it prints is its own, so nothing is said."""
    if not tracing.is_on() and is_wanted(os.environ):
        _start("client", complains=False)


def _start(service: str, *, complains: bool) -> str:
    if foreign := [os.environ[name] for name in PROTOCOLS if os.environ.get(name, SPOKEN) != SPOKEN]:
        return (
            f"{PROTOCOLS[0]} says {foreign[0]!r}, and only {SPOKEN} is spoken here, to which "
            "collectors listen at port 4318: unset it, and name that port"
        )
    try:
        from peerloom.kit.otel_tracer import OtelTracer
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        return "OpenTelemetry isn't installed here; install it with: pip install 'peerloom[trace]'"
    tracing.use(OtelTracer(service, complains=complains))
    atexit.register(end_tracing)
    return ""


def preload_tracing() -> None:
    """Imports what `start_tracing` would, for processes that are forked from this one; opens nothing."""
    if is_wanted(os.environ):
        with suppress(ModuleNotFoundError):
            import peerloom.kit.otel_tracer  # noqa: F401  # imported for its cost, not its names


def end_tracing() -> None:
    """Sends the last spans, if there are any, for at most LAST_SPANS_LIMIT_S, and traces no more."""
    tracer = tracing.use(None)
    if tracer is not None:
        tracer.close(LAST_SPANS_LIMIT_S)
