"""Find by writing what a store can do. The objects are below `PROBES` and are removed."""

import secrets
from collections.abc import Callable

from llm_ocr.errors import ObjectChanged, ObjectExists, StorageError
from llm_ocr.storage import Capabilities, ObjectStore
from llm_ocr.storage.names import PROBES


def capabilities_of(store: ObjectStore) -> Capabilities:
    """Try to create an object twice, and to swap a version twice.

    Raises:
        StorageError: a request failed.
    """
    key = _probe()
    version = store.create(key, b"1")
    try:
        create = _refused(lambda: store.create(key, b"2"), ObjectExists)
        swap = create and store.swap(key, b"3", version) != version
        swap = swap and _refused(lambda: store.swap(key, b"4", version), ObjectChanged)
    finally:
        store.delete(key)
    return Capabilities(create, swap, "" if create and swap else "the server does not honour conditions of requests")


def check(store: ObjectStore) -> None:
    """Write, read, list, and remove an object.

    Raises:
        StorageError: a request failed, or the server forgets what it was told.
    """
    key, written = _probe(), secrets.token_bytes(16)
    store.create(key, written)
    if store.get(key) != written:
        raise StorageError(f"cannot use {store.url}: the content read differs from the content written")
    if key not in {info.key for info in store.unfinished()}:
        raise StorageError(f"cannot use {store.url}: the listing lacks the written object")
    store.delete(key)


def _probe() -> str:
    return f"{PROBES}{secrets.token_hex(16)}"


def _refused(attempt: Callable[[], object], error: type[StorageError]) -> bool:
    try:
        attempt()
    except error:
        return True
    return False
