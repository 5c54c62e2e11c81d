"""Objects, generations, and uploads of the fake Google Cloud Storage."""

import base64
import bisect
import hashlib
import json
import re
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import google_crc32c

# Objects in memory, and the rules of their generations. Every write gives an object a new generation, larger than all
# earlier ones. A request may name the expected generation (0: no object). If the current one differs, nothing is
# written and the response is 412. The rules are those of Google's description of the JSON API v1.


#: A generation is the time of the write in microseconds since 1970.
_MICROSECONDS = 1_000_000

#: Maximum objects per page of a listing.
MOST_LISTED = 1000


class Refused(Exception):
    """Error response: status, Google's reason word, and message."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class Stored:
    """Current state of an object."""

    data: bytes
    generation: int
    crc32c: str
    md5: str
    content_type: str
    metadata: Mapping[str, str]
    created: float


def expected_by(query: Mapping[str, str]) -> int | None:
    """Return the generation that a request expects; 0: no object, None: any."""
    named = query.get("ifGenerationMatch")
    return None if named is None else int(named)


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a listing; `next` is the token of the following part, empty at the end."""

    items: tuple[tuple[str, Stored], ...]
    next: str


@dataclass(slots=True)
class _Bucket:
    objects: dict[str, Stored] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)  # names of the objects, sorted
    changed: dict[str, float] = field(default_factory=dict)  # time of the last write or deletion of each object


