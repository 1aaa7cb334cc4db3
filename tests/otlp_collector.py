"""A collector of traces: takes OTLP over HTTP, as a real one does, and keeps the spans."""

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue


@dataclass(frozen=True)
class CollectedSpan:
    """One span: `service` is the resource's name, `process` its process id; times are in nanoseconds."""

    name: str
    service: str
    process: int
    trace_id: str
    span_id: str
    parent_id: str
    begin_ns: int
    end_ns: int
    attributes: dict[str, str | int]
    error: str


class OtlpCollector:
    """Listens on loopback from its entry to its exit; `endpoint` is what exporters are told."""

    def __init__(self) -> None:
        self._spans: list[CollectedSpan] = []
        self._came = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # the library's name
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector._take(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200 if self.path == "/v1/traces" else 404)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self.endpoint = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> "OtlpCollector":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def spans(self) -> list[CollectedSpan]:
        """All that came."""
        with self._came:
            return list(self._spans)

    def wait(self, name: str, limit_s: float, trace_id: str = "") -> CollectedSpan:
        """The first span of that name, in that trace (empty: any), once it has come. Raises TimeoutError."""
        found: list[CollectedSpan] = []

        def has_come() -> bool:
            found[:] = [s for s in self._spans if s.name == name and trace_id in ("", s.trace_id)]
            return bool(found)

        with self._came:
            if not self._came.wait_for(has_come, limit_s):
                raise TimeoutError(f"no span {name!r}; there are: {sorted({s.name for s in self._spans})}")
        return found[0]

    def _take(self, request: ExportTraceServiceRequest) -> None:
        with self._came:
            for resource in request.resource_spans:
                about = _attributes(list(resource.resource.attributes))
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        self._spans.append(
                            CollectedSpan(
                                name=span.name,
                                service=str(about["service.name"]),
                                process=int(about["process.pid"]),
                                trace_id=span.trace_id.hex(),
                                span_id=span.span_id.hex(),
                                parent_id=span.parent_span_id.hex(),
                                begin_ns=span.start_time_unix_nano,
                                end_ns=span.end_time_unix_nano,
                                attributes=_attributes(list(span.attributes)),
                                error=span.status.message if span.status.code == 2 else "",
                            )
                        )
            self._came.notify_all()


def _attributes(pairs: list[KeyValue]) -> dict[str, str | int]:
    return {
        pair.key: pair.value.int_value if pair.value.HasField("int_value") else pair.value.string_value
        for pair in pairs
    }
