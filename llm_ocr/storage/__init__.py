"""Object stores: keys and bytes under a workspace URL. Keys are relative, use `/`, and contain no `..`."""

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from llm_ocr.errors import ObjectChanged, ObjectExists, StorageError


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """Stored object: `size` in bytes, `version` a token that changes with its content.

    `modified` is the time of the last write, in seconds since 1970 by the store's clock.
    """

    key: str
    size: int
    version: str
    modified: float = 0.0


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Capabilities of a store, found by experiment.

    `create`: exactly one of many creators of a key succeeds. `swap`: exactly one of many replacements of an object's
    version succeeds. Leases need both. `note` explains a missing capability or another difference from other stores.
    """

    create: bool
    swap: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Options to reach a store. None leaves a value to the SDK's own files and environment. Folders need none.

    `profile` names a profile of the AWS configuration. `endpoint` is the URL of another server than the provider's.
    `token` is a secret that is never shown. `any_key`: read objects of other origin, whatever their names; without it,
    only keys that a workspace may hold. `role` is the prefix of the settings in messages: `workspace`, `source`, or
    `output`.
    """

    profile: str | None = None
    endpoint: str | None = None
    region: str | None = None
    token: str | None = field(default=None, repr=False)
    any_key: bool = field(default=False, kw_only=True)
    role: str = field(default="workspace", kw_only=True)

    def named(self, option: str, value: str = "") -> str:
        """Return the setting of an option for messages: `workspace_region=eu-west-1`, in backticks."""
        return f"`{self.role}_{option}={value}`" if value else f"`{self.role}_{option}`"


@dataclass(frozen=True, slots=True)
class Advice:
    """Meaning of a failed request: problem and remedy, and whether the same call may succeed later."""

    what: str
    hint: str = ""
    retryable: bool = False


class ObjectStore(Protocol):
    """Storage system of a workspace. Methods block: async code calls them in threads, several at once.

    All methods raise `StorageError`, also for an invalid key (`storage.names.check_key`, without it for `any_key`), a
    missing bucket, and a local file. `get`, `fetch`, `download`, and `read_range` raise `ObjectNotFound` for a missing
    key. Throttling and transient failures have been retried before an error is raised. An error whose call may succeed
    later has `retryable = True`; its `hint` says what the user can do. No message contains a secret.

    `create`, `fetch`, and `swap` return the same version tokens as `stat` and `list`. Two contents of a key never have
    the same token.

    `BaseStore` has default members for stores that do not batch writes.
    """

    @property
    def most_files(self) -> int | None:
        """Upper limit of files that a plan may need; None for no limit."""

    @property
    def gathers(self) -> bool:
        """Whether the store batches writes into few commits."""

    def flush(self) -> None:
        """Return when all batched writes are durable.

        Raises:
            StorageError: a write failed.
        """

    def share(self, workers: int) -> None:
        """Take an equal share of the commits among `workers` concurrent processes."""

    @property
    def url(self) -> str:
        """URL of the workspace as shown to users."""

    def get(self, key: str) -> bytes:
        """Return the whole object."""

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Return `length` bytes from `start`: fewer at the end of the object, none after it."""

    def put(self, key: str, data: bytes) -> None:
        """Write the whole object, replacing an older one. The object is durable on return."""

    def create(self, key: str, data: bytes) -> str:
        """Write the object if it does not exist, and return its version.

        Exactly one of many callers succeeds, if `capabilities().create`. A request that is repeated after a lost
        response may find its own write: that is success, and equal bytes do not prove it.

        Raises:
            ObjectExists: the object exists.
            StorageError: the object may have been written nevertheless; read it back.
        """

    def fetch(self, key: str) -> tuple[bytes, str]:
        """Return the whole object and the version of these bytes."""

    def swap(self, key: str, data: bytes, version: str) -> str:
        """Replace the object if it still has this version, and return the new version.

        Exactly one of many callers succeeds, if `capabilities().swap`. Otherwise a `StorageError` says that the store
        cannot swap. A concurrent `put` may be lost: write a key either by `put` or by `create` and `swap`.

        Raises:
            ObjectChanged: the object has another version or is gone.
            StorageError: the object may have been replaced nevertheless; read it back.
        """

    def upload(self, path: Path, key: str) -> None:
        """Write a local file as an object, as `put` does."""

    def download(self, key: str, path: Path) -> None:
        """Write the object to a local file, completely or not at all."""

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """List objects whose key begins with `prefix`, in key order, after `start_after`, without unfinished writes.

        A prefix may end within a name. `start_after` need not be a key. Names that are no keys are left out.
        """

    def unfinished(self) -> Iterator[ObjectInfo]:
        """List leftovers of interrupted writes. They are not objects, only used space; `delete` accepts their keys."""

    def stat(self, key: str) -> ObjectInfo | None:
        """Return an object's data without its content, or None if there is no such object."""

    def delete(self, key: str) -> None:
        """Remove the object. No error if it does not exist."""

    def capabilities(self) -> Capabilities:
        """Return the store's capabilities, found by writing. The first result is cached, and nothing is left behind."""

    def check(self) -> None:
        """Check by writing that the store can hold a workspace.

        Raises:
            StorageError: the store cannot be used.
            UsageError: a setting is wrong or missing; the message names the setting and the remedy.
        """


