"""A stand-in for Google Cloud Storage: a real server on loopback that honours preconditions, with faults on demand.

It speaks what the clients use of the JSON API v1: buckets; objects with generations; uploads by media, multipart and
resumable session; ranges; listings in pages with prefix, delimiter and offsets; compose, rewrite and copy. Everything
is in memory. Run it with `python -m llm_ocr.testing.fake_gcs --bucket NAME`, which prints its URL, and set
STORAGE_EMULATOR_HOST to that. In tests: `with running("bucket") as gcs: ...`.

Its own paths: POST /fake/faults adds a fault (the fields of `fake_gcs_faults.Fault`), GET lists them, DELETE clears
them; GET /fake/requests counts what was asked for, DELETE begins anew; POST /token is an OAuth endpoint.
"""

import argparse
import contextlib
import io
import json
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from llm_ocr.testing.fake_gcs_faults import Fault, Faults, How, When
from llm_ocr.testing.fake_gcs_objects import Objects, Refused
from llm_ocr.testing.fake_gcs_routes import Answer, Api, Request, Route, error

_HOST = "127.0.0.1"

#: Connections that may wait to be accepted; with the 5 of the standard library, 24 clients at once are turned away.
_BACKLOG = 256


class FakeGcs:
    """The server. `objects` and `faults` may be used directly by a test in the same process.

    With `token`, requests without `Authorization: Bearer <token>` are refused with 401.
    """

    def __init__(self, *, port: int = 0, one_write_a_second: bool = False, token: str = "") -> None:
        self.objects = Objects(one_write_a_second=one_write_a_second)
        self.faults = Faults()
        self.token = token
        self._api = Api(self.objects)
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._server = _Server((_HOST, port), self)

    @property
    def url(self) -> str:
        """Without a path: what STORAGE_EMULATOR_HOST takes."""
        return f"http://{_HOST}:{self._server.server_address[1]}"

    @property
    def requests(self) -> dict[str, int]:
        """How many requests of each operation came, those that were made to fail among them."""
        with self._lock:
            return dict(self._counts)

    def serve(self) -> None:
        """Answer requests until `stop`."""
        self._server.serve_forever(poll_interval=0.05)

    def stop(self) -> None:
        """Close the port and every connection. `serve` must be running."""
        self._server.shutdown()
        self.close()

    def close(self) -> None:
        """Close what is open; for a server that does not serve."""
        self._server.server_close()
        self._server.close_connections()

    def answer(self, request: Request) -> tuple[Answer | None, bool]:
        """The answer (None: the connection is closed without one), and whether it is cut in its middle."""
        if request.path.startswith("/fake/"):
            return self._own(request), False
        try:
            route = self._token_route() if request.path == "/token" else self._api.route(request)
        except Refused as refused:
            return error(refused.status, refused.reason, refused.message), False
        with self._lock:
            self._counts[route.operation] += 1
        return self._with_fault(request, route, self.faults.take(route.operation, route.name))

    def _with_fault(self, request: Request, route: Route, fault: Fault | None) -> tuple[Answer | None, bool]:
        if fault is None:
            return self._act(request, route, False), False
        if fault.how is How.DELAY:
            time.sleep(fault.seconds)
        instead = {How.STATUS: _faulty(fault, route, request), How.DROP: None}
        if fault.how in instead and fault.when is When.BEFORE:
            return instead[fault.how], False
        answer = self._act(request, route, fault.how is How.SHORT)
        if fault.how in instead:
            return instead[fault.how], False
        return answer, fault.how is How.CUT

    def _act(self, request: Request, route: Route, short: bool) -> Answer:
        media = route.operation == "read"
        given = request.headers.get("authorization", "")
        if self.token and route.operation != "token" and given != f"Bearer {self.token}":
            caller = "Invalid Credentials" if given else "Anonymous caller does not have access to the bucket."
            return error(401, "authError" if given else "required", caller, media=media)
        try:
            return route.act(short)
        except Refused as refused:
            return error(refused.status, refused.reason, refused.message, media=media)

    def _token_route(self) -> Route:
        token = {"access_token": self.token or "fake", "expires_in": 3600, "token_type": "Bearer"}
        return Route("token", "", lambda _: Answer.json(token))

    def _own(self, request: Request) -> Answer:
        what = (request.method, request.path)
        if what == ("POST", "/fake/faults"):
            try:
                self.faults.add(Fault.of(request.json()))
            except (ValueError, Refused) as problem:
                return error(400, "invalid", str(problem))
        elif what == ("DELETE", "/fake/faults"):
            self.faults.clear()
        elif what == ("DELETE", "/fake/requests"):
            with self._lock:
                self._counts.clear()
        elif what == ("GET", "/fake/requests"):
            return Answer.json(self.requests)
        elif what != ("GET", "/fake/faults"):
            return error(404, "notFound", f"No route {request.method} {request.path}")
        return Answer.json(self.faults.listed())


