"""Address and boto3 client of a store, with its retry policy."""

import random
import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, cast
from urllib.parse import urlsplit

from llm_ocr.errors import StorageError, UsageError
from llm_ocr.storage import DEFAULT_OPTIONS, StoreOptions
from llm_ocr.storage.names import BucketPlace, checked_prefix, split_bucket
from llm_ocr.storage.s3.errors import Context, translated
from llm_ocr.storage.waiting import NOTICES, STOPPING

#: Looser than Amazon's rule (3 to 63 lowercase characters): other services allow more.
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")

#: Amazon's hosts, including China and the European sovereign cloud.
_AMAZON = re.compile(r"(?:^|\.)amazonaws\.(?:com|com\.cn|eu)$")

#: The gateway to storage buckets of the Hugging Face Hub, from its documentation on S3 compatibility.
_HUGGING_FACE = "s3.hf.co"

#: Suffix of S3 Express One Zone, whose listings are unordered and have no start key.
_DIRECTORY_BUCKET = "--x-s3"


class Service(StrEnum):
    """Service behind an endpoint. Services differ in their features."""

    AMAZON = "Amazon S3"
    HUGGING_FACE = "the Hugging Face gateway"
    OTHER = "the S3 service"


class Place(BucketPlace):
    """Prefix in a bucket of S3."""

    __slots__ = ()
    scheme = "s3"


def parse_url(url: str, options: StoreOptions = DEFAULT_OPTIONS) -> Place:
    """Return the place of an `s3://` URL.

    Raises:
        UsageError: the URL is invalid.
    """
    bucket, prefix = split_bucket(url, options)
    if ":" in bucket:  # may hold a secret: not repeated
        raise UsageError(
            "an S3 URL must not contain credentials, ports, or ARNs: s3://BUCKET/PREFIX",
            hint="Give a profile for credentials, an endpoint for another server, and the alias of an access point.",
        )
    if not _BUCKET.fullmatch(bucket):
        raise UsageError(f"{url}: {bucket!r} cannot be the name of a bucket", hint="Give s3://BUCKET/PREFIX.")
    if bucket.endswith(_DIRECTORY_BUCKET):
        raise UsageError(
            f"{url}: listings of directory buckets (S3 Express One Zone) are unordered",
            hint="Use a general purpose bucket.",
        )
    return Place(bucket, checked_prefix(url, prefix, "Give s3://BUCKET/PREFIX without empty parts."))


def check_endpoint(endpoint: str, options: StoreOptions) -> None:
    """Raise `UsageError` unless `endpoint` is `http(s)://host[:port][/path]`; secrets in it are not repeated."""
    example = f"Example: {options.named('endpoint', 'http://localhost:9000')}, or https://s3.hf.co/NAMESPACE."
    if re.fullmatch(r"[A-Za-z0-9.-]+(:\d+)?(/.*)?", endpoint):
        raise UsageError(f"the endpoint {endpoint} has no scheme", hint=f"Did you mean https://{endpoint}? {example}")
    try:
        parts = urlsplit(endpoint)
        named = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        named = False
    if not named:
        raise UsageError("the S3 endpoint is not an http or https URL", hint=example)
    if parts.username is not None or parts.query or parts.fragment:
        raise UsageError(
            "the S3 endpoint has a user, a query, or a fragment",
            hint=f"Set {options.named('profile')}, or set the credentials in the AWS_ variables.",
        )


def service_of(endpoint: str) -> Service:
    """Return the service of an endpoint's URL."""
    host = (urlsplit(endpoint).hostname or "").lower()
    if host == _HUGGING_FACE:
        return Service.HUGGING_FACE
    return Service.AMAZON if _AMAZON.search(host) else Service.OTHER


# Retries of requests to S3. Since 1.44, botocore's own pauses after lost connections and 5xx begin at 50 ms. A client
# may have 35 such retries in progress before all requests fail at once (botocore/retries/standard.py,
# `RetryQuotaChecker`). An outage of a few seconds would therefore end a worker that reads in parallel. The retries here
# run first and have no quota; other errors are left to botocore.


#: Seconds of the first pause: after a lost connection or an error of the service, and after throttling.
_FIRST, _FIRST_THROTTLED = 0.1, 1.0
_LONGEST = 20.0
_THROTTLED = frozenset({429, 503})
_FAULTY = frozenset({500, 502, 504})


def set_retries(client: Any, retries: int) -> None:
    """Let the client retry a request up to `retries` times, with pauses that double, up to 20 s.

    With 8 retries, a request survives any outage of 12 s, and most of 20 s. A stopped command does not retry, see
    `Stopping`.
    """
    from botocore.exceptions import ClientError, HTTPClientError
    from botocore.exceptions import ConnectionError as NoConnection

    def needs_retry(*, response: Any, operation: Any, attempts: int, caught_exception: Any, **_: Any) -> float | None:
        """Return the seconds until the next attempt, or None to leave it to botocore. `attempts` counts from 1."""
        status = None if response is None else response[0].status_code
        throttled = status in _THROTTLED
        lost = response is None and isinstance(caught_exception, NoConnection | HTTPClientError)
        if not (throttled or lost or status in _FAULTY) or attempts > retries:
            return None
        if STOPPING.over:  # botocore itself would retry
            raise caught_exception or ClientError(response[1], operation.name)
        first, least = (
            (_FIRST_THROTTLED, 0.0) if throttled else (_FIRST, 0.5)
        )  # throttled clients spread out, as in botocore
        seconds = float(min(first * 2 ** (attempts - 1), _LONGEST) * random.uniform(least, 1.0))
        why = caught_exception if response is None else f"status {status}"
        NOTICES.tell(f"{client.meta.endpoint_url}: {why}; trying again in {seconds:.0f} s", seconds)
        return seconds

    client.meta.events.register_first("needs-retry.s3", needs_retry, unique_id="llm-ocr-retries")


