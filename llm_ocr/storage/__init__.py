"""Keys and bytes under a workspace URL. Keys are relative, with `/`, never empty and never with `..`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object: `size` in bytes, `version` a token that changes with its content.

    `modified` is when it was written, in seconds since 1970 by the clock of the store.
    """

    key: str
    size: int
    version: str
    modified: float = 0.0


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store honours, found by trying it.

    `create`: of many creators of one key exactly one succeeds. `swap`: the same for replacing one version of an object;
    leases need both. `note` says in words why one of them is missing, or what else differs from other stores.
    """

    create: bool
    swap: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How to reach a store; None leaves it to the SDK's own files and environment. A folder needs none of them.

    `profile` names a profile of the AWS configuration, `endpoint` is the URL of another server than the provider's,
    `token` a secret that is never shown. `any_key`: objects are read that others have made, whatever their names are;
    without it only those that a workspace may hold.
    """

    profile: str | None = None
    endpoint: str | None = None
    region: str | None = None
    token: str | None = field(default=None, repr=False)
    any_key: bool = field(default=False, kw_only=True)


class ObjectStore(Protocol):
    """What a workspace needs of a storage system. Methods block: async code calls them in threads, several at once.

    All raise `StorageError`, also for what is no key (see `storage.names`); `get`, `fetch`, `download` and `read_range`
    raise `ObjectNotFound` for a missing key. Throttling and passing failures were retried before an error is raised.

    `create`, `fetch` and `swap` give version tokens: the same that `stat` and `list` show for the object. Two contents
    of a key never have the same one.

    `BaseStore` has the members that concern only stores that gather writes, with defaults for all others.
    """

    @property
    def most_files(self) -> int | None:
        """The largest number of files that a plan may need; None for no limit."""

    @property
    def gathers(self) -> bool:
        """Whether the store gathers writes into few commits."""

    def flush(self) -> None:
        """Return when all gathered writes are durable. Raises `StorageError`."""

    def share(self, workers: int) -> None:
        """Take an equal share of the commits among `workers` processes that write at the same time."""

    @property
    def url(self) -> str:
        """The workspace's URL, as it is shown to users."""

    def get(self, key: str) -> bytes:
        """The whole object."""

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """`length` bytes from `start` (fewer at the end of the object)."""

    def put(self, key: str, data: bytes) -> None:
        """Write the object whole, replacing an older one; durable when it returns."""

    def create(self, key: str, data: bytes) -> str:
        """Write the object if none is there, and give its version; raise `ObjectExists` otherwise.

        Exactly one of many callers succeeds, where `capabilities().create`. After any other `StorageError` the object
        may have been written all the same: read it back.
        """

    def fetch(self, key: str) -> tuple[bytes, str]:
        """The whole object and the version that these bytes are."""

    def swap(self, key: str, data: bytes, version: str) -> str:
        """Replace the object if it still is of this version, and give the new one.

        Raises `ObjectChanged` when it is of another version or gone. Exactly one of many callers succeeds, where
        `capabilities().swap`; elsewhere a `StorageError` says that it cannot be done. After any other `StorageError`
        the object may have been replaced all the same: read it back. A `put` at the same moment may be lost: a key
        is written either by `put` or by `create` and `swap`.
        """

    def upload(self, path: Path, key: str) -> None:
        """`put` from a local file."""

    def download(self, key: str, path: Path) -> None:
        """Write the object to a local file, whole or not at all."""

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Objects whose key begins with `prefix`, in key order, after `start_after`. Unfinished writes are left out."""

    def unfinished(self) -> Iterator[ObjectInfo]:
        """What writes that were cut off have left behind: no objects, only space; `delete` takes their keys."""

    def stat(self, key: str) -> ObjectInfo | None:
        """None when there is no such object."""

    def delete(self, key: str) -> None:
        """Remove the object; no error when there is none."""

    def capabilities(self) -> Capabilities:
        """What this store honours, found by writing; the first answer is kept. Leaves nothing behind."""

    def check(self) -> None:
        """Prove by writing that a workspace can live here.

        Raises `StorageError`, or `UsageError` for wrong or missing settings, with the setting and what to do.
        """


class BaseStore:
    """The members of `ObjectStore` for a store whose writes are durable at once."""

    most_files: int | None = None
    gathers = False

    def flush(self) -> None:
        """Return: no write is pending."""

    def share(self, workers: int) -> None:
        """Ignore the number of workers: they share nothing."""


#: Nothing but what the SDK finds by itself.
DEFAULT_OPTIONS = StoreOptions()


def open_store(url: str, options: StoreOptions = DEFAULT_OPTIONS) -> ObjectStore:
    """The store for a workspace URL; nothing is read, written or connected to. `options` mean nothing to folders.

    FOLDER, file:///FOLDER              a folder, also one that many machines have mounted
    s3://BUCKET/PREFIX                  S3, and what speaks its language (`options.endpoint`)
    gs://BUCKET/PREFIX                  Google Cloud Storage
    hf://buckets/NS/NAME/PREFIX         a storage bucket of the Hugging Face Hub
    hf://datasets/NS/NAME[@REV]/PREFIX  a dataset repository of the Hub

    Raises `UsageError` for any other URL, `MissingExtra` when the client library is not installed.
    """
    from llm_ocr.storage.opening import open_url

    return open_url(url, options)


def register_store(scheme: str, opener: Callable[[str, StoreOptions], ObjectStore]) -> None:
    """Let workspaces stand at `SCHEME://…`: `opener` gives the store of such a URL. See examples/custom_store.py.

    For this process; a package does it for all by an entry point of the group `llm_ocr.stores`, which the command
    line finds as well. Raises `UsageError` for a scheme that the library has itself.
    """
    from llm_ocr.storage.opening import register

    register(scheme, opener)
