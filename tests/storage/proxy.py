"""A proxy before a store's server that loses and spoils requests."""

import contextlib
import http.client
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


@dataclass(slots=True)
class Fault:
    """What happens to the next `times` requests of a method whose path holds `containing`.

    `status` and `code`: this answer instead; `lost`: no answer, "before" or "after" the server has done it; `torn`: the
    first half of the answer's body; `wait`: seconds before anything else. `body` of an answer instead of `code` and
    `more`. `met`: it has happened.
    """

    method: str = ""
    containing: str = ""
    times: int = 1
    status: int = 0
    code: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    more: str = ""
    body: str = ""
    lost: str = ""
    torn: bool = False
    wait: float = 0.0
    met: bool = False


class Proxy:
    """Passes requests on to the server at a URL, without the request headers `hidden` and the leading path `base`."""

    def __init__(self, to: str) -> None:
        self.to = urlsplit(to)
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
        connection = http.client.HTTPConnection(proxy.to.hostname, proxy.to.port)
        headers = {name: value for name, value in self.headers.items() if name not in proxy.hidden}
        connection.request(self.command, self.path.removeprefix(proxy.base), body, headers)
        with contextlib.closing(connection), connection.getresponse() as answer:
            return answer.status, answer.getheaders(), answer.read()

    def _refuse(self, fault: Fault) -> None:
        text = f"<Error><Code>{fault.code}</Code><Message>said by the tests</Message>{fault.more}</Error>"
        text = fault.body or (text if fault.code else "")
        data = text.encode() if self.command != "HEAD" else b""
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
