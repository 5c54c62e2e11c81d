"""Stores on moto's S3 server, which runs in this process, and a proxy before it that loses and spoils requests."""

import contextlib
import http.client
import os
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import store_servers
from store_servers import AWS, moto_url

from llm_ocr.storage import StoreOptions
from llm_ocr.storage.s3 import S3Store
from llm_ocr.storage.s3.client import Limits, Place

#: More than two pages of its lists.
MANY = 210

#: The user of AWS, who reaches the server without a proxy.
ENVIRONMENT = {**AWS, "NO_PROXY": "127.0.0.1"}

#: Short waits, so that a test of a service that stays away is quick.
QUICK_RETRIES = Limits(retries=1, connect_timeout=5, read_timeout=5)


@contextlib.contextmanager
def aws_environment() -> Iterator[None]:
    """The environment with the credentials of the tests and no other setting of AWS."""
    with store_servers.aws_environment(**ENVIRONMENT):
        yield


@cache
def raw() -> Any:
    """A client of the server that no store made."""
    import boto3

    with aws_environment():
        return boto3.client("s3", endpoint_url=moto_url(), region_name="us-east-1")


def new_place(prefix: str = "runs/one") -> Place:
    """A prefix in a new, empty bucket."""
    bucket = f"bucket-{secrets.token_hex(8)}"  # moto keeps one state a process, whoever imports this file
    raw().create_bucket(Bucket=bucket)
    return Place(bucket, prefix)


def store_at(place: Place, endpoint: str | None = None, limits: Limits = QUICK_RETRIES, **options: str) -> S3Store:
    """A store that asks moto's server, or what is before it."""
    return S3Store(place, StoreOptions(endpoint=endpoint or moto_url(), **options), limits)


@contextlib.contextmanager
def make_store(tmp_path: Path) -> Iterator[S3Store]:
    """An empty store; files above 5 MiB go up in parts, and lists come in pages of 100 (S3's have 1,000)."""
    with aws_environment(), mock.patch.dict(os.environ, MOTO_S3_DEFAULT_MAX_KEYS="100"):
        yield store_at(new_place(), limits=Limits(multipart=5 << 20))


@dataclass(slots=True)
class Fault:
    """What happens to the next `times` requests of a method whose path holds `containing`.

    `status` and `code`: this answer instead; `lost`: no answer, "before" or "after" the server has done it; `torn`: the
    first half of the answer's body; `wait`: seconds before anything else. `met`: it has happened.
    """

    method: str = ""
    containing: str = ""
    times: int = 1
    status: int = 0
    code: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    more: str = ""
    lost: str = ""
    torn: bool = False
    wait: float = 0.0
    met: bool = False


class Proxy:
    """Passes requests on to moto's server, without the request headers `hidden` and the leading path `base`."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.hidden: set[str] = set()
        self.base = ""
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.before = lambda method, path: None
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.proxy = self
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}{self.base}"

    def add(self, **fault: Any) -> None:
        self.faults.append(Fault(**fault))

    def methods(self) -> list[str]:
        return [method for method, _, _ in self.seen]

    def take(self, method: str, path: str, headers: dict[str, str]) -> Fault | None:
        with self._lock:
            self.seen.append((method, path, headers))
            for fault in self.faults:
                if fault.times > 0 and fault.method in ("", method) and fault.containing in path:
                    fault.times -= 1
                    fault.met = True
                    return fault
        return None

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        pass

    def handle_any(self) -> None:
        proxy: Proxy = self.server.proxy
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = proxy.take(self.command, self.path, dict(self.headers)) or Fault()
        time.sleep(fault.wait)
        if fault.status:
            return self._refuse(fault)
        if fault.lost == "before":
            return self._drop()
        proxy.before(self.command, self.path)
        status, headers, data = self._pass_on(proxy, body)
        if fault.lost == "after":
            return self._drop()
        self._answer(status, headers, data, torn=fault.torn)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any

    def _pass_on(self, proxy: Proxy, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        to = urlsplit(moto_url())
        connection = http.client.HTTPConnection(to.hostname, to.port)
        headers = {name: value for name, value in self.headers.items() if name not in proxy.hidden}
        connection.request(self.command, self.path.removeprefix(proxy.base), body, headers)
        with contextlib.closing(connection), connection.getresponse() as answer:
            return answer.status, answer.getheaders(), answer.read()

    def _refuse(self, fault: Fault) -> None:
        text = f"<Error><Code>{fault.code}</Code><Message>said by the tests</Message>{fault.more}</Error>"
        data = text.encode() if fault.code and self.command != "HEAD" else b""
        self._answer(fault.status, list(fault.headers.items()), data)

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes, *, torn: bool = False) -> None:
        length = next((value for name, value in headers if name.lower() == "content-length"), str(len(data)))
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "connection", "transfer-encoding", "server", "date"):
                self.send_header(name, value)
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if torn else data)
        if torn:
            self._drop()

    def _drop(self) -> None:
        self.close_connection = True
        self.wfile.flush()
