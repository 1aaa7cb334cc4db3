"""Logs: events named as past facts, with what they are about as fields; JSON when not on a terminal."""

import logging
import sys

import structlog

from peerloom.errors import UnavailableError
from peerloom.kit import tracing
from peerloom.kit.printable import escaped


def configure_logs(service: str, level: str = "info") -> None:
    """Sends all logs of this process to standard error, each bound to `service`."""
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _name_trace,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _leave_out_place,
            structlog.processors.format_exc_info,
            _escape,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    structlog.contextvars.bind_contextvars(service=service)


def _name_trace(
    _logger: object, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Whoever looks at a trace finds what was logged in it."""
    if trace_id := tracing.trace_id():
        event["trace_id"] = trace_id
    return event


def _leave_out_place(
    _logger: object, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """What isn't there just now, as a lease that another took, is no fault of ours: words tell it."""
    if isinstance(event.get("exc_info"), UnavailableError):
        del event["exc_info"]
    return event


def _escape(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """On a terminal, what others sent must not move its cursor or set its title."""
    return {key: escaped(value, "\t\n") if isinstance(value, str) else value for key, value in event.items()}


def get_logger(**bound: object) -> structlog.typing.FilteringBoundLogger:
    """A logger whose events all carry the fields `bound`."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(**bound)
    return logger
