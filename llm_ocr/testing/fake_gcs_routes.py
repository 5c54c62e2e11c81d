"""From requests to answers: the JSON API v1 of Google Cloud Storage, as far as its clients use it."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from llm_ocr.testing.fake_gcs_objects import Conditions, Objects, Refused, Stored, resource
from llm_ocr.testing.fake_gcs_uploads import Progress, Uploads, Wanted, read_multipart, store

_PATH = re.compile(r"/(?:(upload|download)/)?storage/v1/b(?:/([^/]+)(?:/(o)(?:/(.+))?)?)?")
_COPY = re.compile(r"([^/]+)/(rewriteTo|copyTo)/b/([^/]+)/o/([^/]+)")


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
    """What is sent back."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> "Answer":
        kind = {"Content-Type": "application/json; charset=UTF-8"}
        return Answer(status, json.dumps(value).encode(), {**kind, **(headers or {})})


def error(status: int, reason: str, message: str, *, media: bool = False) -> Answer:
    """An answer that is an error: JSON, or plain text where content was asked for."""
    if media:
        return Answer(status, message.encode(), {"Content-Type": "text/html; charset=UTF-8"})
    detail = {"message": message, "domain": "global", "reason": reason}
    return Answer.json({"error": {"code": status, "message": message, "errors": [detail]}}, status)


@dataclass(frozen=True, slots=True)
class Route:
    """A request that was understood: what it does (a word of `Fault.operation`), to which object, and how."""

    operation: str
    name: str
    act: Callable[[bool], Answer]  # True: a chunk is kept only in part


