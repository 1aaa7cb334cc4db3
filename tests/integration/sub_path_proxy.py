"""A reverse proxy that shows what listens at one address below a path, as nginx or Caddy would."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LIMIT_S = 120.0
HOP_BY_HOP = frozenset({"connection", "transfer-encoding", "server", "date"})


@contextmanager
def sub_path_proxy(target: str, path: str, *, strips: bool) -> Iterator[str]:
    """Passes requests below `path` on to `target`, host:port, with that path or without; the proxy's URL."""

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the library's name
            self._pass_on(None)

        def do_POST(self) -> None:  # the library's name
            self._pass_on(self.rfile.read(int(self.headers["Content-Length"])))

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

        def _pass_on(self, body: bytes | None) -> None:
            if not self.path.startswith(path):
                self.send_error(404)
                return
            asked = self.path.removeprefix(path) if strips else self.path
            with closing(HTTPConnection(target, timeout=LIMIT_S)) as upstream:
                upstream.request(self.command, asked, body, dict(self.headers))
                with suppress(ConnectionError), upstream.getresponse() as answer:
                    self._answer(answer)

        def _answer(self, answer: HTTPResponse) -> None:
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            self.end_headers()
            while part := answer.read1(1 << 16):
                self.wfile.write(part)
                self.wfile.flush()

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        thread = threading.Thread(target=server.serve_forever, name="proxy")
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}{path}"
        finally:
            server.shutdown()
            thread.join(LIMIT_S)
