"""A workspace on Google Cloud Storage."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from llm_ocr.errors import MissingExtra, UsageError
from llm_ocr.storage import DEFAULT_OPTIONS, StoreOptions
from llm_ocr.storage.names import BucketPlace, checked_prefix

if TYPE_CHECKING:
    from llm_ocr.storage.gcs.store import GcsStore


# Which bucket and which service: what `gs://bucket/prefix` and an endpoint's URL mean. Nothing is connected to.


_URL = re.compile(r"gs://([^/]*)(?:/(.*))?", re.IGNORECASE | re.DOTALL)

#: Google's rule for bucket names: 3 to 63 characters, up to 222 with dots.
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")

_EXAMPLE = "Give gs://BUCKET/PREFIX."


class Place(BucketPlace):
    """A prefix in a bucket of Google Cloud Storage."""

    __slots__ = ()
    scheme = "gs"


def parse_url(url: str) -> Place:
    """The place that a `gs://` URL names; characters mean themselves, nothing is unquoted. Raises `UsageError`."""
    found = _URL.fullmatch(url)
    if found is None:
        raise UsageError(f"{url} is no URL of Google Cloud Storage", hint=_EXAMPLE)
    bucket, prefix = found[1], (found[2] or "").removesuffix("/")
    if "@" in bucket or ":" in bucket:  # may hold a secret: not repeated
        raise UsageError(
            "a gs:// URL holds no credentials", hint=f"{_EXAMPLE} Name a profile with --workspace-profile."
        )
    if not _BUCKET.fullmatch(bucket):
        lower = bucket.lower()
        near = f" Did you mean gs://{lower}?" if _BUCKET.fullmatch(lower) else ""
        raise UsageError(f"{url}: {bucket!r} cannot be the name of a bucket", hint=f"{_EXAMPLE}{near}")
    return Place(bucket, checked_prefix(url, prefix, "Give gs://BUCKET/PREFIX without empty parts."))


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Another server than Google's; `url` is empty for Google's own. An `emulator` needs no credentials."""

    url: str = ""
    emulator: bool = False

    @property
    def private(self) -> bool:
        """Whether what is sent there is encrypted, or stays on this machine."""
        parts = urlsplit(self.url)
        return parts.scheme.lower() != "http" or parts.hostname in ("localhost", "127.0.0.1", "::1")


def find_endpoint(given: str | None, emulator_host: str) -> Endpoint:
    """Where requests go: `given`, else what STORAGE_EMULATOR_HOST says, else to Google. Raises `UsageError`.

    Google is never spoken to over plain http, so what is, is an emulator.
    """
    if given:
        return Endpoint(_checked(given, "the endpoint"), emulator=given.lower().startswith("http://"))
    if emulator_host:
        host = emulator_host if "://" in emulator_host else f"http://{emulator_host}"
        return Endpoint(_checked(host, "STORAGE_EMULATOR_HOST"), emulator=True)
    return Endpoint()


def _checked(url: str, what: str) -> str:
    try:
        parts = urlsplit(url)
        named = parts.scheme.lower() in ("http", "https") and bool(parts.hostname) and parts.port != 0
        secret = parts.username is not None or bool(parts.query or parts.fragment)
    except ValueError:
        named, secret = False, False
    if not named or secret:
        # Not repeated: it may hold a password.
        raise UsageError(
            f"{what} for gs:// is no http or https URL of a host",
            hint="Give it as http://localhost:9023 or https://HOST, without user, query or fragment.",
        )
    return url.rstrip("/")


# A workspace on Google Cloud Storage, through Google's own client. A version is an object's generation.


def open_gcs(url: str, options: StoreOptions = DEFAULT_OPTIONS) -> "GcsStore":
    """The store for `gs://BUCKET/PREFIX`; nothing is connected to and no credentials are looked for.

    `options.profile` is the path of a credentials file, `options.token` an access token; without them, what Google's
    library finds. An endpoint over plain http, or STORAGE_EMULATOR_HOST, is an emulator and gets no credentials.
    Raises `UsageError` for a URL or an endpoint that cannot be, `MissingExtra` when the client is not installed.
    """
    place = parse_url(url)
    if options.endpoint:
        find_endpoint(options.endpoint, "")
    return _store_class()(place, options)


def _store_class() -> "Callable[..., GcsStore]":
    try:
        import google.cloud.storage  # noqa: F401 - proves that it is there
        import google_crc32c  # noqa: F401
    except ImportError as error:
        raise MissingExtra("gs:// needs google-cloud-storage, which is not installed", install="gcs") from error
    from llm_ocr.storage.gcs.store import GcsStore

    return GcsStore
