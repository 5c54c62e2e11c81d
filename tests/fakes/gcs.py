"""A fake Google Cloud Storage: a real server that honors preconditions, with faults on demand."""

import contextlib
import io
import json
import random
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.fakes.crash import When
from tests.fakes.gcs_objects import (
    Objects,
    Refused,
    Stored,
    Uploads,
    Wanted,
    expected_by,
    read_multipart,
    resource,
    store,
)
from tests.fakes.loopback import Handler, LoopbackFake, Server, served

# Faults on demand.


class How(StrEnum):
    """Effect of a fault on a request."""

    STATUS = "status"  # an error response
    DROP = "drop"  # the connection is closed without a response
    CUT = "cut"  # the response ends in the middle, then the connection
    SHORT = "short"  # only half of a chunk of a resumable upload is stored, and the response reports this


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault with its requests and its frequency.

    `operation` is one of list, stat, read, write, start, chunk, delete, token; empty for all of them. `match` is a part
    of the object's name. `rate` is the share of affected requests, from 0 to 1, and `count` their maximum (None: no
    limit). The first `skip` requests succeed.
    """

    how: How = How.STATUS
    when: When = When.BEFORE
    operation: str = ""
    match: str = ""
    rate: float = 1.0
    count: int | None = None
    skip: int = 0
    status: int = 503
    reason: str = "backendError"
    message: str = "We encountered an internal error. Please try again."


class _Counted:
    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.seen = 0
        self.hit = 0


class Faults:
    """Active faults, thread-safe; chances come from a seeded generator."""

    def __init__(self, seed: int = 0) -> None:
        self._lock = threading.Lock()
        self._random = random.Random(seed)
        self._set: list[_Counted] = []

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._set.append(_Counted(fault))

    def clear(self) -> None:
        with self._lock:
            self._set.clear()

    def listed(self) -> list[dict[str, Any]]:
        """Return each fault with its number of affected requests."""
        with self._lock:
            return [{**asdict(one.fault), "hit": one.hit} for one in self._set]

    def take(self, operation: str, name: str) -> Fault | None:
        """Return the first fault that applies to this request, and count the request."""
        with self._lock:
            return next((one.fault for one in self._set if self._hits(one, operation, name)), None)

    def _hits(self, one: _Counted, operation: str, name: str) -> bool:
        fault = one.fault
        if fault.operation not in ("", operation) or fault.match not in name:
            return False
        one.seen += 1
        used_up = fault.count is not None and one.hit >= fault.count
        if one.seen <= fault.skip or used_up or self._random.random() >= fault.rate:
            return False
        one.hit += 1
        return True


# API: JSON API v1 of Google Cloud Storage, as far as its clients use it.


_PATH = re.compile(r"/(?:(upload|download)/)?storage/v1/b/([^/]+)/o(?:/(.+))?")


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Header names are in lower case; `path` is still quoted."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""

    def json(self) -> dict[str, Any]:
        try:
            value = json.loads(self.body or b"{}")
        except ValueError as error:
            raise Refused(400, "parseError", "Parse Error") from error
        if not isinstance(value, dict):
            raise Refused(400, "parseError", "Parse Error")
        return value


@dataclass(frozen=True, slots=True)
class Answer:
    """Response."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def json(value: Any, status: int = 200) -> "Answer":
        return Answer(status, json.dumps(value).encode(), {"Content-Type": "application/json; charset=UTF-8"})


def error(status: int, reason: str, message: str, *, media: bool = False) -> Answer:
    """Return an error response: JSON, or plain text for a content request."""
    if media:
        return Answer(status, message.encode(), {"Content-Type": "text/html; charset=UTF-8"})
    detail = {"message": message, "domain": "global", "reason": reason}
    return Answer.json({"error": {"code": status, "message": message, "errors": [detail]}}, status)


