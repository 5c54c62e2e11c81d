"""Errors of Google's client, and their remedies."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from google.api_core.exceptions import GoogleAPIError, RetryError
from google.auth import exceptions as auth
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
from requests import RequestException
from urllib3.exceptions import HTTPError

from llm_ocr.errors import LlmOcrError, ObjectNotFound, StorageError
from llm_ocr.storage import DEFAULT_OPTIONS, Advice, StoreOptions

AGAIN = "Published results remain. Run the same command again later."

#: Variable with the billed project, read by Google's libraries.
QUOTA_PROJECT = "GOOGLE_CLOUD_QUOTA_PROJECT"
_TO_BILL = f"Set {QUOTA_PROJECT} to a project with billing that this account may use."


@dataclass(frozen=True, slots=True)
class Context:
    """Names for error messages. `credentials` describes the account; `endpoint` is empty for Google's own."""

    url: str
    bucket: str
    endpoint: str = ""
    credentials: str = "the Google credentials"
    options: StoreOptions = DEFAULT_OPTIONS

    @property
    def server(self) -> str:
        return self.endpoint or "Google Cloud Storage"

    @property
    def sign_in(self) -> str:
        """Instructions to obtain credentials."""
        if self.options.token:
            return "Give a new access token, which is valid for one hour: gcloud auth print-access-token."
        profile = self.options.named("profile", "FILE")
        if self.options.profile:
            return f"Give another credentials file than {self.options.profile}: {profile}."
        return (
            "Run `gcloud auth application-default login`, set GOOGLE_APPLICATION_CREDENTIALS to a credentials file, "
            f"or set {profile}."
        )


def advice_for(said: "Said", context: Context) -> Advice:
    """Return the advice for a response."""
    status, message = said.status, said.message
    if status == 401:
        return Advice(
            f"{context.credentials} are missing, expired, or revoked (401 {message})".rstrip(), context.sign_in
        )
    if status == 404 and "bucket" in message:
        return Advice(
            f"there is no bucket {context.bucket}",
            f"Check its spelling, or create the bucket: gcloud storage buckets create gs://{context.bucket} "
            "--location=LOCATION --project=PROJECT",
        )
    if status == 400 and "requester pays" in message.lower():
        return Advice(f"the bucket {context.bucket} charges the requester", _TO_BILL)
    if status == 403:
        return _forbidden(said.reasons, message, context)
    if status == 429:
        return Advice(f"too many requests after all retries ({message})", f"Use fewer workers. {AGAIN}", retryable=True)
    if status == 408 or status >= 500:
        return Advice(f"{context.server} failed ({status} {message})", AGAIN, retryable=True)
    return Advice(f"{context.server} answered {status} {message}".rstrip())


def _forbidden(reasons: frozenset[str], message: str, context: Context) -> Advice:
    low, words = message.lower(), " ".join(reasons).lower()
    if "ratelimit" in words or "rate limit" in low:
        return Advice(f"too many requests after all retries ({message})", f"Use fewer workers. {AGAIN}", retryable=True)
    if "retention" in low or "retention" in words or "object is under active" in low:
        hint = "A workspace needs to replace and remove objects: use a bucket without retention policy and holds."
        return Advice(f"the bucket does not allow changes to its objects ({message})", hint)
    if "user_project_denied" in low or "userproject" in words or "serviceusage" in low:
        return Advice(f"this account may not bill the project ({message})", _TO_BILL)
    if "billing" in low or "accountdisabled" in words:
        return Advice(
            f"billing is disabled for the project of the bucket {context.bucket} ({message})",
            "Enable billing for that project, or use a bucket of another project.",
        )
    if "has not been used in project" in low or "accessnotconfigured" in words:
        hint = f"Enable the Cloud Storage API in that project, or set {QUOTA_PROJECT} to another one."
        return Advice(f"the Cloud Storage API is disabled in the project ({message})", hint)
    return Advice(
        f"{context.credentials} lack a permission ({message})",
        f"Give that account the role Storage Object Admin (roles/storage.objectAdmin) on the bucket {context.bucket}, "
        f"or use other credentials (GOOGLE_APPLICATION_CREDENTIALS, {context.options.named('profile', 'FILE')}). Check "
        "that the bucket belongs to the intended project.",
    )