#: The Hugging Face gateway accepts only this region (its documentation); it is the default for other services.
_REGION = "us-east-1"

_MEBI = 1 << 20

#: File size in bytes above which uploads use parts. At Amazon: small enough that a lost connection costs little. For
#: the Hugging Face gateway: the value that its documentation recommends.
_MULTIPART = {Service.AMAZON: 64 * _MEBI, Service.OTHER: 64 * _MEBI, Service.HUGGING_FACE: 2000 * _MEBI}

#: Prefix of the access key ids of temporary credentials, which are useless without their session token.
_TEMPORARY_KEY = "ASIA"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of requests: retries after the first attempt (growing pauses up to 20 s), timeouts in seconds, and sizes.

    `multipart`: file size in bytes above which uploads use parts; None for the service's default.
    """

    retries: int = 8
    connect_timeout: float = 10.0
    read_timeout: float = 60.0
    multipart: int | None = None


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Connection:
    """Client with the properties of its service. `multipart` in bytes, see `Limits`."""

    client: Any
    service: Service
    context: Context
    multipart: int

    @property
    def server(self) -> str:
        """Name of the service or its URL, for messages."""
        return str(self.service) if self.service is not Service.OTHER else self.context.server


def connect(place: Place, options: StoreOptions, limits: Limits) -> Connection:
    """Return a client for the bucket. Credentials are present and complete, but not verified.

    Raises:
        StorageError: the profile is missing, or the credentials are incomplete.
    """
    import boto3
    import botocore.session
    from botocore.exceptions import NoCredentialsError

    context = Context(place.url, place.bucket, place.root, options.endpoint, options.region, options)
    with translated("use", place.url, context):
        base = botocore.session.get_session()
        # botocore's own parser of times takes most of the time of a listing.
        base.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_time)
        session = boto3.Session(profile_name=options.profile, region_name=options.region, botocore_session=base)
        endpoint = options.endpoint
        service = service_of(endpoint) if endpoint else Service.AMAZON
        client = _client(session, service, endpoint, limits)
        if endpoint is None and service_of(client.meta.endpoint_url) is not Service.AMAZON:
            # The profile or AWS_ENDPOINT_URL names another service, which is known only after creating a client.
            endpoint = client.meta.endpoint_url
            service = service_of(endpoint)
            client = _client(session, service, endpoint, limits)
        context = Context(place.url, place.bucket, place.root, endpoint, session.region_name, options)
        if (found := session.get_credentials()) is None:
            raise NoCredentialsError
        frozen = found.get_frozen_credentials()
    if not frozen.access_key or not frozen.secret_key:
        raise StorageError(
            f"cannot use {context.url}: the credentials are incomplete (source: {found.method})",
            hint="Set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a complete profile with "
            f"{context.options.named('profile')}.",
        )
    if frozen.access_key.startswith(_TEMPORARY_KEY) and not frozen.token:
        raise StorageError(
            f"cannot use {context.url}: the temporary credentials lack their session token (source: {found.method})",
            hint="Also set AWS_SESSION_TOKEN (in a profile: aws_session_token), which is issued with the key.",
        )
    return Connection(client, service, context, limits.multipart or _MULTIPART[service])


def _time(value: Any) -> datetime:
    """Parse a time. Listings of S3 use ISO 8601; headers and other services use other forms.

    Raises:
        ValueError: the value is not a time.
    """
    from botocore.utils import parse_timestamp

    try:
        found = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return cast("datetime", parse_timestamp(value))
    return found if found.tzinfo is not None else cast("datetime", parse_timestamp(value))


def _client(session: Any, service: Service, endpoint: str | None, limits: Limits) -> Any:
    from botocore.config import Config

    settings: dict[str, Any] = {}
    if service is not Service.AMAZON:
        # Other services do not support the checksums that the SDK adds by default since 2025, and some reject them.
        settings = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
    if service is Service.HUGGING_FACE:
        settings["s3"] = {"addressing_style": "path"}
    # Without a region, Amazon returns the bucket's region, and the SDK follows.
    region = session.region_name or (None if service is Service.AMAZON else _REGION)
    config = Config(
        max_pool_connections=64,
        retries={"mode": "standard", "max_attempts": limits.retries},
        connect_timeout=limits.connect_timeout,
        read_timeout=limits.read_timeout,
        **settings,
    )
    client = session.client("s3", endpoint_url=endpoint, region_name=region, config=config)
    set_retries(client, limits.retries)
    return client
