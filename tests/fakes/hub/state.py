"""State of the fake Hub: repositories as commits and trees, and the content store that hf_xet uses."""

import contextlib
import fnmatch
import hashlib
import itertools
import secrets
import shutil
import struct
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.hub.answers import Account, Accounts, Answer, Refused, Request, check_read, check_write, iso
from tests.fakes.hub.jobs import Jobs

# Repositories: commits as whole trees, and large files by their sha256.


#: Relevant suffixes that a new repository on the Hub stores as large files.
_LARGE = (".parquet", ".arrow", ".whl", ".png", ".jpg", ".jpeg", ".tiff", ".pdf", ".zip", ".tar", ".gz", ".bin")
_LARGEST_REGULAR = 10_000_000


@dataclass(frozen=True, slots=True)
class Entry:
    """File of a tree: `data`, or `sha256` of a large file. Written by `commit` at `date` (ISO)."""

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
        """Return the commit of a branch or commit id. Raises `Refused`."""
        found = self.refs.get(revision.removeprefix("refs/heads/"))
        if found is None and revision in self.commits:
            found = revision
        if found is None:
            raise Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return found

    def tree(self, revision: str) -> dict[str, Entry]:
        """Return the files of a revision by path."""
        return self.commits[self.sha(revision)]


@dataclass(slots=True)
class Repositories:
    """All repositories, by kind (`dataset`, `model`, `space`) and id. Every change holds `lock`."""

    by_id: dict[tuple[str, str], Repository] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def add(self, kind: str, repository: str, *, private: bool = True) -> Repository:
        """Add a repository with one commit."""
        made = Repository(kind, repository, private)
        with self.lock:
            self.by_id[kind, repository] = made
            self.commit(made, "main", {".gitattributes": Entry(b"*.parquet filter=lfs\n")}, "initial commit")
        return made

    def get(self, kind: str, repository: str) -> Repository:
        """Return the repository, or raise `Refused` (404)."""
        found = self.by_id.get((kind, repository))
        if found is None:
            raise Refused(404, "RepoNotFound", "Repository not found")
        return found

    def commit(self, repository: Repository, branch: str, changed: dict[str, Entry | None], title: str) -> str:
        """Create a commit on the branch, and return its id; None removes a file."""
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
        """Return a file's bytes."""
        return self.large[entry.sha256] if entry.sha256 else entry.data

    def described(self, path: str, entry: Entry, *, expand: bool = False) -> dict[str, Any]:
        """Return a file as in listings."""
        data = self.content(entry)
        shown: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": oid_of(self, entry)}
        if entry.sha256:
            shown["lfs"] = {"oid": entry.sha256, "size": len(data), "pointerSize": len(_pointer(entry, len(data)))}
        if expand:
            shown["lastCommit"] = {"id": entry.commit, "title": "", "date": entry.date}
        return shown


def upload_mode(tree: dict[str, Entry], path: str, size: int) -> tuple[str, bool]:
    """Return whether a file is stored as `lfs` or `regular`, and whether the repository's .gitignore excludes it."""
    ignored = tree.get(".gitignore", Entry()).data.decode(errors="replace").split()
    name = path.rpartition("/")[2]
    ignore = any(fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(path, pattern) for pattern in ignored)
    return "lfs" if size > _LARGEST_REGULAR or path.endswith(_LARGE) else "regular", ignore


def oid_of(repositories: Repositories, entry: Entry) -> str:
    """Return the git object id; for a large file, that of its pointer."""
    if not entry.sha256:
        return _blob(entry.data)
    return _blob(_pointer(entry, len(repositories.content(entry))))


def etag_of(entry: Entry) -> str:
    """Return the Hub's ETag of a file: the git object id, or the sha256 of a large file."""
    return entry.sha256 or _blob(entry.data)


def _blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _pointer(entry: Entry, size: int) -> bytes:
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{entry.sha256}\nsize {size}\n".encode()


