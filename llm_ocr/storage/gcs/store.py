"""The store on Google Cloud Storage and its client. Imports Google's client, so import this module late."""

import base64
import contextlib
import io
import secrets
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urlsplit

import google.auth
import google_crc32c
from google.api_core.exceptions import NotFound, PreconditionFailed, RequestRangeNotSatisfiable
from google.api_core.retry import Retry
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from google.cloud.storage.exceptions import DataCorruption
from google.cloud.storage.retry import DEFAULT_RETRY
from google.oauth2.credentials import Credentials
from requests import RequestException
from requests.adapters import HTTPAdapter

from llm_ocr.config.environment import environment
from llm_ocr.errors import ObjectChanged, ObjectExists, ObjectNotFound, StorageError, UsageError
from llm_ocr.storage import DEFAULT_OPTIONS, BaseStore, Capabilities, ObjectInfo, StoreOptions
from llm_ocr.storage.gcs import Endpoint, Place, find_endpoint
from llm_ocr.storage.gcs.errors import QUOTA_PROJECT, SDK_ERRORS, Context, may_have_succeeded, said_by, translated
from llm_ocr.storage.local import replacing
from llm_ocr.storage.local import translated as translated_here
from llm_ocr.storage.names import PROBES
from llm_ocr.storage.waiting import NOTICES

_SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)

#: Connections to keep. With the client's own 10, additional threads open and close a connection per request.
_CONNECTIONS = 64

#: Upper limit in seconds of a quick check of a bucket.
_HURRY = 20.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits in seconds: `total` for a request with all its retries, `timeout` for one attempt.

    Pauses between attempts are random, from 0 to a bound that starts at `pause` and doubles up to 16 s. Contents above
    8 MiB are uploaded in chunks of `chunk` bytes (a multiple of 256 KiB), each within `timeout`.
    """

    total: float = 120.0
    timeout: float = 60.0
    pause: float = 0.5
    chunk: int = 16 << 20


@dataclass(frozen=True, slots=True)
class Connection:
    """Bucket of a client, with options of its calls. Only reads and conditional writes are safe to repeat."""

    client: Any
    bucket: Any
    context: Context
    limits: Limits

    @property
    def call(self) -> dict[str, Any]:
        """Keyword arguments of every call that is safe to repeat."""
        began = time.monotonic()

        def on_error(error: Exception) -> None:
            said = said_by(error)
            why = said.message or f"status {said.status}"
            text = f"{self.context.url}: {why}; trying again for {self.limits.total:.0f} s at most"
            NOTICES.tell(text, time.monotonic() - began)

        retry = Retry(DEFAULT_RETRY._predicate, self.limits.pause, 16.0, 2.0, self.limits.total, on_error)
        return {"retry": retry, "timeout": self.limits.timeout}

    def hurried(self) -> "Connection":
        """Return the connection with a shorter `total`."""
        return replace(self, limits=replace(self.limits, total=min(self.limits.total, _HURRY)))


def connect(place: Place, options: StoreOptions, limits: Limits) -> Connection:
    """Return a client for the bucket. Credentials are present, but not verified.

    Without `options.endpoint`, STORAGE_EMULATOR_HOST applies. `options.region` has no effect: Google finds a bucket in
    any region.

    Raises:
        StorageError: there are no credentials.
        UsageError: the endpoint or the profile cannot be used.
    """
    known = environment()
    endpoint = find_endpoint(options.endpoint, known.get("STORAGE_EMULATOR_HOST", ""))
    context = Context(place.url, place.bucket, endpoint.url, options=options)
    with translated("use", place.url, context):
        credentials, whose = _credentials(options, endpoint)
        client = storage.Client(
            project=None,  # the bucket identifies objects; only the creation of buckets needs a project
            credentials=credentials,
            client_options={"api_endpoint": endpoint.url} if endpoint.url else None,
        )
        # For unrequested traces, the client would fetch the bucket's properties in a thread of its own, repeatedly if
        # that fails.
        client._bucket_metadata_cache = None
        session = client._http
        if not getattr(session, "is_mtls", False):  # otherwise its adapter holds the client's certificate
            for scheme in ("https://", "http://"):
                session.mount(scheme, HTTPAdapter(pool_connections=_CONNECTIONS, pool_maxsize=_CONNECTIONS))
    # Named in each request, so that requester-pays buckets work with all kinds of credentials.
    bucket = client.bucket(place.bucket, user_project=known.get(QUOTA_PROJECT) or None)
    return Connection(client, bucket, replace(context, credentials=whose), limits)


def _credentials(options: StoreOptions, endpoint: Endpoint) -> tuple[Any, str]:
    """Return the credentials and a description: a token, a file, none for an emulator, otherwise Google's default."""
    parts = urlsplit(endpoint.url)
    # Encrypted, or to this machine.
    private = parts.scheme.lower() != "http" or parts.hostname in ("localhost", "127.0.0.1", "::1")
    if (options.token or options.profile) and not private:
        raise UsageError(
            f"the connection to {endpoint.url} would send credentials unencrypted",
            hint="Give the endpoint as https://…, or leave out the token and the profile.",
        )
    if options.token:
        return Credentials(token=options.token), "the access token"
    if options.profile:
        try:
            with warnings.catch_warnings():  # the library warns of files of unknown origin; the user named this file
                warnings.simplefilter("ignore")
                found, _ = google.auth.load_credentials_from_file(options.profile, scopes=_SCOPES)
        except (google.auth.exceptions.DefaultCredentialsError, OSError, ValueError) as error:
            first = (str(error.args[0] if error.args else error).splitlines() or [""])[0]
            raise UsageError(
                f"{options.profile} is not a file with Google credentials ({first})",
                hint="For gs://, a profile is the path of a credentials file in JSON: the key of a service account, "
                "the file that `gcloud auth application-default login` writes, or a workload identity configuration.",
            ) from error
        return found, f"the credentials in {options.profile}"
    if endpoint.emulator:
        return AnonymousCredentials(), "the credentials"
    found, _ = google.auth.default(scopes=_SCOPES)
    # Each kind of credentials has other attributes.
    account = getattr(found, "service_account_email", "") or getattr(found, "account", "")
    return found, f"the credentials of {account}" if account else "the Google credentials"


