"""Buckets of the tests: folders behind the URLs of stores, through the real local store."""

from collections import Counter
from pathlib import Path

from web_servers import options

from llm_ocr.documents.remote import RemoteOptions
from llm_ocr.documents.remote.cache import Stores
from llm_ocr.documents.remote.listing import RemoteDocuments, RemoteListing
from llm_ocr.errors import StorageError
from llm_ocr.storage import StoreOptions
from llm_ocr.storage.local import LocalStore


class Bucket(LocalStore):
    """A folder that counts what is asked of it; `before` is called with the name of each call, and may raise."""

    def __init__(self, root: Path, before=lambda call, key: None) -> None:
        super().__init__(root)
        self.calls: Counter[str] = Counter()
        self._before = before

    def stat(self, key):
        self._count("stat", key)
        return super().stat(key)

    def read_range(self, key, start, length):
        self._count("read", key)
        return super().read_range(key, start, length)

    def fetch(self, key):
        self._count("read", key)
        return super().fetch(key)

    def list(self, prefix="", *, start_after=""):
        self._count("list", prefix)
        for info in super().list(prefix, start_after=start_after):
            self._count("listed", info.key)
            yield info

    def _count(self, call, key):
        self.calls[call] += 1
        self._before(call, key)


class Buckets:
    """`stores` gives the folders below `folder`, one for each bucket; `opened` says which were asked for, and how."""

    def __init__(self, folder: Path, before=lambda call, key: None) -> None:
        self._folder = folder
        self._before = before
        self.options = StoreOptions(profile="of-the-sources")
        self.opened: dict[str, Bucket] = {}
        self.stores = Stores(self.options, self._open)

    def _open(self, url, options):
        assert options is self.options
        assert url not in self.opened
        self.opened[url] = Bucket(self._folder / url.replace("://", "/"), self._before)
        return self.opened[url]

    def put(self, url: str, data: bytes = b"%PDF-1.5 x") -> str:
        path = self._folder / url.replace("://", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return url

    def listing(self, **options) -> RemoteListing:
        return RemoteListing(Counter(), {}, RemoteOptions(pause=0.01, **options), stores=self.stores)


def opened(buckets, tmp_path, **more):
    return RemoteDocuments(options(tmp_path / "copies", store=buckets.options, **more), stores=buckets.stores)


def copies(tmp_path):
    return [path for path in (tmp_path / "copies").rglob("*") if path.is_file() and path.name != ".lock"]


def used(documents):
    """Bytes on the local disk by the cache's own count."""
    return documents._cache._budget.used


async def version_of(documents, url):
    async with documents.open(url) as copy:
        return copy.version


class Passing(StorageError):
    retryable = True