#: All errors that Google's client raises because of the service, the network, or the credentials.
SDK_ERRORS = (
    GoogleAPIError,
    auth.GoogleAuthError,
    InvalidResponse,
    DataCorruption,
    RequestException,
    HTTPError,
    HTTPException,
    ConnectionError,
)

_NO_BUCKET = "bucket does not exist"
_UNKNOWN_OUTCOME = frozenset({408, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Said:
    """Response of the service: HTTP status (0: none), reason codes, and message."""

    status: int = 0
    reasons: frozenset[str] = frozenset()
    message: str = ""

    @property
    def no_bucket(self) -> bool:
        return self.status == 404 and _NO_BUCKET in self.message


@contextlib.contextmanager
def translated(action: str, where: str, context: Context, *, reading: bool = False) -> Iterator[None]:
    """Turn the client's errors into a `StorageError` "cannot <action> <where>"; when `reading`, 404 into its own."""
    try:
        yield
    except LlmOcrError:
        raise
    except SDK_ERRORS as error:
        answer = said_by(error)
        if reading and answer.status == 404 and not answer.no_bucket:
            raise ObjectNotFound(f"no object {where}") from error
        advice = advice_for(answer, context) if answer.status else _without_answer(last_of(error), context)
        what = f"cannot {action} {where}: {advice.what}"
        raise StorageError(what, hint=advice.hint, retryable=advice.retryable) from error


def said_by(error: BaseException) -> Said:
    """Return the response that the error contains."""
    error = last_of(error)
    response = getattr(error, "response", None)  # the Google clients raise errors of several libraries, untyped
    status = int(getattr(response, "status_code", 0) or getattr(error, "code", 0) or 0)
    value: Any = {}
    if response is not None:
        with contextlib.suppress(ValueError, AttributeError):
            value = response.json()
    described = value.get("error") if isinstance(value, dict) else None
    if isinstance(described, dict):
        details = [detail for detail in described.get("errors") or () if isinstance(detail, dict)]
        reasons = frozenset(str(detail.get("reason", "")) for detail in details)
        return Said(status, reasons, str(described.get("message") or ""))
    return Said(status, message=str(getattr(response, "text", "") or getattr(error, "message", "") or error)[:500])


def last_of(error: BaseException) -> BaseException:
    """Return the last error before the client stopped retrying."""
    cause = error.cause if isinstance(error, RetryError) else None
    return cause if isinstance(cause, BaseException) else error


def may_have_succeeded(error: BaseException) -> bool:
    """Return whether the request may have succeeded nevertheless: there was no response, or an ambiguous one."""
    status = said_by(error).status
    return status in _UNKNOWN_OUTCOME if status else not isinstance(last_of(error), auth.GoogleAuthError)


def _without_answer(error: BaseException, context: Context) -> Advice:
    if isinstance(error, auth.TransportError):
        return Advice(f"the sign-in service of Google is unreachable ({_short(error)})", AGAIN, retryable=True)
    if (
        isinstance(error, auth.RefreshError) and context.options.token
    ):  # the message says only that the token cannot be renewed
        return Advice("the access token is wrong or has expired", context.sign_in)
    if isinstance(error, auth.RefreshError):
        return Advice(f"{context.credentials} are no longer valid ({_short(error)})", context.sign_in)
    if isinstance(error, auth.InvalidOperation):
        return Advice(f"{context.server} requires credentials, but an emulator receives none", context.sign_in)
    if isinstance(error, auth.DefaultCredentialsError):
        return Advice(f"no usable Google credentials ({_short(error)})", context.sign_in)
    if isinstance(error, auth.GoogleAuthError):
        return Advice(_short(error), context.sign_in)
    if isinstance(error, DataCorruption):
        return Advice("the transfer damaged the content", AGAIN, retryable=True)
    hint = f"Check the network and the proxy settings (HTTPS_PROXY). {AGAIN}"
    if context.endpoint:
        setting = context.options.named("endpoint")
        hint = f"Check that a server runs at {context.endpoint}. The URL comes from {setting} or STORAGE_EMULATOR_HOST."
    return Advice(f"{context.server} is unreachable ({_short(error)})", hint, retryable=True)


def _short(error: BaseException) -> str:
    first = error.args[0] if error.args and isinstance(error.args[0], str) else error
    return (str(first).strip().splitlines() or [type(error).__name__])[0][:300]