@dataclass(frozen=True, slots=True)
class Route:
    """Parsed request: its operation (a word of `Fault.operation`), its object, and its handler."""

    operation: str
    name: str
    act: Callable[[bool], Answer]  # True: a chunk is stored only in part


class Api:
    """Routes over the objects."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._uploads = Uploads(objects)

    def route(self, request: Request) -> Route:
        """Parse a request without executing it. Raises `Refused` 404 for an unknown path."""
        match = _PATH.fullmatch(request.path)
        if match is None:
            raise Refused(404, "notFound", f"No route {request.method} {request.path}")
        kind, bucket, name = match[1], unquote(match[2]), unquote(match[3] or "")
        if kind == "upload":
            return self._upload(request, bucket)
        if not name:
            return Route("list", request.query.get("prefix", ""), lambda _: self._list(request, bucket))
        if request.method == "GET":
            media = request.query.get("alt") == "media"
            return Route("read" if media else "stat", name, lambda _: self._get(request, bucket, name, media))
        if request.method == "DELETE":
            return Route("delete", name, lambda _: self._delete(request, bucket, name))
        raise Refused(405, "methodNotAllowed", f"{request.method} is not for objects")

    def _list(self, request: Request, bucket: str) -> Answer:
        page = self._objects.list(bucket, request.query)
        found: dict[str, Any] = {"kind": "storage#objects"}
        if page.items:
            found["items"] = [resource(bucket, name, stored) for name, stored in page.items]
        if page.next:
            found["nextPageToken"] = page.next
        return Answer.json(found)

    def _get(self, request: Request, bucket: str, name: str, media: bool) -> Answer:
        generation = request.query.get("generation")
        found = self._objects.find(bucket, name, int(generation) if generation else None)
        if not media:
            return _object_json(bucket, name, found)
        headers = {
            "Content-Type": found.content_type,
            "ETag": f"{found.generation:x}",
            "X-Goog-Generation": str(found.generation),
            "X-Goog-Metageneration": "1",
            "X-Goog-Hash": f"crc32c={found.crc32c},md5={found.md5}",
            "X-Goog-Storage-Class": "STANDARD",
            "X-Goog-Stored-Content-Encoding": "identity",
            "X-Goog-Stored-Content-Length": str(len(found.data)),
            "Accept-Ranges": "bytes",
        }
        return _ranged(request.headers.get("range", ""), found.data, headers)

    def _delete(self, request: Request, bucket: str, name: str) -> Answer:
        self._objects.delete(bucket, name, expected_by(request.query))
        return Answer(204)

    def _upload(self, request: Request, bucket: str) -> Route:
        query, kind = request.query, request.headers.get("content-type", "")
        upload = query.get("upload_id")
        if upload:
            return Route("chunk", self._uploads.name(upload), lambda short: self._chunk(request, upload, short))
        how = query.get("uploadType")
        if how == "resumable":
            wanted = Wanted.of(bucket, query, request.json(), request.headers.get("x-upload-content-type", ""))
            return Route("start", wanted.name, lambda _: self._begin(request, wanted))
        if how != "multipart":
            raise Refused(400, "invalid", f"Invalid upload type: {how}")
        description, kind, data = read_multipart(kind, request.body)
        wanted = Wanted.of(bucket, query, description, kind)
        return Route(
            "write", wanted.name, lambda _: _object_json(bucket, wanted.name, store(self._objects, wanted, data))
        )

    def _begin(self, request: Request, wanted: Wanted) -> Answer:
        upload = self._uploads.begin(wanted)
        host = request.headers.get("host", "")
        place = f"http://{host}{request.path}?uploadType=resumable&upload_id={upload}"
        return Answer(200, b"", {"Location": place, "X-GUploader-UploadID": upload})

    def _chunk(self, request: Request, upload: str, short: bool) -> Answer:
        sums = request.headers.get("x-goog-hash", "")
        content_range = request.headers.get("content-range", "")
        progress = self._uploads.take(upload, content_range, request.body, sums, short=short)
        if progress.stored:
            return _object_json(progress.wanted.bucket, progress.wanted.name, progress.stored)
        return Answer(308, b"", {"Range": f"bytes=0-{progress.kept - 1}"} if progress.kept else {})


def _object_json(bucket: str, name: str, stored: Stored) -> Answer:
    return Answer.json(resource(bucket, name, stored))


def _ranged(wanted: str, data: bytes, headers: Mapping[str, str]) -> Answer:
    """Return all of the content, or the bytes in a Range header."""
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", wanted)
    if match is None or not (match[1] or match[2]):
        return Answer(200, data, headers)
    if match[1]:
        start, end = int(match[1]), min(int(match[2]) if match[2] else len(data), len(data) - 1)
    else:
        start, end = max(0, len(data) - int(match[2])), len(data) - 1
    if start >= len(data) or start > end:
        return error(416, "requestedRangeNotSatisfiable", "Request range not satisfiable", media=True)
    return Answer(206, data[start : end + 1], {**headers, "Content-Range": f"bytes {start}-{end}/{len(data)}"})


# Server on loopback that honors preconditions, with faults on demand. It implements the part of the JSON API v1 that
# the clients use: objects with generations; uploads by multipart and resumable session; ranges; listings in pages with
# prefix and start. All data is in memory. In tests: `with running("bucket") as gcs: ...`. POST /token is an OAuth
# endpoint.


#: Maximum connections that wait to be accepted. With the standard library's 5, 24 concurrent clients are refused.
_BACKLOG = 256


class FakeGcs(LoopbackFake):
    """Server. A test in the same process may use `objects` and `faults` directly.

    With `token`, requests without `Authorization: Bearer <token>` are refused with 401.
    """

    def __init__(self, *, token: str = "") -> None:
        self.objects = Objects()
        self.faults = Faults()
        self.token = token
        self._api = Api(self.objects)
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._server: _Server = _Server(_Handler, self)

    @property
    def requests(self) -> dict[str, int]:
        """Return the number of requests per operation, including those that a fault hit."""
        with self._lock:
            return dict(self._counts)

    def close(self) -> None:
        super().close()
        self._server.close_connections()

    def answer(self, request: Request) -> tuple[Answer | None, bool]:
        """Return the response (None: the connection is closed), and whether it is cut in the middle."""
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


def _faulty(fault: Fault, route: Route, request: Request) -> Answer:
    if route.operation == "token":
        return Answer.json({"error": fault.reason, "error_description": fault.message}, fault.status)
    return error(fault.status, fault.reason, fault.message, media=request.query.get("alt") == "media")


class _Handler(Handler):
    wbufsize = io.DEFAULT_BUFFER_SIZE  # head and body are sent together

    server: "_Server"

    def setup(self) -> None:
        super().setup()
        self.server.opened(self.connection)

    def finish(self) -> None:
        self.server.closed(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def reply(self) -> None:
        parts = urlsplit(self.path)
        request = Request(
            self.command,
            parts.path,
            dict(parse_qsl(parts.query, keep_blank_values=True)),
            {name.lower(): value for name, value in self.headers.items()},
            self.body(),
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


class _Server(Server["FakeGcs"]):
    request_queue_size = _BACKLOG

    def __init__(self, handler: type[Handler], fake: FakeGcs) -> None:
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        super().__init__(handler, fake)

    def opened(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.add(connection)

    def closed(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)

    def close_connections(self) -> None:
        """Close the connections that clients keep open, so that a stopped server answers no one."""
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def running(*buckets: str, token: str = "") -> Iterator[FakeGcs]:
    """Run a server with these buckets in a thread of this process; the server ends with the block."""
    with served(FakeGcs(token=token)) as gcs:
        for bucket in buckets:
            gcs.objects.make_bucket(bucket)
        yield gcs
