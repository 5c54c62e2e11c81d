"""API of repositories of the fake Hub."""

import base64
import hashlib
from typing import Any

from tests.fakes.hub.answers import Answer, Refused, Request, check_write, content, page
from tests.fakes.hub.state import Entry, State, etag_of, upload_mode

# Content: large files, uploaded before the commit that names them, and downloads.


def lfs_batch(state: State, request: Request, kind: str, repository: str) -> Answer:
    """POST /<kind>s/<repository>.git/info/lfs/objects/batch: upload addresses of missing files."""
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
    """PUT /_lfs/<sha256>. An incomplete upload does not count."""
    if hashlib.sha256(request.body).hexdigest() != oid:
        raise Refused(400, "", "The content does not have this sha256")
    state.repositories.large[oid] = request.body
    return Answer(200, b"", {"ETag": f'"{oid}"'})


def lfs_verify(state: State, request: Request, oid: str) -> Answer:
    """POST /_lfs/<sha256>/verify."""
    if oid not in state.repositories.large:
        raise Refused(404, "", "Object does not exist")
    return Answer.of({})


def lfs_get(state: State, request: Request, oid: str) -> Answer:
    """GET /_lfs/<sha256>: target of redirected downloads of large files, without authentication."""
    data = state.repositories.large.get(oid)
    if data is None:
        raise Refused(404, "", "Not found")
    return content(request, data, {"ETag": f'"{oid}"'})


def xet_token(state: State, request: Request, kind: str, repository: str, what: str, revision: str = "main") -> Answer:
    """GET /api/<kind>s/<repository>/xet-write-token/<revision>: upload address of large files for a client with Xet.

    Large files are read by HTTP: answers contain no Xet hash, so clients request no token for reading.
    """
    state.writable(request, kind, repository).sha(revision)
    if what == "read":
        raise Refused(404, "", "Nothing is read from there")
    return state.xet.token()


def resolve(state: State, request: Request, kind: str, repository: str, revision: str, path: str) -> Answer:
    """GET or HEAD /[<kind>s/]<repository>/resolve/<revision>/<path>."""
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


# Repositories: creation, listing, and commits.


_DATE = "2026-01-01T00:00:00.000Z"


def whoami(state: State, request: Request) -> Answer:
    """GET /api/whoami-v2."""
    account = state.accounts.needed(request)
    orgs = [{"type": "org", "name": org} for org in account.orgs]
    token = {"displayName": "fake", "role": account.role}
    return Answer.of({"type": "user", "name": account.name, "orgs": orgs, "auth": {"accessToken": token}})


def create(state: State, request: Request) -> Answer:
    """POST /api/repos/create; private if requested, otherwise public as on the Hub."""
    asked = request.json()
    account = state.accounts.needed(request)
    kind = asked.get("type") or "model"
    namespace = asked.get("organization") or account.name
    repository = f"{namespace}/{asked['name']}"
    url = f"{request.base}/{'' if kind == 'model' else kind + 's/'}{repository}"
    check_write(account, namespace)
    with state.repositories.lock:
        if (kind, repository) in state.repositories.by_id:
            return Answer.of({"error": "You already created this repo", "url": url}, 409)
        private = asked.get("visibility") == "private" or bool(asked.get("private"))
        state.repositories.add(kind, repository, private=private)
    return Answer.of({"url": url, "name": repository, "id": repository})


def delete(state: State, request: Request) -> Answer:
    """DELETE /api/repos/delete."""
    asked = request.json()
    account = state.accounts.needed(request)
    repository = f"{asked.get('organization') or account.name}/{asked['name']}"
    kind = asked.get("type") or "model"
    state.writable(request, kind, repository)
    with state.repositories.lock:
        del state.repositories.by_id[kind, repository]
    return Answer.of({})


def validate_yaml(state: State, request: Request) -> Answer:
    """POST /api/validate-yaml: all input is valid."""
    return Answer.of({"errors": [], "warnings": []})


def auth_check(state: State, request: Request, kind: str, repository: str, write: str = "") -> Answer:
    """GET /api/<kind>s/<repository>/auth-check[/write]."""
    if write:
        state.writable(request, kind, repository)
    else:
        state.readable(request, kind, repository)
    return Answer.of({})


def info(state: State, request: Request, kind: str, repository: str, revision: str = "main") -> Answer:
    """GET /api/<kind>s/<repository>[/revision/<revision>]."""
    found, _ = state.readable(request, kind, repository)
    sha = found.sha(revision)
    shown = {
        "_id": "0",
        "id": found.id,
        "author": found.namespace,
        "sha": sha,
        "private": found.private,
        "gated": "manual" if found.gated else False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": [],
        "createdAt": _DATE,
        "lastModified": found.log.get(revision, [("", "", _DATE)])[0][2],
        "siblings": [{"rfilename": path} for path in found.commits[sha]],
    }
    return Answer.of(shown)


def refs(state: State, request: Request, kind: str, repository: str) -> Answer:
    """GET /api/<kind>s/<repository>/refs."""
    found, _ = state.readable(request, kind, repository)
    branches = [{"name": name, "ref": f"refs/heads/{name}", "targetCommit": sha} for name, sha in found.refs.items()]
    return Answer.of({"branches": branches, "tags": [], "converts": [], "pullRequests": []})


