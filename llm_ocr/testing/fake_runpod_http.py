"""The HTTP of the fake RunPod: JSON in, JSON out, refusals with a status."""

import contextlib
import json
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Refusal(Exception):
    """A refused request. The job API answers with `error`, the management API with an RFC 9457 problem."""

    def __init__(self, status: int, message: str, *, problem: bool = False) -> None:
        super().__init__(message)
        self.status = status
        known = {"title": HTTPStatus(status).phrase, "status": status, "detail": message} if problem else None
        self.answer = known or {"error": message}


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    answer: Callable[["Handler"], Any]
    body: bytes  # what was sent with it

    def do_GET(self) -> None:
        self._reply()

    def do_POST(self) -> None:
        self._reply()

    def _reply(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            found, status = type(self).answer(self), 200
        except Refusal as refusal:
            found, status = refusal.answer, refusal.status
        if found is None:
            status = 204
        data = found if isinstance(found, bytes) else b"" if found is None else json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        with contextlib.suppress(ConnectionError):  # who asked may be gone by now
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Tests want to be read."""


class LoopbackServer:
    """`answer` gets each request, in a thread of its own."""

    def __init__(self, answer: Callable[[Handler], Any]) -> None:
        kind = type("BoundHandler", (Handler,), {"answer": staticmethod(answer)})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
