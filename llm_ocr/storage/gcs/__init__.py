"""Store on Google Cloud Storage."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from llm_ocr.errors import UsageError
from llm_ocr.storage import DEFAULT_OPTIONS, StoreOptions
from llm_ocr.storage.names import BucketPlace, checked_prefix, need_client, split_bucket

if TYPE_CHECKING:
    from llm_ocr.storage.gcs.store import GcsStore


#: Google's rule for bucket names: 3 to 63 characters, up to 222 with dots.
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")

_EXAMPLE = "Give gs://BUCKET/PREFIX."


class Place(BucketPlace):
    """Prefix in a bucket of Google Cloud Storage."""

    __slots__ = ()
    scheme = "gs"


def parse_url(url: str, options: StoreOptions = DEFAULT_OPTIONS) -> Place:
    """Return the place of a `gs://` URL.

    Raises:
        UsageError: the URL is invalid.
    """
    bucket, prefix = split_bucket(url, options)
    if ":" in bucket:  # may hold a secret: not repeated
        raise UsageError(
            "a gs:// URL must not contain credentials", hint=f"{_EXAMPLE} Give a profile for the credentials."
        )
    if not _BUCKET.fullmatch(bucket):
        lower = bucket.lower()
        near = f" Did you mean gs://{lower}?" if _BUCKET.fullmatch(lower) else ""
        raise UsageError(f"{url}: {bucket!r} cannot be the name of a bucket", hint=f"{_EXAMPLE}{near}")
    return Place(bucket, checked_prefix(url, prefix, "Give gs://BUCKET/PREFIX without empty parts."))


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Server of requests; `url` is empty for Google's own. An `emulator` needs no credentials."""

    url: str = ""
    emulator: bool = False


def find_endpoint(given: str | None, emulator_host: str) -> Endpoint:
    """Return the server of requests: `given`, otherwise STORAGE_EMULATOR_HOST, otherwise Google.

    A server over plain http is an emulator, because Google requires https.

    Raises:
        UsageError: the URL is invalid.
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
            f"{what} for gs:// is not an http or https URL of a host",
            hint="Give it as http://localhost:9023 or https://HOST, without user, query or fragment.",
        )
    return url.rstrip("/")


def open_gcs(url: str, options: StoreOptions = DEFAULT_OPTIONS) -> "GcsStore":
    """Return the store for `gs://BUCKET/PREFIX`, without connecting or searching for credentials.

    It uses Google's own client. A version is an object's generation.

    `options.profile` is the path of a credentials file, `options.token` an access token. Without them, Google's library
    finds credentials. An endpoint over plain http, or STORAGE_EMULATOR_HOST, is an emulator and receives no
    credentials.

    Raises:
        UsageError: the URL or the endpoint is invalid.
        MissingExtra: the client is not installed.
    """
    place = parse_url(url, options)
    need_client("google.cloud.storage", "gs:// needs google.cloud.storage", "gcs")
    if options.endpoint:
        find_endpoint(options.endpoint, "")
    from llm_ocr.storage.gcs.store import GcsStore

    return GcsStore(place, options)
