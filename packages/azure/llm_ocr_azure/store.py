"""The store of `az://CONTAINER/PREFIX`, over obstore. An object's version is its ETag."""

import contextlib
import re
import secrets
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from llm_ocr.errors import (
    LlmOcrError,
    MissingExtra,
    ObjectChanged,
    ObjectExists,
    ObjectNotFound,
    StorageError,
    UsageError,
)
from llm_ocr.storage import BaseStore, ObjectInfo, StoreOptions
from llm_ocr.storage.local import replacing, translated
from llm_ocr.storage.names import PROBES, BucketPlace, checked_prefix
from llm_ocr_azure.errors import LOST, code_of, made

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutMode
    from obstore.store import AzureConfig, ClientConfig
    from obstore.store import AzureStore as Client

_FORM = "Give az://CONTAINER/PREFIX."
_SET = "Set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN."
#: Azure's rule for containers.
_CONTAINER = re.compile(r"(?=.{3,63}$)[a-z0-9](?:-?[a-z0-9])+")
#: Larger files are uploaded in parts. Two concurrent writers of a key would mix their parts: most files go up whole.
_WHOLE = 64 << 20
#: Attribute of objects with their writer, by which a repeated request recognizes its own write.
_WRITER = "writer"
_TRIES = 3


class Place(BucketPlace):
    """Prefix in a container."""

    __slots__ = ()
    scheme = "az"


def open_azure(url: str, options: StoreOptions) -> "AzureStore":
    """Return the store for `az://CONTAINER/PREFIX`, without a request.

    Account and credentials come from Azure's variables, such as AZURE_STORAGE_ACCOUNT_NAME.

    Args:
        url: The URL.
        options: Endpoint, and a bearer token instead of other credentials.

    Returns:
        The store.

    Raises:
        UsageError: The URL or an option is invalid.
        MissingExtra: obstore is not installed.
    """
    container, _, prefix = re.sub(r"^[^:]*:/*", "", url).partition("/")
    if {"@", ":", "?"} & set(container) or re.search(r"[?&]sig=", prefix):  # may hold a secret: not repeated
        raise UsageError("an az:// URL must not contain credentials", hint=f"{_FORM} {_SET}")
    if not _CONTAINER.fullmatch(container):
        raise UsageError(f"{url}: {container!r} cannot be the name of a container", hint=_FORM)
    for option in ("profile", "region"):
        if getattr(options, option):
            raise UsageError(f"{options.named(option)} has no effect on az://", hint=f"Remove it. {_SET}")
    if options.endpoint and not _is_endpoint(options.endpoint):
        raise UsageError(
            f"{options.named('endpoint')} is not an http or https URL of a host",
            hint="Give it as https://HOST or http://localhost:10000/ACCOUNT, without user, query, or fragment.",
        )
    try:
        import obstore  # noqa: F401 - proves that it is there
    except ImportError as error:
        raise MissingExtra("az:// needs obstore, which is not installed", install="azure") from error
    return AzureStore(Place(container, checked_prefix(url, prefix.removesuffix("/"), _FORM), options.any_key), options)


def _is_endpoint(url: str) -> bool:
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and not {"@", "?", "#"} & set(url)
    return False