#: Metadata entry with the word of the write.
_WORD = "llm-ocr-write"

#: Generation of a missing object.
ABSENT = 0

#: Attempts to start an upload after a lost session or content damaged in transfer.
_BEGINNINGS = 3

#: Attempts of `replace` to find the object to replace: further attempts follow only repeated removals by others.
_LOOKS = 5

#: Attempts of a read whose object was replaced during the read.
_READS = 5

_PAGE = 1000

_BLOCK = 1 << 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Content:
    """Content to write. `crc32c` in Google's format: the service rejects differing content before it is visible."""

    open: Callable[[], BinaryIO]
    size: int
    crc32c: str

    @staticmethod
    def of_bytes(data: bytes) -> "Content":
        digest = google_crc32c.Checksum(data).digest()
        return Content(lambda: io.BytesIO(data), len(data), base64.b64encode(digest).decode())

    @staticmethod
    def of_file(path: Path) -> "Content":
        """Return the content of a file, which is read once.

        Raises:
            OSError: the file cannot be read.
        """
        size, checksum = 0, google_crc32c.Checksum()
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                size += len(block)
                checksum.update(block)
        return Content(lambda: path.open("rb"), size, base64.b64encode(checksum.digest()).decode())


class GcsStore(BaseStore):
    """Store whose objects are below a prefix of a bucket. Thread-safe; connects on first use.

    Writes happen exactly once or not at all, with a known outcome. Every write names the generation that it replaces
    (0: none), so that a repeated request cannot write twice. It stores a random word in the object's metadata. After a
    lost response, the word identifies the writer of the current object.
    """

    def __init__(self, place: Place, options: StoreOptions = DEFAULT_OPTIONS, limits: Limits = Limits()) -> None:
        self._place = replace(place, any_key=options.any_key)
        self.url = place.url
        self._options = options
        self._limits = limits
        self._lock = threading.Lock()
        self._connected: Connection | None = None
        self._found: Capabilities | None = None

    def _connection(self) -> Connection:
        with self._lock:
            if self._connected is None:
                self._connected = connect(self._place, self._options, self._limits)
            return self._connected

    @contextlib.contextmanager
    def _asking(self, action: str, key: str, *, reading: bool = False) -> Iterator[tuple[Connection, str]]:
        """Yield the connection and the object's name in the bucket; errors become "cannot <action> <url of key>"."""
        name, connection = self._place.inside(key), self._connection()
        with translated(action, f"{self.url}/{key}", connection.context, reading=reading):
            yield connection, name

    def fetch(self, key: str) -> tuple[bytes, str]:
        def read(blob: Any, call: dict[str, Any]) -> tuple[bytes, str]:
            data: bytes = blob.download_as_bytes(**call)
            return data, str(int(blob.generation))

        return self._read(key, read)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        if length <= 0:
            if self.stat(key) is None:
                raise ObjectNotFound(f"no object {self.url}/{key}")
            return b""

        def read(blob: Any, call: dict[str, Any]) -> bytes:
            try:
                data: bytes = blob.download_as_bytes(start=start, end=start + length - 1, **call)
            except RequestRangeNotSatisfiable:
                return b""  # the range begins at the end of the object, or after it
            return data

        return self._read(key, read)

    def download(self, key: str, path: Path) -> None:
        def read(blob: Any, call: dict[str, Any]) -> None:
            with temporary.open("wb") as file:
                blob.download_to_file(file, **call)

        with replacing(path, f"{self.url}/{key}") as temporary:
            self._read(key, read)

    def _read(self, key: str, read: Callable[[Any, dict[str, Any]], T]) -> T:
        """Return the result of `read` for the client's object and the options of calls, from a single generation.

        An interrupted read continues in its initial generation. If that generation is gone, the read restarts. It also
        restarts after an interrupted 404 response, which the client reads outside of its retries.
        """
        with self._asking("read", key, reading=True) as (connection, name):
            for left in reversed(range(_READS)):
                try:
                    return read(connection.bucket.blob(name), connection.call)
                except RequestException:
                    if not left:
                        raise
                except NotFound as error:
                    url = str(getattr(getattr(error.response, "request", None), "url", "") or "")
                    if "generation=" not in url.partition("?")[2]:  # otherwise only the initial generation is gone
                        raise
                    if not left:
                        what = f"gs://{connection.bucket.name}/{name} is replaced faster than a read completes"
                        raise StorageError(what, retryable=True) from error
        raise AssertionError("the last read returns or raises")

    def put(self, key: str, data: bytes) -> None:
        with self._asking("write", key) as (connection, name):
            _replace(connection, name, Content.of_bytes(data))

    def upload(self, path: Path, key: str) -> None:
        with translated_here("read", str(path)), self._asking(f"copy {path} to", key) as (connection, name):
            _replace(connection, name, Content.of_file(path))

    def create(self, key: str, data: bytes) -> str:
        with self._asking("write", key) as (connection, name):
            written = _write(connection, name, Content.of_bytes(data), ABSENT)
        if written is None:
            raise ObjectExists(f"{self.url}/{key} exists")
        return str(written)

    def swap(self, key: str, data: bytes, version: str) -> str:
        self._place.inside(key)
        if not version.isdecimal() or int(version) == ABSENT:
            raise ObjectChanged(f"{self.url}/{key}: {version!r} is no version of it")
        with self._asking("write", key) as (connection, name):
            written = _write(connection, name, Content.of_bytes(data), int(version))
        if written is None:
            raise ObjectChanged(f"{self.url}/{key} is not of version {version} any more")
        return str(written)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        self._place.check_prefix(prefix)
        return (info for info in self._listed(prefix, start_after) if not info.key.startswith(PROBES))

    def unfinished(self) -> Iterator[ObjectInfo]:
        """List probes that were not removed. Google removes the data of interrupted uploads, which are not objects."""
        return self._listed(PROBES)

    def _listed(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        connection, root = self._connection(), self._place.root
        where = f"{self.url}/{prefix}" if prefix else self.url
        with translated("list", where, connection.context):
            pages = connection.bucket.list_blobs(
                prefix=root + prefix,
                start_offset=root + start_after if start_after else None,  # inclusive: that key itself is skipped
                page_size=_PAGE,
                fields="items(name,size,generation,timeCreated),nextPageToken",
                **connection.call,
            ).pages
        while True:
            with translated("list", where, connection.context):
                page = next(pages, None)
            if page is None:
                return
            for blob in page:
                if not blob.name.startswith(root + prefix):
                    raise StorageError(
                        f"{where}: the store listed {blob.name!r}, which does not begin with {root + prefix!r}",
                        hint="The server does not follow the protocol of Google Cloud Storage: check "
                        "`workspace_endpoint`.",
                    )
                key = blob.name.removeprefix(root)
                if key > start_after and self._place.has(key):
                    yield _info(key, blob)

    def stat(self, key: str) -> ObjectInfo | None:
        with self._asking("read", key) as (connection, name):
            blob = _look(connection, name)
        return None if blob is None else _info(key, blob)

    def delete(self, key: str) -> None:
        """Remove the current object.

        The generation is requested first: a repeated request must not remove an object that another writer has written
        since.
        """
        with self._asking("remove", key) as (connection, name):
            blob = _look(connection, name)
            if blob is None:
                return
            generation = int(blob.generation)
            try:
                connection.bucket.blob(name).delete(if_generation_match=generation, **connection.call)
            except PreconditionFailed:
                return
            except NotFound as error:
                if said_by(error).no_bucket:
                    raise

    def capabilities(self) -> Capabilities:
        """Test whether generation preconditions work: Google's do, an emulator's may not."""
        hurried = self._hurried()
        with self._lock:
            if self._found is None:
                found = super(GcsStore, hurried).capabilities()
                server = hurried._connection().context.server
                note = f"{server} does not honour generation preconditions" if found.note else ""
                self._found = replace(found, note=note)
            return self._found

    def check(self) -> None:
        """Write, read, list, and remove a probe. Also detects missing credentials. Each request takes at most 20 s."""
        super(GcsStore, self._hurried()).check()

    def _hurried(self) -> "GcsStore":
        """Return the same store with less time for each request."""
        store = GcsStore(self._place, self._options, self._limits)
        store._connected = self._connection().hurried()
        return store


def _write(connection: Connection, name: str, content: Content, generation: int) -> int | None:
    """Write the object in place of that generation; return the new one, or None if the generation is not current.

    Raises the client's errors, also if it is unknown whether the object was written.
    """
    for left in reversed(range(_BEGINNINGS)):
        word = secrets.token_hex(16)
        try:
            blob = connection.bucket.blob(name, chunk_size=connection.limits.chunk)
            blob.metadata = {_WORD: word}
            with content.open() as file:
                blob.upload_from_file(
                    file,
                    size=content.size,
                    content_type="application/octet-stream",  # prevents compression and decompression in transit
                    if_generation_match=generation,
                    checksum="crc32c",
                    crc32c_checksum_value=content.crc32c,
                    **connection.call,
                )
            return int(blob.generation)
        except PreconditionFailed:
            # The first of several attempts may have been ours, with a lost response.
            found, written_by = _found(connection, name)
            return found if written_by == word else None
        except (*SDK_ERRORS, ValueError) as error:
            beginning_lost = _beginning_lost(error)
            if not (beginning_lost or may_have_succeeded(error)):
                raise
            found, written_by = _found(connection.hurried(), name)
            if written_by == word:
                return found
            if found != generation:
                return None
            if not (beginning_lost and left):
                raise
    raise AssertionError("the last beginning returns or raises")


def _found(connection: Connection, name: str) -> tuple[int, str]:
    """Return the object's generation (`ABSENT`: none) and the word of its write. Raises the client's errors."""
    blob = _look(connection, name)
    return (ABSENT, "") if blob is None else (int(blob.generation), str((blob.metadata or {}).get(_WORD, "")))


def _look(connection: Connection, name: str) -> Any:
    """Return the client's object with its properties, or None if there is no such object."""
    blob = connection.bucket.blob(name)
    try:
        blob.reload(**connection.call)
    except NotFound as error:
        if said_by(error).no_bucket:
            raise
        return None
    return blob


def _replace(connection: Connection, name: str, content: Content) -> None:
    """Write the object, whether or not it exists. Raises the client's errors.

    If another writer replaces or removes the object at the same moment, this write counts as the earlier one.
    """
    for _ in range(_LOOKS):
        if _write(connection, name, content, ABSENT) is not None:
            return
        if (current := _look(connection, name)) is not None:
            _write(connection, name, content, int(current.generation))
            return
    raise StorageError(f"gs://{connection.bucket.name}/{name} was removed repeatedly during the write")


def _beginning_lost(error: BaseException) -> bool:
    """Return whether to restart the upload: its session is gone, a chunk was stored in part, or content was damaged."""
    if isinstance(error, DataCorruption):
        return True
    said = said_by(error)
    if not said.status:  # the client cannot continue in the middle of a chunk
        return isinstance(error, ValueError) and "Bytes stream" in str(error)
    damaged = said.status == 400 and ("match" in said.message or "corrupt" in said.message.lower())
    return damaged or said.status == 410 or (said.status == 404 and not said.no_bucket)


def _info(key: str, blob: Any) -> ObjectInfo:
    return ObjectInfo(key, int(blob.size), str(int(blob.generation)), blob.time_created.timestamp())
