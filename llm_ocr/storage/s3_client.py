"""The boto3 client of a store: made once, at the first use, and shared by all threads."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from llm_ocr.errors import MissingExtra, StorageError
from llm_ocr.storage import StoreOptions
from llm_ocr.storage.s3_address import Place, Service, service_of
from llm_ocr.storage.s3_advice import Context
from llm_ocr.storage.s3_errors import translated
from llm_ocr.storage.s3_patience import be_patient

#: The Hugging Face gateway takes no other (its documentation), and other services take it where none is set.
_REGION = "us-east-1"

_MEBI = 1 << 20

#: Bytes from which a file goes up in parts: small enough that a lost connection costs little at Amazon, what its
#: documentation recommends for the Hugging Face gateway.
_MULTIPART = {Service.AMAZON: 64 * _MEBI, Service.OTHER: 64 * _MEBI, Service.HUGGING_FACE: 2000 * _MEBI}

#: What the access key ids of temporary credentials begin with; they are worth nothing without their session token.
_TEMPORARY_KEY = "ASIA"


@dataclass(frozen=True, slots=True)
class Limits:
    """Patience with the service: retries after the first try (growing pauses up to 20 s), seconds, bytes.

    `multipart`: the size from which a file goes up in parts; None for what suits the service.
    """

    retries: int = 8
    connect_timeout: float = 10.0
    read_timeout: float = 60.0
    multipart: int | None = None


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Connection:
    """A client and what is known about the other side. `multipart` in bytes, see `Limits`."""

    client: Any
    service: Service
    context: Context
    multipart: int

    @property
    def server(self) -> str:
        """Who answers, in words."""
        return str(self.service) if self.service is not Service.OTHER else self.context.server


def connect(place: Place, options: StoreOptions, limits: Limits) -> Connection:
    """A client for the bucket; credentials are found and complete, but not yet proved.

    Raises `MissingExtra`, and `StorageError` for a profile that is missing and credentials that are not complete.
    """
    try:
        import boto3
    except ImportError as error:
        raise MissingExtra("s3:// needs boto3, which is not installed", install="s3") from error

    context = Context(place.url, place.bucket, place.root, options.profile, options.endpoint, options.region)
    with translated("use", place.url, context):
        session = boto3.Session(
            profile_name=options.profile, region_name=options.region, botocore_session=_botocore_session()
        )
        endpoint = options.endpoint
        service = service_of(endpoint) if endpoint else Service.AMAZON
        client = _client(session, service, endpoint, limits)
        if endpoint is None and service_of(client.meta.endpoint_url) is not Service.AMAZON:
            # The profile or AWS_ENDPOINT_URL names another service, which is not known before there is a client.
            endpoint = client.meta.endpoint_url
            service = service_of(endpoint)
            client = _client(session, service, endpoint, limits)
        context = Context(place.url, place.bucket, place.root, options.profile, endpoint, session.region_name)
        _check_credentials(session, context)
    return Connection(client, service, context, limits.multipart or _MULTIPART[service])


def _botocore_session() -> Any:
    """One that reads times quickly: with botocore's own parser they are most of what a listing costs."""
    import botocore.session

    session = botocore.session.get_session()
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_time)
    return session


def _time(value: Any) -> datetime:
    """What S3 says in listings is ISO 8601; headers, and other services, have other forms. Raises ValueError."""
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
        # Others do not know the checksums that the SDK adds by itself since 2025, and some refuse them.
        settings = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
    if service is Service.HUGGING_FACE:
        settings["s3"] = {"addressing_style": "path"}
    # Without a region Amazon says where the bucket is, and the SDK follows.
    region = session.region_name or (None if service is Service.AMAZON else _REGION)
    config = Config(
        max_pool_connections=64,
        retries={"mode": "standard", "max_attempts": limits.retries},
        connect_timeout=limits.connect_timeout,
        read_timeout=limits.read_timeout,
        **settings,
    )
    client = session.client("s3", endpoint_url=endpoint, region_name=region, config=config)
    be_patient(client, limits.retries)
    return client


def _check_credentials(session: Any, context: Context) -> None:
    from botocore.exceptions import NoCredentialsError

    found = session.get_credentials()
    if found is None:
        raise NoCredentialsError
    frozen = found.get_frozen_credentials()
    if not frozen.access_key or not frozen.secret_key:
        raise StorageError(
            f"cannot use {context.url}: half of the credentials is missing (found by: {found.method})",
            hint="Set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a complete profile with "
            "--workspace-profile.",
        )
    if frozen.access_key.startswith(_TEMPORARY_KEY) and not frozen.token:
        raise StorageError(
            f"cannot use {context.url}: the credentials are temporary ones without their session token "
            f"(found by: {found.method})",
            hint="Set AWS_SESSION_TOKEN too (aws_session_token in a profile): it comes with the key.",
        )