class BaseStore:
    """Default members of `ObjectStore` for a store whose writes are durable at once.

    A store adds `url`, `fetch`, `read_range`, `put`, `create`, `swap`, `upload`, `download`, `list`, `unfinished`,
    `stat`, and `delete`.
    """

    most_files: int | None = None
    gathers = False

    def fetch(self, key: str) -> tuple[bytes, str]:
        """Return the whole object and its version."""
        raise NotImplementedError

    def get(self, key: str) -> bytes:
        """Return the whole object."""
        return self.fetch(key)[0]

    def flush(self) -> None:
        """Return at once: no write is pending."""

    def share(self, workers: int) -> None:
        """Ignore the number of workers: they share no limit."""

    def capabilities(self: ObjectStore) -> Capabilities:
        """Find the capabilities with an object below `names.PROBES`, which `list` must leave out.

        The object is created twice, and a version is swapped twice.
        """
        found: Capabilities | None = self.__dict__.get("_capabilities")
        if found is None:
            key = _probe()
            version = self.create(key, b"1")
            try:
                create = _refused(lambda: self.create(key, b"2"), ObjectExists)
                swap = create and self.swap(key, b"3", version) != version
                swap = swap and _refused(lambda: self.swap(key, b"4", version), ObjectChanged)
            finally:
                self.delete(key)
            note = "" if create and swap else "the server does not honour conditions of requests"
            found = self.__dict__["_capabilities"] = Capabilities(create, swap, note)
        return found

    def check(self: ObjectStore) -> None:
        """Write, read, list, and remove an object below `names.PROBES`, which only `unfinished` may list."""
        key, written = _probe(), secrets.token_bytes(16)
        self.create(key, written)
        try:
            if self.get(key) != written:
                raise StorageError(f"cannot use {self.url}: the content read differs from the content written")
            if key not in {info.key for info in self.unfinished()}:
                raise StorageError(f"cannot use {self.url}: the listing lacks the written object")
        finally:
            self.delete(key)


def _probe() -> str:
    from llm_ocr.storage.names import PROBES  # which imports this module

    return f"{PROBES}{secrets.token_hex(16)}"


def _refused(attempt: Callable[[], object], error: type[StorageError]) -> bool:
    try:
        attempt()
    except error:
        return True
    return False


#: Nothing except the SDK's own configuration.
DEFAULT_OPTIONS = StoreOptions()


def open_store(url: str, options: StoreOptions = DEFAULT_OPTIONS) -> ObjectStore:
    """Return the store for a workspace URL, without reading, writing, or connecting. Folders ignore `options`.

    FOLDER, file:///FOLDER              a folder, also on a file system shared by many machines
    s3://BUCKET/PREFIX                  S3, and S3-compatible services (`options.endpoint`)
    gs://BUCKET/PREFIX                  Google Cloud Storage
    hf://buckets/NS/NAME/PREFIX         a storage bucket of the Hugging Face Hub
    hf://datasets/NS/NAME[@REV]/PREFIX  a dataset repository of the Hub

    Raises:
        UsageError: the URL has another form.
        MissingExtra: the client library is not installed.
    """
    from llm_ocr.storage.opening import open_url

    return open_url(url, options)


def register_store(scheme: str, opener: Callable[[str, StoreOptions], ObjectStore]) -> None:
    """Support workspaces at `SCHEME://…`. See examples/custom_store.py.

    The registration is for this process. A package registers its store for all processes with an entry point of the
    group `llm_ocr.stores`, which the command line finds as well.

    Args:
        scheme: lowercase letters and digits.
        opener: returns the store of such a URL.

    Raises:
        UsageError: the scheme is built in.
    """
    from llm_ocr.storage.opening import register

    register(scheme, opener)