class CommitQuota:
    """Maximum commits per hour over all repositories; None for no limit."""

    def __init__(self, per_hour: int | None = None) -> None:
        self.per_hour = per_hour
        self._times: list[float] = []

    def made(self) -> int:
        """Return the number of commits in the last hour."""
        now = time.monotonic()
        self._times = [at for at in self._times if now - at < 3600]
        return len(self._times)

    def count(self) -> None:
        """Count a commit. Raises `Refused` (429), with the seconds to wait, above the limit."""
        now = time.monotonic()
        self.made()
        if self.per_hour is not None and len(self._times) >= self.per_hour:
            wait = int(3600 - (now - self._times[0])) + 1
            message = f"You have exceeded the rate limit for repository commits ({self.per_hour} per hour)."
            raise Refused(429, "", message, headers={"Retry-After": str(wait)})
        self._times.append(now)


# Content of buckets, and large files of repositories: hf_xet's own store in folders, without servers. The client
# receives `local:///FOLDER` as the address of the store, and reads or writes there itself, in any process. The client
# keeps the folder's index locked until its process exits. Each token is therefore for a separate folder, and the server
# reads a copy.


_EMPTY = "0" * 64
_RECORD = 48
_TOKEN_SECONDS = 3600


class LocalXet:
    """Content by its Xet hash. `folder` is created and removed with the server."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="llm-ocr-fake-hub-"))
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._contents: dict[str, bytes] = {_EMPTY: b""}
        self._by_sha256: dict[str, str] = {}
        self._session: Any = None

    def token(self, contents: Iterable[bytes] | None = None) -> Answer:
        """Return the connection data for a client that will send content, or read some of `contents`."""
        address = f"local://{self._new('w')}" if contents is None else self._made_of(contents)
        until = int(time.time()) + _TOKEN_SECONDS
        headers = {
            "X-Xet-Cas-Url": address,
            "X-Xet-Access-Token": "fake",
            "X-Xet-Token-Expiration": str(until),
        }
        return Answer.of({"casUrl": address, "accessToken": "fake", "exp": until}, headers=headers)

    def _made_of(self, contents: Iterable[bytes]) -> str:
        from hf_xet import SKIP_SHA256  # type: ignore[import-untyped]  # the package has no types

        made, given = self._new("m"), self._new("r")
        with self._sessions().new_upload_commit(endpoint=f"local://{made}") as commit:
            for content in contents:
                commit.start_upload_bytes(content, sha256=SKIP_SHA256)
        shutil.copytree(made, given)
        return f"local://{given}"

    def take(self, hashes: Iterable[str]) -> None:
        """Read the content that clients have sent, by Xet hash; missing content stays unknown."""
        with self._lock:
            self._take({one for one in hashes if one not in self._contents})

    def take_large(self, sha256s: Iterable[str]) -> dict[str, bytes]:
        """Return the contents of repositories that clients have sent, by sha256."""
        with self._lock:
            wanted = set(sha256s)
            self._take(wanted)
            return {sha256: self._contents[self._by_sha256[sha256]] for sha256 in wanted if sha256 in self._by_sha256}

    def get(self, xet_hash: str) -> bytes:
        """Return the content. Raises `Refused` (422) if no client has sent it."""
        found = self._contents.get(xet_hash)
        if found is None:
            raise Refused(422, "", f"no content with the hash {xet_hash}")
        return found

    def _take(self, wanted: set[str]) -> None:
        """Read the folders with wanted content: a client requests only after it has sent all of a folder."""
        for folder in sorted(self.folder.glob("w*")) if wanted else ():
            shards = [path.read_bytes() for path in folder.glob("xet/xorbs/shards/*.mdb")]
            files = dict(itertools.chain.from_iterable(map(_files, shards)))
            if wanted & {*files, *files.values()}:
                self._contents.update(self._read(folder, sorted(files)))
                self._by_sha256.update({sha256: xet_hash for xet_hash, sha256 in files.items() if sha256})
                shutil.rmtree(folder)

    def _read(self, folder: Path, hashes: list[str]) -> Iterator[tuple[str, bytes]]:
        from hf_xet import XetFileInfo

        copy = self._new("c")
        shutil.copytree(folder, copy)
        with self._sessions().new_download_stream_group(endpoint=f"local://{copy}") as group:
            for one in hashes:
                yield one, b"".join(group.download_stream(XetFileInfo(one)))
        shutil.rmtree(copy)

    def _new(self, letter: str) -> Path:
        return self.folder / f"{letter}{next(self._numbers):06d}"

    def _sessions(self) -> Any:
        if self._session is None:
            from hf_xet import XetSession

            self._session = XetSession()
        return self._session

    def close(self) -> None:
        """Remove the folder."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.folder)