def _faulty(fault: Fault, route: Route, request: Request) -> Answer:
    if route.operation == "token":
        return Answer.json({"error": fault.reason, "error_description": fault.message}, fault.status)
    return error(fault.status, fault.reason, fault.message, media=request.query.get("alt") == "media")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = io.DEFAULT_BUFFER_SIZE  # head and body go out together

    server: "_Server"

    def setup(self) -> None:
        super().setup()
        self.server.opened(self.connection)

    def finish(self) -> None:
        self.server.closed(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # a client that went away needs no answer
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the requests are counted."""

    def _do(self) -> None:
        parts = urlsplit(self.path)
        request = Request(
            self.command,
            parts.path,
            dict(parse_qsl(parts.query, keep_blank_values=True)),
            {name.lower(): value for name, value in self.headers.items()},
            self.rfile.read(int(self.headers.get("Content-Length") or 0)),
        )
        answer, cut = self.server.fake.answer(request)
        if answer is None:
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body[: len(answer.body) // 2] if cut else answer.body)
        self.wfile.flush()
        self.close_connection = self.close_connection or cut

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _do


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = _BACKLOG

    def __init__(self, address: tuple[str, int], fake: FakeGcs) -> None:
        self.fake = fake
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def opened(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.add(connection)

    def closed(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)

    def close_connections(self) -> None:
        """End the connections that clients keep, so that a server that was stopped answers nobody."""
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def running(*buckets: str, port: int = 0, one_write_a_second: bool = False, token: str = "") -> Iterator[FakeGcs]:
    """A server with these buckets, in a thread of this process; gone at the end."""
    gcs = FakeGcs(port=port, one_write_a_second=one_write_a_second, token=token)
    thread = threading.Thread(target=gcs.serve, name="fake-gcs", daemon=True)
    thread.start()
    try:
        for bucket in buckets:
            gcs.objects.make_bucket(bucket)
        yield gcs
    finally:
        gcs.stop()
        thread.join()


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until interrupted or killed; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m llm_ocr.testing.fake_gcs", description=__doc__.split("\n\n")[0])
    parser.add_argument("--port", type=int, default=0, help="0 (default): one that is free; it is printed")
    parser.add_argument("--bucket", action="append", default=[], help="a bucket to begin with; may be repeated")
    parser.add_argument("--one-write-a-second", action="store_true", help="429 for more writes to one object")
    parser.add_argument("--token", default="", help="refuse requests that do not carry it")
    parser.add_argument("--fault", action="append", default=[], help="a fault to begin with, as JSON; may be repeated")
    options = parser.parse_args(argv)
    gcs = FakeGcs(port=options.port, one_write_a_second=options.one_write_a_second, token=options.token)
    for bucket in options.bucket:
        gcs.objects.make_bucket(bucket)
    for fault in options.fault:
        gcs.faults.add(Fault.of(json.loads(fault)))
    sys.stdout.write(f"{gcs.url}\n")
    sys.stdout.flush()
    with contextlib.suppress(KeyboardInterrupt):
        gcs.serve()
    gcs.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