class Api:
    """The routes over the objects."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._uploads = Uploads(objects)

    def route(self, request: Request) -> Route:
        """Understand a request; nothing is done yet. Raises `Refused` 404 for an unknown path."""
        match = _PATH.fullmatch(request.path)
        if match is None:
            raise Refused(404, "notFound", f"No route {request.method} {request.path}")
        kind, bucket, objects, name = match[1], unquote(match[2] or ""), match[3], match[4]
        if kind == "upload":
            return self._upload(request, bucket)
        if not objects:
            return Route("bucket", bucket, lambda _: self._buckets(request, bucket))
        if not name:
            return Route("list", request.query.get("prefix", ""), lambda _: self._list(request, bucket))
        return self._object(request, bucket, name)

    def _buckets(self, request: Request, bucket: str) -> Answer:
        if request.method == "POST" and not bucket:
            bucket = request.json().get("name", "")
            self._objects.make_bucket(bucket)
        elif request.method == "DELETE":
            self._objects.delete_bucket(bucket)
            return Answer(204)
        elif not bucket:
            return Answer.json(
                {"kind": "storage#buckets", "items": [_bucket(name) for name in self._objects.buckets()]}
            )
        self._objects.has_bucket(bucket)
        return Answer.json(_bucket(bucket))

    def _list(self, request: Request, bucket: str) -> Answer:
        page = self._objects.list(bucket, request.query)
        found: dict[str, Any] = {"kind": "storage#objects"}
        if page.items:
            found["items"] = [resource(bucket, name, stored) for name, stored in page.items]
        if page.prefixes:
            found["prefixes"] = list(page.prefixes)
        if page.next:
            found["nextPageToken"] = page.next
        return Answer.json(found)

    def _object(self, request: Request, bucket: str, path: str) -> Route:
        if path.endswith("/compose") and request.method == "POST":
            name = unquote(path.removesuffix("/compose"))
            return Route("compose", name, lambda _: self._compose(request, bucket, name))
        if (copy := _COPY.fullmatch(path)) and request.method == "POST":
            source, to_bucket, to = unquote(copy[1]), unquote(copy[3]), unquote(copy[4])
            whole = copy[2] == "copyTo"
            return Route("rewrite", to, lambda _: self._copy(request, (bucket, source), (to_bucket, to), whole))
        name, conditions = unquote(path), Conditions.of(request.query)
        if request.method == "GET":
            media = request.query.get("alt") == "media"
            return Route("read" if media else "stat", name, lambda _: self._get(request, bucket, name, media))
        if request.method == "DELETE":
            return Route("delete", name, lambda _: self._delete(request, bucket, name))
        if request.method in ("PATCH", "PUT"):
            patched = request.json()
            return Route(
                "patch",
                name,
                lambda _: _object_json(bucket, name, self._objects.patch(bucket, name, patched, conditions)),
            )
        raise Refused(405, "methodNotAllowed", f"{request.method} is not for objects")

    def _get(self, request: Request, bucket: str, name: str, media: bool) -> Answer:
        found = self._objects.find(bucket, name, Conditions.of(request.query), _generation(request))
        if not media:
            return _object_json(bucket, name, found)
        headers = {
            "Content-Type": found.content_type,
            "ETag": f"{found.generation:x}-{found.metageneration:x}",
            "X-Goog-Generation": str(found.generation),
            "X-Goog-Metageneration": str(found.metageneration),
            "X-Goog-Hash": f"crc32c={found.crc32c},md5={found.md5}",
            "X-Goog-Storage-Class": "STANDARD",
            "X-Goog-Stored-Content-Encoding": "identity",
            "X-Goog-Stored-Content-Length": str(len(found.data)),
            "Accept-Ranges": "bytes",
        }
        return _ranged(request.headers.get("range", ""), found.data, headers)

    def _delete(self, request: Request, bucket: str, name: str) -> Answer:
        self._objects.delete(bucket, name, Conditions.of(request.query), _generation(request))
        return Answer(204)

    def _compose(self, request: Request, bucket: str, name: str) -> Answer:
        wanted = request.json()
        kind = (wanted.get("destination") or {}).get("contentType") or "application/octet-stream"
        conditions = Conditions.of(request.query)
        sources = wanted.get("sourceObjects") or []
        return _object_json(bucket, name, self._objects.compose(bucket, name, sources, conditions, kind))

    def _copy(self, request: Request, source: tuple[str, str], to: tuple[str, str], whole: bool) -> Answer:
        generation = request.query.get("sourceGeneration")
        found = self._objects.find(
            *source, Conditions.of(request.query, "ifSource"), int(generation) if generation else None
        )
        stored = self._objects.write(
            *to,
            found.data,
            Conditions.of(request.query),
            content_type=found.content_type,
            metadata=found.metadata,
        )
        if whole:
            return _object_json(*to, stored)
        size = str(len(stored.data))
        done = {"kind": "storage#rewriteResponse", "done": True, "objectSize": size, "totalBytesRewritten": size}
        return Answer.json({**done, "resource": resource(*to, stored)})

    def _upload(self, request: Request, bucket: str) -> Route:
        query, kind = request.query, request.headers.get("content-type", "")
        upload = query.get("upload_id")
        if upload and request.method == "DELETE":
            return Route("chunk", self._uploads.name(upload), lambda _: self._cancel(upload))
        if upload:
            return Route("chunk", self._uploads.name(upload), lambda short: self._chunk(request, upload, short))
        how = query.get("uploadType")
        if how == "resumable":
            wanted = Wanted.of(bucket, query, request.json(), request.headers.get("x-upload-content-type", ""))
            return Route("start", wanted.name, lambda _: self._begin(request, wanted))
        if how == "multipart":
            description, kind, data = read_multipart(kind, request.body)
        elif how == "media":
            description, data = {}, request.body
        else:
            raise Refused(400, "invalid", f"Invalid upload type: {how}")
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
        progress: Progress = self._uploads.take(
            upload, request.headers.get("content-range", ""), request.body, sums, short=short
        )
        if progress.stored:
            return _object_json(progress.wanted.bucket, progress.wanted.name, progress.stored)
        return Answer(308, b"", {"Range": f"bytes=0-{progress.kept - 1}"} if progress.kept else {})

    def _cancel(self, upload: str) -> Answer:
        self._uploads.cancel(upload)
        return error(499, "cancelled", "Client Closed Request")


def _bucket(name: str) -> dict[str, str]:
    return {"kind": "storage#bucket", "id": name, "name": name, "location": "US", "storageClass": "STANDARD"}


def _object_json(bucket: str, name: str, stored: Stored) -> Answer:
    return Answer.json(resource(bucket, name, stored))


def _generation(request: Request) -> int | None:
    named = request.query.get("generation")
    return int(named) if named else None


def _ranged(wanted: str, data: bytes, headers: Mapping[str, str]) -> Answer:
    """All of the content, or the bytes that a Range header asks for."""
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
