"""Which bucket and which service: what `s3://bucket/prefix` and an endpoint's URL mean. Nothing is connected to."""

import re
from enum import StrEnum
from urllib.parse import urlsplit

from llm_ocr.errors import UsageError
from llm_ocr.storage.bucket_place import BucketPlace
from llm_ocr.storage.names import checked_prefix

_URL = re.compile(r"s3://([^/]*)(?:/(.*))?", re.IGNORECASE | re.DOTALL)

#: Looser than Amazon's rule (3 to 63 lower-case characters): other services allow more.
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")

#: Amazon's hosts, also those of China and of the European sovereign cloud.
_AMAZON = re.compile(r"(?:^|\.)amazonaws\.(?:com|com\.cn|eu)$")

#: The gateway to the storage buckets of the Hugging Face Hub, from its documentation on S3 compatibility.
_HUGGING_FACE = "s3.hf.co"

#: The suffix of S3 Express One Zone, whose lists are in no order and know no start.
_DIRECTORY_BUCKET = "--x-s3"


class Service(StrEnum):
    """Who answers: they differ in what they support."""

    AMAZON = "Amazon S3"
    HUGGING_FACE = "the Hugging Face gateway"
    OTHER = "the S3 service"


class Place(BucketPlace):
    """A prefix in a bucket of S3."""

    __slots__ = ()
    scheme = "s3"


def parse_url(url: str) -> Place:
    """The place that an `s3://` URL names; characters mean themselves, nothing is unquoted. Raises `UsageError`."""
    found = _URL.fullmatch(url)
    if found is None:
        raise UsageError("this is no S3 URL", hint="Give s3://BUCKET/PREFIX.")
    bucket, prefix = found[1], (found[2] or "").removesuffix("/")
    if "@" in bucket or ":" in bucket:  # may hold a secret: not repeated
        raise UsageError(
            "an S3 URL holds no credentials, ports or ARNs: s3://BUCKET/PREFIX",
            hint="Name a profile with --workspace-profile, another server with --workspace-endpoint URL, and an access "
            "point by its alias.",
        )
    if not _BUCKET.fullmatch(bucket):
        raise UsageError(f"{url}: {bucket!r} cannot be the name of a bucket", hint="Give s3://BUCKET/PREFIX.")
    if bucket.endswith(_DIRECTORY_BUCKET):
        raise UsageError(
            f"{url}: directory buckets (S3 Express One Zone) list their objects in no order",
            hint="Use a general purpose bucket.",
        )
    return Place(bucket, checked_prefix(url, prefix, "Give s3://BUCKET/PREFIX without empty parts."))


def check_endpoint(endpoint: str) -> None:
    """Raise `UsageError` unless `endpoint` is `http(s)://host[:port][/path]`; secrets in it are not repeated."""
    example = "Give it as http://localhost:9000 or https://s3.hf.co/NAMESPACE (--workspace-endpoint)."
    if re.fullmatch(r"[A-Za-z0-9.-]+(:\d+)?(/.*)?", endpoint):
        raise UsageError(f"the endpoint {endpoint} has no scheme", hint=f"Did you mean https://{endpoint}? {example}")
    try:
        parts = urlsplit(endpoint)
        named = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        named = False
    if not named:
        raise UsageError("the S3 endpoint is no http or https URL", hint=example)
    if parts.username is not None or parts.query or parts.fragment:
        raise UsageError(
            "the S3 endpoint has a user, a query or a fragment",
            hint="Credentials belong into a profile (--workspace-profile) or the AWS_ variables.",
        )


def service_of(endpoint: str) -> Service:
    """Who answers at an endpoint's URL."""
    host = (urlsplit(endpoint).hostname or "").lower()
    if host == _HUGGING_FACE:
        return Service.HUGGING_FACE
    return Service.AMAZON if _AMAZON.search(host) else Service.OTHER