def _files(shard: bytes) -> Iterator[tuple[str, str]]:
    """Yield Xet hash and sha256 (empty for a bucket's) of the files in a shard.

    A shard has a header, followed by records of 48 bytes per file. The first has hash, flags and number of segments,
    and 8 unused bytes. The segments follow, then as many proofs (with the highest flag), then the sha256 (with the next
    flag). A hash of ones ends the files (as hf_xet 1.8 writes them).
    """
    at = _RECORD
    while shard[at : at + 32] != b"\xff" * 32:
        flags, segments = struct.unpack_from("<II", shard, at + 32)
        records = 1 + segments * (1 + (flags >> 31)) + (flags >> 30 & 1)
        last = at + (records - 1) * _RECORD
        yield _hex(shard[at : at + 32]), _hex(shard[last : last + 32]) if flags >> 30 & 1 else ""
        at += records * _RECORD


def _hex(raw: bytes) -> str:
    """Return a hash in hex: stored as four numbers of eight bytes, the lowest byte first."""
    return b"".join(raw[at : at + 8][::-1] for at in range(0, 32, 8)).hex()


# State of the server.


@dataclass(slots=True)
class BucketFile:
    """File of a bucket; times in ISO."""

    xet_hash: str
    data: bytes
    mtime: str
    uploaded: str


@dataclass(slots=True)
class Bucket:
    """Files by path."""

    id: str
    private: bool
    created: str
    files: dict[str, BucketFile] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        return self.id.partition("/")[0]


@dataclass(slots=True)
class State:
    """Repositories, buckets, accounts, jobs; every change holds `repositories.lock`."""

    repositories: Repositories = field(default_factory=Repositories)
    buckets: dict[str, Bucket] = field(default_factory=dict)
    accounts: Accounts = field(default_factory=Accounts)
    quota: CommitQuota = field(default_factory=CommitQuota)
    xet: LocalXet = field(default_factory=LocalXet)
    jobs: Jobs = field(default_factory=Jobs)

    def readable(self, request: Request, kind: str, repository: str) -> tuple[Repository, Account | None]:
        """Return the repository and the account. Raises `Refused` if the account may not read the repository."""
        account = self.accounts.of(request)
        namespace = repository.partition("/")[0]
        if (kind, repository) not in self.repositories.by_id:
            check_read(account, namespace, private=account is None)
        found = self.repositories.get(kind, repository)
        check_read(account, namespace, private=found.private)
        if found.gated and (account is None or not account.owns(namespace)):
            raise Refused(403, "GatedRepo", f"Access to {kind} {repository} is restricted.")
        return found, account

    def writable(self, request: Request, kind: str, repository: str) -> Repository:
        """Return the repository. Raises `Refused` if the account may not write to it."""
        found, account = self.readable(request, kind, repository)
        check_write(account, found.namespace)
        return found

    def bucket(self, request: Request, bucket: str, *, write: bool = False) -> Bucket:
        """Return the bucket. Raises `Refused` as for repositories."""
        account = self.accounts.of(request)
        namespace = bucket.partition("/")[0]
        found = self.buckets.get(bucket)
        check_read(account, namespace, private=found.private if found else account is None)
        if found is None:
            raise Refused(404, "RepoNotFound", "Bucket not found")
        if write:
            check_write(account, namespace)
        return found
