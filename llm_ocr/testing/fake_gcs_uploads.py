"""Uploads to the stand-in for Google Cloud Storage: multipart bodies and resumable sessions."""

import json
import re
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from llm_ocr.testing.fake_gcs_objects import Conditions, Objects, Refused, Stored, crc32c_of, md5_of

#: Chunks of a resumable upload but the last are multiples of this, in bytes.
CHUNK = 256 * 1024

_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request asks to be written, but for the bytes. The checksums are those that the client computed."""

    bucket: str
    name: str
    conditions: Conditions
    content_type: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    crc32c: str = ""
    md5: str = ""

    @staticmethod
    def of(bucket: str, query: Mapping[str, str], description: Mapping[str, Any], content_type: str) -> "Wanted":
        """From the parameters of a request and the JSON that describes the object."""
        name = description.get("name") or query.get("name", "")
        if not name:
            raise Refused(400, "required", "Required parameter: name")
        return Wanted(
            bucket,
            name,
            Conditions.of(query),
            description.get("contentType") or content_type or "application/octet-stream",
            description.get("metadata") or {},
            description.get("crc32c", ""),
            description.get("md5Hash", ""),
        )


def store(objects: Objects, wanted: Wanted, data: bytes) -> Stored:
    """Write the object. Raises `Refused` 400 when it is not what the client's checksum says."""
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
        wanted.conditions,
        content_type=wanted.content_type,
        metadata=wanted.metadata,
    )


def read_multipart(content_type: str, body: bytes) -> tuple[dict[str, Any], str, bytes]:
    """The description, the content type and the bytes of a multipart/related body. Raises `Refused` 400."""
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
    """Where a session stands: the object when it is whole, else the bytes that are kept so far."""

    wanted: Wanted
    stored: Stored | None
    kept: int


class Uploads:
    """Resumable uploads that were begun. An object appears when its session is whole, not before."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._lock = threading.Lock()
        self._sessions: dict[str, _Session] = {}

    def begin(self, wanted: Wanted) -> str:
        """A new session; its id. Raises `Refused` when the preconditions do not hold already now."""
        self._objects.expect(wanted.bucket, wanted.name, wanted.conditions)
        upload = secrets.token_urlsafe(24)
        with self._lock:
            self._sessions[upload] = _Session(wanted)
        return upload

    def name(self, upload: str) -> str:
        """The object's name of a session; empty when there is none."""
        with self._lock:
            return self._sessions[upload].wanted.name if upload in self._sessions else ""

    def cancel(self, upload: str) -> None:
        with self._lock:
            self._sessions.pop(upload, None)

    def take(self, upload: str, content_range: str, body: bytes, sums: str, *, short: bool) -> Progress:
        """Keep a chunk (or, `bytes */…`, only say where the session stands); whole, it becomes the object."""
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
