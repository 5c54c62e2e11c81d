"""The client of a store on Google Cloud Storage: created once, on first use, and shared by all threads."""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import google.auth
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from google.cloud.storage.retry import DEFAULT_RETRY
from google.oauth2.credentials import Credentials
from requests.adapters import HTTPAdapter

from llm_ocr.config.environment import environment
from llm_ocr.errors import UsageError
from llm_ocr.storage import StoreOptions
from llm_ocr.storage.gcs import Endpoint, Place, find_endpoint
from llm_ocr.storage.gcs.errors import QUOTA_PROJECT, Context, translated

_SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)

#: Connections to keep. With the client's own 10, additional threads open and close a connection per request.
_CONNECTIONS = 64

_MEBI = 1 << 20

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
    chunk: int = 16 * _MEBI


DEFAULT_LIMITS = Limits()


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
        retry = DEFAULT_RETRY.with_timeout(self.limits.total).with_delay(self.limits.pause, 16.0, 2.0)
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
    if (options.token or options.profile) and not endpoint.private:
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
