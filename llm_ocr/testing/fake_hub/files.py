"""Content in and out: large files that are uploaded before the commit that names them, and downloads."""

import hashlib
from typing import Any

from llm_ocr.testing.fake_hub.answers import Answer, Refused, Request, content
from llm_ocr.testing.fake_hub.state import State
from llm_ocr.testing.fake_hub.trees import etag_of


def lfs_batch(state: State, request: Request, kind: str, repository: str) -> Answer:
    """POST /<kind>s/<repository>.git/info/lfs/objects/batch: where to send what is not there yet."""
    state.writable(request, kind, repository)
    return Answer.of(
        {
            "transfer": "basic",
            "objects": [_target(state, request, wanted["oid"], wanted["size"]) for wanted in request.json()["objects"]],
        }
    )


def _target(state: State, request: Request, oid: str, size: int) -> dict[str, Any]:
    shown: dict[str, Any] = {"oid": oid, "size": size}
    if oid not in state.repositories.large:
        shown["actions"] = {
            "upload": {"href": f"{request.base}/_lfs/{oid}"},
            "verify": {"href": f"{request.base}/_lfs/{oid}/verify"},
        }
    return shown


def lfs_put(state: State, request: Request, oid: str) -> Answer:
    """PUT /_lfs/<sha256>. An upload that was cut does not count."""
    if hashlib.sha256(request.body).hexdigest() != oid:
        raise Refused(400, "", "The content does not have this sha256")
    state.repositories.large[oid] = request.body
    return Answer(200, b"", {"ETag": f'"{oid}"'})


def lfs_verify(state: State, request: Request, oid: str) -> Answer:
    """POST /_lfs/<sha256>/verify"""
    if oid not in state.repositories.large:
        raise Refused(404, "", "Object does not exist")
    return Answer.of({})


def lfs_get(state: State, request: Request, oid: str) -> Answer:
    """GET /_lfs/<sha256>: where downloads of large files are sent on to; nobody asks who is there."""
    data = state.repositories.large.get(oid)
    if data is None:
        raise Refused(404, "", "Not found")
    return content(request, data, {"ETag": f'"{oid}"'})


def xet_token(state: State, request: Request, kind: str, repository: str, what: str, revision: str = "main") -> Answer:
    """GET /api/<kind>s/<repository>/xet-write-token/<revision>: where large files are sent by a client with Xet.

    They are read by HTTP: answers name no Xet hash, so nobody asks for the token to read.
    """
    state.writable(request, kind, repository).sha(revision)
    if what == "read":
        raise Refused(404, "", "Nothing is read from there")
    return state.xet.token()


def resolve(state: State, request: Request, kind: str, repository: str, revision: str, path: str) -> Answer:
    """GET or HEAD /[<kind>s/]<repository>/resolve/<revision>/<path>"""
    found, _ = state.readable(request, kind, repository)
    sha = found.sha(revision)
    entry = found.commits[sha].get(path)
    if entry is None:
        raise Refused(404, "EntryNotFound", "Entry not found", headers={"X-Repo-Commit": sha})
    data, etag = state.repositories.content(entry), f'"{etag_of(entry)}"'
    headers = {"X-Repo-Commit": sha, "ETag": etag}
    if entry.sha256:
        headers |= {"X-Linked-Etag": etag, "X-Linked-Size": str(len(data))}
        if request.method == "GET":
            return Answer(302, b"", {**headers, "Location": f"{request.base}/_lfs/{entry.sha256}"})
    return content(request, data, headers)