def branch(state: State, request: Request, kind: str, repository: str, branch: str) -> Answer:
    """POST /api/<kind>s/<repository>/branch/<branch>, from main or `startingPoint`."""
    found = state.writable(request, kind, repository)
    start = request.json().get("startingPoint") if request.body else None
    with state.repositories.lock:
        if branch in found.refs:
            return Answer.of({"error": "Reference already exists"}, 409)
        found.refs[branch] = found.sha(start or "main")
    return Answer.of({})


def commits(state: State, request: Request, kind: str, repository: str, revision: str) -> Answer:
    """GET /api/<kind>s/<repository>/commits/<revision>, the newest first."""
    found, _ = state.readable(request, kind, repository)
    found.sha(revision)
    log = found.log.get(revision, [])
    return page(
        request,
        [
            {"id": sha, "title": title, "message": "", "date": date, "authors": [{"user": "tester"}]}
            for sha, title, date in log
        ],
    )


def tree(state: State, request: Request, kind: str, repository: str, revision: str, path: str = "") -> Answer:
    """GET /api/<kind>s/<repository>/tree/<revision>[/<path>]."""
    found, _ = state.readable(request, kind, repository)
    recursive = request.query.get("recursive", "").lower() in ("true", "1")
    expand = request.query.get("expand", "").lower() in ("true", "1")
    below = f"{path.strip('/')}/" if path.strip("/") else ""
    files: list[dict[str, Any]] = []
    folders: set[str] = set()
    for name, entry in sorted(found.tree(revision).items()):
        if not name.startswith(below):
            continue
        parts = name.removeprefix(below).split("/")
        folders.update(
            below + "/".join(parts[:end]) for end in range(1, len(parts) if recursive else min(2, len(parts)))
        )
        if recursive or len(parts) == 1:
            files.append(state.repositories.described(name, entry, expand=expand))
    if below and not files and not folders:
        raise Refused(404, "EntryNotFound", f'{path} does not exist on "{revision}"')
    return page(request, [*map(_folder, sorted(folders)), *files])


def _folder(path: str) -> dict[str, Any]:
    return {"type": "directory", "path": path, "oid": "0" * 40, "size": 0}


def paths_info(state: State, request: Request, kind: str, repository: str, revision: str) -> Answer:
    """POST /api/<kind>s/<repository>/paths-info/<revision>; missing paths are omitted."""
    found, _ = state.readable(request, kind, repository)
    there = found.tree(revision)
    expand = request.values("expand") == ["true"]
    shown: list[dict[str, Any]] = []
    for path in request.values("paths"):
        if path in there:
            shown.append(state.repositories.described(path, there[path], expand=expand))
        elif any(name.startswith(f"{path.rstrip('/')}/") for name in there):
            shown.append(_folder(path))
    return Answer.of(shown)


def preupload(state: State, request: Request, kind: str, repository: str, revision: str) -> Answer:
    """POST /api/<kind>s/<repository>/preupload/<revision>: storage kind and current state of each file."""
    found = state.writable(request, kind, repository)
    there = found.tree(revision)
    shown = []
    for file in request.json()["files"]:
        mode, ignore = upload_mode(there, file["path"], file["size"])
        now = there.get(file["path"])
        oid = etag_of(now) if now else None
        shown.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": ignore, "oid": oid})
    return Answer.of({"files": shown, "commitOid": found.sha(revision)})


def commit(state: State, request: Request, kind: str, repository: str, revision: str) -> Answer:
    """POST /api/<kind>s/<repository>/commit/<revision>: all operations or none."""
    found = state.writable(request, kind, repository)
    header, *operations = request.rows()
    with state.repositories.lock:
        sha = found.sha(revision)
        parent = header["value"].get("parentCommit")
        if parent and not sha.startswith(parent):
            raise Refused(412, "", "A commit has happened since. Please refresh and try again.")
        large = {row["value"]["oid"] for row in operations if row["key"] == "lfsFile"}
        state.repositories.large.update(state.xet.take_large(large - state.repositories.large.keys()))
        changed: dict[str, Entry | None] = {}
        for operation in operations:
            changed.update(_changes(state, found.commits[sha], operation["key"], operation["value"]))
        state.quota.count()
        made = state.repositories.commit(found, revision, changed, header["value"].get("summary", ""))
    url = f"{request.base}/{kind}s/{found.id}/commit/{made}"
    return Answer.of({"success": True, "commitOid": made, "commitUrl": url, "hookOutput": ""})


def _changes(state: State, there: dict[str, Entry], what: str, value: dict[str, Any]) -> dict[str, Entry | None]:
    path = value["path"]
    if what == "file":
        return {path: Entry(base64.b64decode(value["content"]))}
    if what == "lfsFile":
        if value["oid"] not in state.repositories.large:
            raise Refused(
                400, "", f"Your push was rejected because an LFS pointer pointed to a file that does not exist: {path}"
            )
        return {path: Entry(sha256=value["oid"])}
    if what == "deletedFile":
        if path not in there:
            raise Refused(404, "EntryNotFound", f"A file with this name doesn't exist: {path}")
        return {path: None}
    raise Refused(400, "", f"unknown operation {what}")
