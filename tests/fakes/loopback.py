"""HTTP servers of fakes: one server on loopback for each fake, with a thread per connection."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

HOST = "127.0.0.1"

FakeT = TypeVar("FakeT", bound="LoopbackFake")


class Handler(BaseHTTPRequestHandler):
    """Requests of clients. A subclass implements `reply` and answers with `send`."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # a disconnected client needs no answer
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing: the fakes record their requests."""

    def reply(self) -> None:
        """Answer the request."""
        raise NotImplementedError

    def body(self) -> bytes:
        """Return the body of the request."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def json_request(self) -> tuple[str, str, dict[str, str], Any]:
        """Return method, path, query, and body."""
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        return self.command, unquote(parts.path), query, json.loads(self.body() or b"{}")

    def send_json(self, status: int, answer: Any) -> None:
        """Send an answer."""
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        self.reply()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET


class Server(ThreadingHTTPServer, Generic[FakeT]):
    """Server of a fake."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, handler: type[Handler], fake: FakeT) -> None:
        self.fake = fake
        super().__init__((HOST, 0), handler)


class LoopbackFake:
    """Fake with a server, which a subclass sets."""

    _server: Server[Any]

    @property
    def url(self) -> str:
        """Return the URL without a path."""
        return f"http://{HOST}:{self._server.server_address[1]}"

    def serve(self) -> None:
        """Answer requests until `stop`."""
        self._server.serve_forever(poll_interval=0.05)

    def stop(self) -> None:
        """Close the port; `serve` must be running."""
        self._server.shutdown()
        self.close()

    def close(self) -> None:
        """Close all sockets of a server that does not serve."""
        self._server.server_close()


@contextlib.contextmanager
def served(fake: FakeT) -> Iterator[FakeT]:
    """Serve in a thread of this process; the server ends with the block."""
    thread = threading.Thread(target=fake.serve, name=type(fake).__name__, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        fake.stop()
        thread.join()
