"""A stand-in for Google Cloud Run: a real server on loopback whose tasks are subprocesses that really run.

It speaks what launching uses of these REST APIs: Cloud Run v2 (jobs, runs with overrides, tasks, operations),
Secret Manager (a version's state), Cloud Logging (entries), Cloud Build (operations). Google's clients talk to it with
`client_options={"api_endpoint": url}`, `transport="rest"` and anonymous credentials.

Run it with `python -m llm_ocr.testing.fake_run`, which prints its URL: what `--platform-endpoint` takes. In tests:
`with running(environment={...}) as run: ...`.
"""

import argparse
import contextlib
import json
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from llm_ocr.testing.fake_run_api import Api
from llm_ocr.testing.fake_run_rules import Account, Json, Refused
from llm_ocr.testing.fake_run_tasks import Execution

_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Fault:
    """An answer instead of the right one, to requests of this method whose path holds `path`; `count` times."""

    method: str
    path: str
    code: int
    status: str
    message: str
    count: int = 1


class FakeRun:
    """The server. `environment` is what every container has besides the job's own: what its account reaches.

    `hurry`: a time limit of N seconds ends after N * `hurry`. `start_failures`: so many tasks end before their command
    starts. `requests` are those that came: method, path, query, body.
    """

    def __init__(
        self, *, port: int = 0, environment: Mapping[str, str] | None = None, hurry: float = 1.0, grace: float = 10.0
    ) -> None:
        self.account = Account()
        self.environment = dict(environment or {})
        self.hurry, self.grace = hurry, grace
        self.start_failures = 0
        self.requests: list[tuple[str, str, Mapping[str, str], Json]] = []
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self.api = Api(self.account, self._begin)
        self._server = _Server((_HOST, port), self)

    @property
    def url(self) -> str:
        """What `--platform-endpoint` takes."""
        return f"http://{_HOST}:{self._server.server_address[1]}"

    @property
    def executions(self) -> list[Execution]:
        """All runs, in the order in which they were asked for."""
        return list(self.api.executions.values())

    def refuse(self, fault: Fault) -> None:
        """Answer so, from now on."""
        with self._lock:
            self._faults.extend([fault] * fault.count)

    def serve(self) -> None:
        """Answer requests until `stop`."""
        self._server.serve_forever(poll_interval=0.05)

    def stop(self) -> None:
        """Close the port; `serve` must be running."""
        self._server.shutdown()
        self.close()

    def close(self) -> None:
        """Close what is open and end every container."""
        self._server.server_close()
        for execution in self.executions:
            execution.remove()

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Json) -> tuple[int, Json]:
        """HTTP status and body."""
        with self._lock:
            self.requests.append((method, path, query, body))
            fault = next((one for one in self._faults if one.method == method and one.path in path), None)
            if fault is not None:
                self._faults.remove(fault)
        try:
            if fault is not None:
                raise Refused(fault.code, fault.status, fault.message)
            return 200, self.api.answer(method, path, query, body)
        except Refused as refused:
            return refused.code, refused.json()

    def _begin(self, name: str, template: Json) -> Execution:
        return Execution(
            name,
            template,
            self.account.secrets,
            self.environment,
            hurry=self.hurry,
            grace=self.grace,
            refuse_start=self._refuse_start,
        )

    def _refuse_start(self) -> str:
        with self._lock:
            if self.start_failures <= 0:
                return ""
            self.start_failures -= 1
        return "The container failed to start."


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    server: "_Server"

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # a client that went away needs no answer
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the requests are kept."""

    def _do(self) -> None:
        parts = urlsplit(self.path)
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        code, answer = self.server.fake.answer(self.command, unquote(parts.path), query, body)
        data = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = do_DELETE = _do


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], fake: FakeRun) -> None:
        self.fake = fake
        super().__init__(address, _Handler)


@contextlib.contextmanager
def running(
    *, port: int = 0, environment: Mapping[str, str] | None = None, hurry: float = 1.0, grace: float = 10.0
) -> Iterator[FakeRun]:
    """A server in a thread of this process; it and all containers are gone at the end."""
    run = FakeRun(port=port, environment=environment, hurry=hurry, grace=grace)
    thread = threading.Thread(target=run.serve, name="fake-run", daemon=True)
    thread.start()
    try:
        yield run
    finally:
        run.stop()
        thread.join()


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until interrupted or killed; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m llm_ocr.testing.fake_run", description=__doc__.split("\n\n")[0])
    parser.add_argument("--port", type=int, default=0, help="0 (default): one that is free; it is printed")
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="of every container; may be repeated"
    )
    parser.add_argument("--secret", action="append", default=[], metavar="NAME=VALUE", help="may be repeated")
    options = parser.parse_args(argv)
    run = FakeRun(port=options.port, environment=dict(one.split("=", 1) for one in options.env))
    run.account.secrets.update(one.split("=", 1) for one in options.secret)
    sys.stdout.write(f"{run.url}\n")
    sys.stdout.flush()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with contextlib.suppress(KeyboardInterrupt):
            run.serve()
    finally:
        run.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