class Objects:
    """Buckets and their objects, thread-safe.

    With `one_write_a_second`, a second write to an object within a second is refused with 429, as Google may do.
    """

    def __init__(self) -> None:
        self.one_write_a_second = False
        self._lock = threading.RLock()
        self._buckets: dict[str, _Bucket] = {}
        self._last = 0

    def make_bucket(self, name: str) -> None:
        with self._lock:
            self._buckets[name] = _Bucket()

    def find(self, bucket: str, name: str, generation: int | None = None) -> Stored:
        """Return the object, of the given generation if named. Raises `Refused` 404."""
        with self._lock:
            found = self._bucket(bucket).objects.get(name)
            if found is None or generation not in (None, found.generation):
                raise Refused(404, "notFound", f"No such object: {bucket}/{name}")
            return found

    def expect(self, bucket: str, name: str, expected: int | None) -> None:
        """Raise `Refused` 412 unless the object has the expected generation (0: no object; None: any)."""
        with self._lock:
            found = self._bucket(bucket).objects.get(name)
            if expected not in (None, found.generation if found else 0):
                raise Refused(412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")

    def write(
        self,
        bucket: str,
        name: str,
        data: bytes,
        expected: int | None = None,
        *,
        content_type: str = "application/octet-stream",
        metadata: Mapping[str, str] | None = None,
    ) -> Stored:
        """Write the whole object atomically. Raises `Refused` 404, 412, or 429."""
        _check_name(name)
        crc32c, md5 = crc32c_of(data), md5_of(data)
        with self._lock:
            into = self._bucket(bucket)
            self.expect(bucket, name, expected)
            self._limit(into, bucket, name)
            now = time.time()
            self._last = max(self._last + 1, int(now * _MICROSECONDS))
            stored = Stored(data, self._last, crc32c, md5, content_type, dict(metadata or {}), now)
            if name not in into.objects:
                bisect.insort(into.names, name)
            into.objects[name] = stored
            return stored

    def delete(self, bucket: str, name: str, expected: int | None = None) -> None:
        with self._lock:
            self.find(bucket, name)
            self.expect(bucket, name, expected)
            from_ = self._bucket(bucket)
            self._limit(from_, bucket, name)
            del from_.objects[name]
            del from_.names[bisect.bisect_left(from_.names, name)]

    def list(self, bucket: str, query: Mapping[str, str]) -> Page:
        """Return a page of a listing by its parameters: prefix, start, page token, page size."""
        prefix, token = query.get("prefix", ""), _plain(query.get("pageToken", ""))
        size = max(1, min(int(query.get("maxResults") or MOST_LISTED), MOST_LISTED))
        with self._lock:
            found = self._bucket(bucket)
            at = bisect.bisect_left(found.names, max(prefix, query.get("startOffset", ""), token))
            items: list[tuple[str, Stored]] = []
            for name in found.names[at:]:
                if not name.startswith(prefix):
                    break
                if name <= token:  # the token is the last entry of the previous page
                    continue
                if len(items) >= size:
                    return Page(tuple(items), _token(items[-1][0]))
                items.append((name, found.objects[name]))
            return Page(tuple(items), "")

    def _bucket(self, name: str) -> _Bucket:
        if name not in self._buckets:
            raise Refused(404, "notFound", "The specified bucket does not exist.")
        return self._buckets[name]

    def _limit(self, bucket: _Bucket, bucket_name: str, name: str) -> None:
        if not self.one_write_a_second:
            return
        now = time.monotonic()
        if now - bucket.changed.get(name, float("-inf")) < 1.0:
            raise Refused(
                429,
                "rateLimitExceeded",
                f"The object {bucket_name}/{name} exceeded the rate limit for object mutation operations "
                "(create, update, and delete). Please reduce your request rate.",
            )
        bucket.changed[name] = now


def crc32c_of(data: bytes) -> str:
    """Return the checksum in Google's form: base64 of four bytes, the highest first."""
    return base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()


def md5_of(data: bytes) -> str:
    """Return the checksum in Google's form: base64."""
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def _check_name(name: str) -> None:
    too_long = not 1 <= len(name.encode()) <= 1024
    if too_long or name in (".", "..") or "\r" in name or "\n" in name:
        raise Refused(400, "invalid", f"Invalid object name: {name!r}")


def _token(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _plain(token: str) -> str:
    try:
        return base64.urlsafe_b64decode(token.encode()).decode()
    except ValueError as error:
        raise Refused(400, "invalid", "Invalid page token.") from error


def resource(bucket: str, name: str, stored: Stored) -> dict[str, Any]:
    """Return the JSON of an object."""
    return {
        "kind": "storage#object",
        "id": f"{bucket}/{name}/{stored.generation}",
        "name": name,
        "bucket": bucket,
        "generation": str(stored.generation),
        "metageneration": "1",
        "contentType": stored.content_type,
        "storageClass": "STANDARD",
        "size": str(len(stored.data)),
        "crc32c": stored.crc32c,
        "md5Hash": stored.md5,
        "etag": f"{stored.generation:x}",
        "metadata": dict(stored.metadata),
        "timeCreated": datetime.fromtimestamp(stored.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }


# Uploads: multipart bodies and resumable sessions.


#: Size in bytes whose multiples are the chunks of a resumable upload, except the last.
CHUNK = 256 * 1024

_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Requested write without its bytes. `expected` is the generation to replace; the client computed the checksums."""

    bucket: str
    name: str
    expected: int | None
    content_type: str
    metadata: Mapping[str, str]
    crc32c: str
    md5: str

    @staticmethod
    def of(bucket: str, query: Mapping[str, str], description: Mapping[str, Any], content_type: str) -> "Wanted":
        """Return the write in the parameters of a request and the JSON that describes the object."""
        name = description.get("name") or query.get("name", "")
        if not name:
            raise Refused(400, "required", "Required parameter: name")
        return Wanted(
            bucket,
            name,
            expected_by(query),
            description.get("contentType") or content_type or "application/octet-stream",
            description.get("metadata") or {},
            description.get("crc32c", ""),
            description.get("md5Hash", ""),
        )


def store(objects: Objects, wanted: Wanted, data: bytes) -> Stored:
    """Write the object. Raises `Refused` 400 if the data differs from the client's checksum."""
    sums = [("CRC32C", wanted.crc32c, crc32c_of), ("MD5 hash", wanted.md5, md5_of)]
    for what, said, compute in sums:
        if said and said != compute(data):
            raise Refused(
                400, "invalid", f'Provided {what} "{said}" doesn\'t match calculated {what} "{compute(data)}".'
            )
    return objects.write(
        wanted.bucket,
        wanted.name,
        data,
        wanted.expected,
        content_type=wanted.content_type,
        metadata=wanted.metadata,
    )


def read_multipart(content_type: str, body: bytes) -> tuple[dict[str, Any], str, bytes]:
    """Return the description, the content type, and the bytes of a multipart/related body. Raises `Refused` 400."""
    boundary = re.search(r'boundary="?([^";]+)', content_type)
    parts = body.split(b"--" + boundary[1].encode()) if boundary else []
    if len(parts) < 4:
        raise Refused(400, "badContent", "Malformed multipart body.")
    (_, description), (head, data) = _part(parts[1]), _part(parts[2])
    kind = re.search(rb"(?im)^content-type:\s*(\S+)", head)
    return json.loads(description), kind[1].decode() if kind else "", data


def _part(part: bytes) -> tuple[bytes, bytes]:
    head, found, data = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
    if not found:
        raise Refused(400, "badContent", "Malformed multipart body.")
    return head, data.removesuffix(b"\r\n")


@dataclass(slots=True)
class _Session:
    wanted: Wanted
    data: bytearray = field(default_factory=bytearray)
    done: Stored | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, slots=True)
class Progress:
    """State of a session: the object if complete, otherwise the number of received bytes."""

    wanted: Wanted
    stored: Stored | None
    kept: int


class Uploads:
    """Resumable uploads in progress. An object appears only when its session is complete."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._lock = threading.Lock()
        self._sessions: dict[str, _Session] = {}

    def begin(self, wanted: Wanted) -> str:
        """Begin a session, and return its id. Raises `Refused` if the preconditions already fail."""
        self._objects.expect(wanted.bucket, wanted.name, wanted.expected)
        upload = secrets.token_urlsafe(24)
        with self._lock:
            self._sessions[upload] = _Session(wanted)
        return upload

    def name(self, upload: str) -> str:
        """Return the object's name of a session; empty for a missing session."""
        with self._lock:
            return self._sessions[upload].wanted.name if upload in self._sessions else ""

    def take(self, upload: str, content_range: str, body: bytes, sums: str, *, short: bool) -> Progress:
        """Store a chunk (or, for `bytes */…`, only return the state); a complete session becomes the object."""
        with self._lock:
            session = self._sessions.get(upload)
        if session is None:
            raise Refused(404, "notFound", "No such upload session.")
        with session.lock:
            if session.done is None:
                whole = f"bytes 0-{len(body) - 1}/{len(body)}" if body else "bytes */0"
                self._keep(session, content_range or whole, body, sums, short)
            return Progress(session.wanted, session.done, len(session.data))

    def _keep(self, session: _Session, content_range: str, body: bytes, sums: str, short: bool) -> None:
        match = _RANGE.fullmatch(content_range)
        if match is None:
            raise Refused(400, "badRequest", f"Failed to parse Content-Range header: {content_range}")
        total = None if match[3] == "*" else int(match[3])
        if match[1] is not None:
            start, kept = int(match[1]), len(session.data)
            if start > kept or int(match[2]) - start + 1 != len(body):
                raise Refused(
                    400, "badRequest", f"Invalid request. Content-Range {content_range} does not go on at {kept}."
                )
            last = total is not None and start + len(body) >= total
            if not last or short:
                body = body[: len(body) // (2 if short else 1) // CHUNK * CHUNK]
            session.data += body[kept - start :]
        if total is not None and len(session.data) == total:
            said = re.search(r"crc32c=([^,\s]+)", sums)
            if said and said[1] != crc32c_of(bytes(session.data)):
                raise Refused(400, "invalid", "The x-goog-hash header does not match the uploaded content.")
            session.done = store(self._objects, session.wanted, bytes(session.data))
