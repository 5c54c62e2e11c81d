"""API of storage buckets: no commits, no versions, and no conditions."""

from typing import Any

from tests.fakes.hub.answers import Answer, Refused, Request, check_write, content, iso, page
from tests.fakes.hub.state import Bucket, BucketFile, State


def create(state: State, request: Request, bucket: str) -> Answer:
    """POST /api/buckets/<namespace>/<name>; `me` is the namespace of the account."""
    account = state.accounts.needed(request)
    namespace, _, name = bucket.partition("/")
    namespace = account.name if namespace == "me" else namespace
    check_write(account, namespace)
    asked = request.json() if request.body else {}
    private = asked.get("visibility") == "private" or bool(asked.get("private"))  # clients before 2.0 send the latter
    url = f"{request.base}/buckets/{namespace}/{name}"
    with state.repositories.lock:
        if f"{namespace}/{name}" in state.buckets:
            return Answer.of({"error": "You already created this bucket", "url": url}, 409)
        made = Bucket(f"{namespace}/{name}", private, iso())
        state.buckets[made.id] = made
    return Answer.of({"url": url, "name": made.id, "id": made.id})


def info(state: State, request: Request, bucket: str) -> Answer:
    """GET /api/buckets/<bucket>."""
    found = state.bucket(request, bucket)
    files = list(found.files.values())
    return Answer.of(
        {
            "id": found.id,
            "private": found.private,
            "createdAt": found.created,
            "size": sum(len(file.data) for file in files),
            "totalFiles": len(files),
        }
    )


def tree(state: State, request: Request, bucket: str, prefix: str = "") -> Answer:
    """GET /api/buckets/<bucket>/tree[/<prefix>]; files first, then folders."""
    found = state.bucket(request, bucket)
    recursive = request.query.get("recursive", "").lower() in ("true", "1")
    below = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
    files, folders = [], set()
    for path, file in sorted(found.files.items()):
        if path != prefix and not path.startswith(below):
            continue
        head, slash, _ = path.removeprefix(below).partition("/")
        if slash and not recursive:
            folders.add(below + head)
        else:
            files.append(_described(path, file))
    return page(request, [*files, *({"type": "directory", "path": path} for path in sorted(folders))])


def _described(path: str, file: BucketFile) -> dict[str, Any]:
    return {
        "type": "file",
        "path": path,
        "size": len(file.data),
        "xetHash": file.xet_hash,
        "mtime": file.mtime,
        "uploadedAt": file.uploaded,
    }


def paths_info(state: State, request: Request, bucket: str) -> Answer:
    """POST /api/buckets/<bucket>/paths-info; missing paths are omitted."""
    files = state.bucket(request, bucket).files
    return Answer.of([_described(path, files[path]) for path in request.values("paths") if path in files])


def batch(state: State, request: Request, bucket: str) -> Answer:
    """POST /api/buckets/<bucket>/batch: operations in order; the response names failed ones."""
    found = state.bucket(request, bucket, write=True)
    operations = request.rows()
    state.xet.take(operation["xetHash"] for operation in operations if "xetHash" in operation)
    failed = []
    for operation in operations:
        try:
            _apply(state, found, operation)
        except Refused as refused:
            failed.append({"path": operation["path"], "error": refused.message})
    status = 422 if operations and len(failed) == len(operations) else 200
    return Answer.of({"success": not failed, "failed": failed}, status)


def _apply(state: State, bucket: Bucket, operation: dict[str, Any]) -> None:
    path = operation["path"]
    if operation["type"] == "addFile":
        data = state.xet.get(operation["xetHash"])
        bucket.files[path] = BucketFile(operation["xetHash"], data, iso(operation["mtime"] / 1000), iso())
    elif operation["type"] == "deleteFile":
        if bucket.files.pop(path, None) is None:
            raise Refused(404, "EntryNotFound", "File not found")
    else:
        raise Refused(400, "", f"unknown operation {operation['type']}")


def xet_token(state: State, request: Request, bucket: str, what: str) -> Answer:
    """GET /api/buckets/<bucket>/xet-read-token and xet-write-token: location of the content for reading or writing."""
    files = state.bucket(request, bucket, write=what == "write").files.values()
    if what == "write":
        return state.xet.token()
    return state.xet.token({file.xet_hash: file.data for file in files if file.data}.values())


def resolve(state: State, request: Request, bucket: str, path: str) -> Answer:
    """GET or HEAD /buckets/<bucket>/resolve/<path>."""
    file = state.bucket(request, bucket).files.get(path)
    if file is None:
        raise Refused(404, "EntryNotFound", "Entry not found")
    headers = {
        "X-Xet-Hash": file.xet_hash,
        "X-Xet-Refresh-Route": f"{request.base}/api/buckets/{bucket}/xet-read-token",
        "ETag": f'"{file.xet_hash}"',
        "X-Linked-Etag": f'"{file.xet_hash}"',
        "X-Linked-Size": str(len(file.data)),
    }
    return content(request, file.data, headers)
