"""A workspace on Google Cloud Storage, through Google's own client. A version is an object's generation."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from llm_ocr.errors import MissingExtra
from llm_ocr.storage import DEFAULT_OPTIONS, StoreOptions
from llm_ocr.storage.gcs_address import find_endpoint, parse_url

if TYPE_CHECKING:
    from llm_ocr.storage.gcs_store import GcsStore


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
    from llm_ocr.storage.gcs_store import GcsStore

    return GcsStore
