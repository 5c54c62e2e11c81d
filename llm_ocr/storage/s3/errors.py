"""Errors of S3 and its SDK, and their remedies."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from llm_ocr.errors import LlmOcrError, ObjectNotFound, StorageError
from llm_ocr.storage import DEFAULT_OPTIONS, Advice, StoreOptions
from llm_ocr.storage.local import storage_error

AGAIN = "Published results remain. Run the same command again."


@dataclass(frozen=True, slots=True)
class Context:
    """Names for error messages. `root` is the prefix of the store's keys in the bucket."""

    url: str
    bucket: str
    root: str = ""
    endpoint: str | None = None
    region: str | None = None
    options: StoreOptions = DEFAULT_OPTIONS

    @property
    def server(self) -> str:
        """Server that received the request."""
        return self.endpoint or "Amazon S3"

    @property
    def credentials(self) -> str:
        """Description of the credentials in use, without secrets."""
        return f"profile {self.options.profile}" if self.options.profile else "these credentials"


#: Error codes are those of the S3 API reference ("Error responses") and of STS.
_REGION = frozenset(
    {
        *("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"),
        *("TemporaryRedirect", "301", "302", "307"),
    }
)
#: Codes for valid credentials without the required permission.
DENIED = frozenset({"AccessDenied", "AllAccessDisabled", "AccountProblem", "AccessControlListNotSupported", "403"})
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken"})
_WRONG_KEY = frozenset(
    {
        *("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidSecurity", "InvalidClientTokenId", "NotSignedUp"),
        *("UnrecognizedClientException", "Unauthorized", "401"),
    }
)
_FULL = frozenset({"QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "507"})
_BUSY = frozenset(
    {
        *("SlowDown", "SlowDownRead", "SlowDownWrite", "Throttling", "ThrottlingException", "RequestLimitExceeded"),
        *("TooManyRequests", "TooManyRequestsException", "ServiceUnavailable", "BandwidthLimitExceeded", "429", "503"),
    }
)

#: Permission for a request, if it differs from `s3:` and the request's name.
_PERMISSIONS = {
    "ListObjectsV2": "s3:ListBucket",
    "HeadObject": "s3:GetObject",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "ListParts": "s3:ListMultipartUploadParts",
    "CreateMultipartUpload": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
}


def _advice(error: Any, code: str, status: int, context: Context) -> Advice:
    """Return the meaning of an error response; `code` is the status in digits if the response has no body."""
    bucket, server, options = context.bucket, context.server, context.options
    message = error.response.get("Error", {}).get("Message") or ""
    if code == "NoSuchBucket":
        there = f" --endpoint-url {context.endpoint}" if context.endpoint else ""
        return Advice(
            f"there is no bucket {bucket} at {server}",
            f"Create it (aws s3 mb s3://{bucket}{there}) or correct the name in the URL. A bucket of another service "
            f"needs {options.named('endpoint')}.",
        )
    if code in _REGION:
        headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        region = str(error.response.get("Error", {}).get("Region") or headers.get("x-amz-bucket-region") or "")
        asked = f"not in the region {context.region}" if context.region else "in another region"
        if not region:
            hint = f"Set {options.named('region')} (or AWS_DEFAULT_REGION) to the region of the bucket."
            return Advice(f"the bucket {bucket} is {asked}", hint)
        asked = f", not in {context.region}" if context.region and context.region != region else ""
        hint = f"Set {options.named('region', region)} (or AWS_DEFAULT_REGION)."
        return Advice(f"the bucket {bucket} is in the region {region}{asked}", hint)
    if code in DENIED:
        permission = _PERMISSIONS.get(error.operation_name, f"s3:{error.operation_name}")
        on = bucket if permission.startswith("s3:List") else f"{bucket}/{context.root}*"
        hint = f"Allow {permission} on arn:aws:s3:::{on} for {context.credentials}, or use others with "
        return Advice(f"no permission ({code} for {permission})", f"{hint}{options.named('profile')}.")
    if code in _EXPIRED:
        sign_in = f"aws sso login --profile {options.profile}" if options.profile else "aws sso login"
        return Advice(
            f"the credentials have expired ({code})",
            f"Sign in again ({sign_in}), or set new values of AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, and "
            "AWS_SESSION_TOKEN. Then run the same command again.",
        )
    if code in _WRONG_KEY:
        return Advice(
            f"{server} does not know {context.credentials} ({code})",
            f"Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or {options.named('profile')}. Keys of another "
            f"service than Amazon S3 need its URL in {options.named('endpoint')}.",
        )
    if code in ("RequestTimeTooSkewed", "RequestExpired"):
        return Advice("the clock of this machine is wrong (RequestTimeTooSkewed)", "Set the clock, for example by NTP.")
    if code in _FULL:
        return Advice(f"{server} has no space left ({code})", f"Free some space, or raise the quota. {AGAIN}")
    if code == "EntityTooLarge":
        return Advice("the object exceeds the size limit of the service", "Use a smaller `pages_per_unit`.")
    if code == "InvalidObjectState":
        hint = "Restore the object, and exclude the workspace from the lifecycle rule of the bucket."
        return Advice("the object was moved to an archive (InvalidObjectState)", hint)
    if code in _BUSY or status in (429, 503):
        what = f"{server} is still overloaded after all retries ({code})"
        return Advice(what, f"Use fewer concurrent workers. {AGAIN}", retryable=True)
    reason = f"{code} {message}".strip()
    if status >= 500 or code == "RequestTimeout":
        return Advice(f"{server} failed ({reason})", retryable=status not in (501, 505))
    if code == "400":
        hint = "The response has no reason. Check that the credentials are valid, and that the region is correct."
        return Advice(f"{server} refused the request (400)", hint)
    return Advice(f"{server} refused the request ({reason})")


_SET_KEYS = (
    "Set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile of ~/.aws/credentials with "
    "{profile}, or sign in (aws configure, aws sso login)."
)
_CHECK_PROFILE = "Correct the profile in ~/.aws/config and ~/.aws/credentials, or name another with {profile}."
_SIGN_IN = "Sign in again (aws sso login), or correct the profile in ~/.aws/config."
_CHECK_SCHEME = (
    "Check that {endpoint} has the correct scheme, http or https. For a private certificate, set AWS_CA_BUNDLE."
)

#: Problem, hint, and whether the same call may succeed later, by class of botocore.exceptions. Hints name options in
#: braces.
_SDK: Mapping[str, tuple[str, str, bool]] = {
    "NoCredentialsError": ("no credentials were found", _SET_KEYS, False),
    "PartialCredentialsError": ("the credentials are incomplete", _SET_KEYS, False),
    "ProfileNotFound": ("there is no such profile", _CHECK_PROFILE, False),
    **dict.fromkeys(
        ("CredentialRetrievalError", "SSOError", "TokenRetrievalError", "NoAuthTokenError", "LoginError"),
        ("the credentials cannot be retrieved", _SIGN_IN, False),
    ),
    **dict.fromkeys(
        ("ConfigParseError", "InvalidConfigError", "UnknownCredentialError"),
        ("the AWS configuration is wrong", _CHECK_PROFILE, False),
    ),
    "SSLError": ("no secure connection", _CHECK_SCHEME, False),
    **dict.fromkeys(
        ("HTTPClientError", "ConnectionError", "HTTPError", "IncompleteReadError", "FlexibleChecksumError"),
        ("the connection failed", f"Check the network, and {{endpoint}} if set. {AGAIN}", True),
    ),
}


class Conflict(StorageError):
    """409 or 412: a conditional write met another version of the object, or another writer."""

    retryable = True


class Unsupported(StorageError):
    """The service does not support the request, or one of its headers."""


class Denied(StorageError):
    """The credentials are valid, but do not permit this request."""


@contextlib.contextmanager
def translated(action: str, where: str, context: Context, *, reading: bool = False) -> Iterator[None]:
    """Turn the SDK's errors into a `StorageError` "cannot <action> <where>"; when `reading`, 404 into its own."""
    from botocore.exceptions import BotoCoreError, ClientError
    from urllib3.exceptions import HTTPError

    try:
        yield
    except LlmOcrError:
        raise
    except ClientError as error:
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
        code = str(error.response.get("Error", {}).get("Code") or status)
        if reading and status == 404 and code != "NoSuchBucket":
            raise ObjectNotFound(f"no object {where}") from error
        kind: type[StorageError] = StorageError
        if status in (409, 412) or code in ("PreconditionFailed", "ConditionalRequestConflict"):
            kind = Conflict
        elif code in DENIED:
            kind = Denied
        elif status in (405, 501) or code in ("NotImplemented", "MethodNotAllowed"):
            kind = Unsupported
        raise _made(kind, f"cannot {action} {where}", _advice(error, code, status, context)) from error
    except (BotoCoreError, HTTPError) as error:
        advice = Advice(str(error))
        if known := next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _SDK), ""):
            what, hint, retryable = _SDK[known]
            settings = {name: context.options.named(name) for name in ("profile", "endpoint")}
            advice = Advice(f"{what} ({error})", hint.format(**settings), retryable)
        raise _made(StorageError, f"cannot {action} {where}", advice) from error
    except OSError as error:  # of the local file that is sent or written
        raise storage_error(error, action, where) from error


def _made(kind: type[StorageError], what: str, advice: Advice) -> StorageError:
    hint = advice.hint or (AGAIN if advice.retryable else "")
    return kind(f"{what}: {advice.what}", hint=hint, retryable=advice.retryable or kind is Conflict)
