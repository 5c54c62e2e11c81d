"""Repositories: commits as whole trees, and the files of large content by their sha256."""

import fnmatch
import hashlib
import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from llm_ocr.testing.fake_hub.answers import Refused, iso

#: What a new repository on the Hub stores as large files, the kinds that matter here.
_LARGE = (".parquet", ".arrow", ".whl", ".png", ".jpg", ".jpeg", ".tiff", ".pdf", ".zip", ".tar", ".gz", ".bin")
_LARGEST_REGULAR = 10_000_000


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a tree: `data`, or `sha256` of a large file. `commit` wrote it at `date` (ISO)."""

    data: bytes = b""
    sha256: str = ""
    commit: str = ""
    date: str = ""


@dataclass(slots=True)
class Repository:
    """Trees by commit, and the newest commit of each branch. `log` has the newest first."""

    kind: str
    id: str
    private: bool
    gated: bool = False
    commits: dict[str, dict[str, Entry]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    log: dict[str, list[tuple[str, str, str]]] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        return self.id.partition("/")[0]

    def sha(self, revision: str) -> str:
        """The commit of a branch or commit id. Raises `Refused`."""
        found = self.refs.get(revision.removeprefix("refs/heads/"))
        if found is None and revision in self.commits:
            found = revision
        if found is None:
            raise Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return found

    def tree(self, revision: str) -> dict[str, Entry]:
        """The files of a revision by path."""
        return self.commits[self.sha(revision)]


@dataclass(slots=True)
class Repositories:
    """All repositories, by kind (`dataset`, `model`, `space`) and id. `lock` is held for every change."""

    by_id: dict[tuple[str, str], Repository] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def add(self, kind: str, repository: str, *, private: bool = True) -> Repository:
        """A new repository with one commit."""
        made = Repository(kind, repository, private)
        with self.lock:
            self.by_id[kind, repository] = made
            self.commit(made, "main", {".gitattributes": Entry(b"*.parquet filter=lfs\n")}, "initial commit")
        return made

    def get(self, kind: str, repository: str) -> Repository:
        """Raises `Refused` (404)."""
        found = self.by_id.get((kind, repository))
        if found is None:
            raise Refused(404, "RepoNotFound", "Repository not found")
        return found

    def commit(self, repository: Repository, branch: str, changed: dict[str, Entry | None], title: str) -> str:
        """A new commit on the branch: None removes a file. The new commit's id."""
        sha, date = secrets.token_hex(20), iso()
        with self.lock:
            before = repository.commits.get(repository.refs.get(branch, ""), {})
            tree = {path: entry for path, entry in before.items() if path not in changed}
            tree.update(
                {
                    path: Entry(entry.data, entry.sha256, sha, date)
                    for path, entry in changed.items()
                    if entry is not None
                }
            )
            repository.commits[sha] = tree
            repository.refs[branch] = sha
            repository.log.setdefault(branch, []).insert(0, (sha, title, date))
        return sha

    def content(self, entry: Entry) -> bytes:
        """A file's bytes."""
        return self.large[entry.sha256] if entry.sha256 else entry.data

    def described(self, path: str, entry: Entry, *, expand: bool = False) -> dict[str, Any]:
        """A file as listings show it."""
        data = self.content(entry)
        shown: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": oid_of(self, entry)}
        if entry.sha256:
            shown["lfs"] = {"oid": entry.sha256, "size": len(data), "pointerSize": len(_pointer(entry, len(data)))}
        if expand:
            shown["lastCommit"] = {"id": entry.commit, "title": "", "date": entry.date}
        return shown


def upload_mode(tree: dict[str, Entry], path: str, size: int) -> tuple[str, bool]:
    """Whether a file is stored as `lfs` or `regular`, and whether the repository's .gitignore leaves it out."""
    ignored = tree.get(".gitignore", Entry()).data.decode(errors="replace").split()
    name = path.rpartition("/")[2]
    ignore = any(fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(path, pattern) for pattern in ignored)
    return "lfs" if size > _LARGEST_REGULAR or path.endswith(_LARGE) else "regular", ignore


def oid_of(repositories: Repositories, entry: Entry) -> str:
    """The git object id: for a large file that of its pointer."""
    if not entry.sha256:
        return _blob(entry.data)
    return _blob(_pointer(entry, len(repositories.content(entry))))


def etag_of(entry: Entry) -> str:
    """What the Hub gives as a file's ETag: the git object id, or the sha256 of a large file."""
    return entry.sha256 or _blob(entry.data)


def _blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _pointer(entry: Entry, size: int) -> bytes:
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{entry.sha256}\nsize {size}\n".encode()


class CommitQuota:
    """So many commits an hour over all repositories; None for no limit."""

    def __init__(self, per_hour: int | None = None) -> None:
        self.per_hour = per_hour
        self._times: list[float] = []

    def made(self) -> int:
        """How many were made in the last hour."""
        now = time.monotonic()
        self._times = [at for at in self._times if now - at < 3600]
        return len(self._times)

    def count(self) -> None:
        """Count one. Raises `Refused` (429), with the seconds to wait, when there were too many."""
        now = time.monotonic()
        self.made()
        if self.per_hour is not None and len(self._times) >= self.per_hour:
            wait = int(3600 - (now - self._times[0])) + 1
            message = f"You have exceeded the rate limit for repository commits ({self.per_hour} per hour)."
            raise Refused(429, "", message, headers={"Retry-After": str(wait)})
        self._times.append(now)