class AzureStore(BaseStore):
    """Objects below a prefix of a container."""

    def __init__(self, place: Place, options: StoreOptions) -> None:
        """Keep place and options; the first request connects."""
        self._place, self._options, self.url = place, options, place.url

    @cached_property
    def _client(self) -> "Client":
        from obstore.exceptions import BaseError
        from obstore.store import AzureStore as Client

        config: AzureConfig = {}
        network: ClientConfig = {"timeout": timedelta(minutes=5)}
        if endpoint := self._options.endpoint:
            config["endpoint"] = endpoint
            network["allow_http"] = endpoint.startswith("http://")
        if self._options.token:
            config["token"] = self._options.token
        try:
            return Client(self._place.bucket, config=config, client_options=network, retry_config={"max_retries": 5})
        except BaseError as error:
            if "Account must be specified" in str(error):
                raise UsageError(f"{self.url}: the storage account is not set", hint=_SET) from None
            raise made(error, f"cannot open {self.url}", self._place.bucket, self._options.endpoint) from None

    def _name(self, key: str) -> str:
        if "\\" in key:
            raise StorageError(f"{key!r} cannot be the name of an object: Azure reads a backslash as a slash")
        return self._place.inside(key)

    @contextlib.contextmanager
    def _doing(self, action: str, key: str) -> Iterator[None]:
        """Raise the library's errors for the client's, without these: they may contain a signed URL."""
        from obstore.exceptions import BaseError

        where = f"{self.url}/{key}".rstrip("/")
        try:
            yield
        except LlmOcrError:
            raise
        except (BaseError, FileNotFoundError, ValueError) as error:
            if isinstance(error, FileNotFoundError) and code_of(error) != "ContainerNotFound":
                raise ObjectNotFound(f"no object {where}") from None
            raise made(error, f"cannot {action} {where}", self._place.bucket, self._options.endpoint) from None

    def fetch(self, key: str) -> tuple[bytes, str]:
        name = self._name(key)
        with self._doing("read", key):
            found = self._client.get(name)
            return bytes(found.bytes()), _version(found.meta["e_tag"])

    def read_range(self, key: str, start: int, length: int) -> bytes:
        name = self._name(key)
        try:
            with self._doing("read", key):
                return bytes(self._client.get_range(name, start=start, length=max(length, 1)))[:length]
        except ObjectNotFound:
            raise
        except StorageError:  # also for a range that begins at the end
            info = self.stat(key)
            if info is None or start < info.size:
                raise
            return b""

    def put(self, key: str, data: bytes) -> None:
        name = self._name(key)
        with self._doing("write", key):
            self._client.put(name, data, use_multipart=False)

    def create(self, key: str, data: bytes) -> str:
        version = self._put_if(key, data, "create")
        if version is None:
            raise ObjectExists(f"{self.url}/{key} exists")
        return version

    def swap(self, key: str, data: bytes, version: str) -> str:
        written = self._put_if(key, data, {"e_tag": f'"{version}"'})
        if written is None:
            raise ObjectChanged(f"{self.url}/{key} is not of version {version} any more")
        return written

    def _put_if(self, key: str, data: bytes, mode: "PutMode") -> str | None:
        """Write on a condition, and return the version; None if the condition does not hold.

        After a lost response, the request is repeated. If it was done, the condition fails because of its own write.
        """
        name, writer = self._name(key), secrets.token_hex(16)
        for left in reversed(range(_TRIES)):
            try:
                with self._doing("write", key):
                    try:
                        return _version(self._client.put(name, data, mode=mode, attributes={_WRITER: writer})["e_tag"])
                    except Exception as error:
                        if code_of(error) not in LOST:
                            raise
                    found = self._client.get(name, options={"head": True})
                    return _version(found.meta["e_tag"]) if found.attributes.get(_WRITER) == writer else None
            except ObjectNotFound:  # removed meanwhile
                return None
            except StorageError as error:
                if not (error.retryable and left):
                    raise
            time.sleep(0.2)
        raise AssertionError("the last try returns or raises")

    def upload(self, path: Path, key: str) -> None:
        name = self._name(key)
        with translated("read", str(path)):
            file = path.open("rb")
        with file, self._doing(f"copy {path} to", key):
            self._client.put(name, file, chunk_size=_WHOLE)

    def download(self, key: str, path: Path) -> None:
        name = self._name(key)
        with (
            replacing(path, f"{self.url}/{key}") as temporary,
            temporary.open("wb") as file,
            self._doing("read", key),
        ):
            for chunk in self._client.get(name).stream():
                file.write(chunk)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        return (info for info in self._listed(prefix, start_after) if not info.key.startswith(PROBES))

    def unfinished(self) -> Iterator[ObjectInfo]:
        """List probes that were not removed. Azure removes the parts of interrupted uploads after a week."""
        yield from self._listed(PROBES)

    def _listed(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """List a folder, because obstore's prefixes are folders, and sort: hierarchical accounts have another order."""
        self._place.check_prefix(prefix)
        root = self._place.root
        with self._doing("list", prefix):
            found = {
                meta["path"].removeprefix(root): meta
                for page in self._client.list((root + prefix).rpartition("/")[0] or None, chunk_size=1000)
                for meta in page
            }
        for key in sorted(found):
            if key.startswith(prefix) and key > start_after and self._place.has(key):
                yield _info(key, found[key])

    def stat(self, key: str) -> ObjectInfo | None:
        name = self._name(key)
        with contextlib.suppress(ObjectNotFound), self._doing("read", key):
            return _info(key, self._client.head(name))
        return None

    def delete(self, key: str) -> None:
        name = self._name(key)
        with contextlib.suppress(ObjectNotFound), self._doing("remove", key):
            self._client.delete(name)


def _version(e_tag: str | None) -> str:
    """Return an ETag without its quotes, which lists leave out."""
    return (e_tag or "").strip('"')


def _info(key: str, meta: "ObjectMeta") -> ObjectInfo:
    return ObjectInfo(key, meta["size"], _version(meta["e_tag"]), meta["last_modified"].timestamp())
