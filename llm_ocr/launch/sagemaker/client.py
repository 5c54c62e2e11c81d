"""The clients of AWS that a launch needs, and their errors as ours."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from llm_ocr.errors import LaunchError, LlmOcrError, MissingExtra

#: Error codes that say: nothing of that name. SageMaker itself says it by a ValidationException.
ABSENT = frozenset(
    {
        *("ResourceNotFound", "ResourceNotFoundException", "NoSuchEntity", "NoSuchResourceException", "NoSuchBucket"),
        *("RepositoryNotFoundException", "ImageNotFoundException"),
    }
)
DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "NotAuthorized"})
_LOGIN = frozenset(
    {
        *("UnrecognizedClientException", "InvalidClientTokenId", "SignatureDoesNotMatch", "IncompleteSignature"),
        *("ExpiredToken", "ExpiredTokenException", "RequestExpired", "InvalidSignatureException"),
        *("MissingAuthenticationToken", "MissingAuthenticationTokenException"),
    }
)
_BUSY = frozenset({"ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded"})
_NOT_FOUND = re.compile(r"not found|could not find|does not exist", re.IGNORECASE)

SIGN_IN = "Sign in (aws configure, aws sso login), or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE."
_REGION = "Name it with --region (or AWS_DEFAULT_REGION)."
_PERMISSION = "Allow it to whoever launches: sagemaker/launcher-policy.json has all that is needed."
_QUOTA = (
    "Ask for more under Service Quotas, Amazon SageMaker (new accounts have 0 of most GPUs), or take other hardware, "
    "fewer --shards or another --region."
)

#: Beginnings of the names of botocore's exceptions, and what to do about them.
_SDK: tuple[tuple[frozenset[str], str, bool], ...] = (
    (frozenset({"NoRegionError", "InvalidRegionError"}), _REGION, False),
    (
        frozenset(
            {
                *("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "CredentialRetrievalError"),
                *("SSOError", "TokenRetrievalError", "NoAuthTokenError", "LoginError"),
            }
        ),
        SIGN_IN,
        False,
    ),
    (frozenset({"HTTPClientError", "ConnectionError"}), f"Check the network, and the region. {_REGION}", True),
)


class Clients:
    """Clients of one region; `endpoint` is another server for all of them. Made when asked for, and kept."""

    def __init__(self, region: str | None = None, endpoint: str | None = None) -> None:
        self._region, self._endpoint = region, endpoint
        self._made: dict[tuple[str, str | None], Any] = {}

    def of(self, service: str, *, region: str | None = None) -> Any:
        """Raises `MissingExtra` without boto3, and `LaunchError` where no region is known."""
        key = (service, region)
        if key not in self._made:
            self._made[key] = self._client(service, region or self._region)
        return self._made[key]

    @property
    def region(self) -> str:
        """Where jobs run."""
        return str(self.of("sagemaker").meta.region_name)

    @property
    def place(self) -> dict[str, Any]:
        """What finds the same clients again."""
        return {"region": self.region, **({"endpoint": self._endpoint} if self._endpoint else {})}

    def _client(self, service: str, region: str | None) -> Any:
        try:
            import boto3
            from botocore.config import Config
        except ImportError as error:
            raise MissingExtra("SageMaker needs boto3, which is not installed", install="s3") from error
        config = Config(retries={"mode": "standard", "max_attempts": 4}, connect_timeout=10.0, read_timeout=60.0)
        with translated(f"ask {service}"):
            return boto3.Session().client(service, region_name=region, endpoint_url=self._endpoint, config=config)


def is_absent(error: Any) -> bool:
    """Whether an answer says that there is nothing of that name."""
    code = code_of(error)
    return code in ABSENT or (code == "ValidationException" and bool(_NOT_FOUND.search(str(error))))


def code_of(error: Any) -> str:
    """The code of an error answer; "" of any other error."""
    # botocore, which has no types, adds `response`.
    return str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))


@contextlib.contextmanager
def translated(action: str, hints: Mapping[str, str] | None = None) -> Iterator[None]:
    """Turn the SDK's errors into a `LaunchError` "cannot <action>: <AWS's words>"; `hints`: what to do, by code."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except LlmOcrError:
        raise
    except ClientError as error:
        raise _from_answer(error, action, hints or {}) from error
    except BotoCoreError as error:
        hint, retryable = _sdk_hint(error)
        made = LaunchError(f"cannot {action}: {error}", hint=hint)
        made.retryable = retryable
        raise made from error


def _from_answer(error: Any, action: str, hints: Mapping[str, str]) -> LaunchError:
    code, words = code_of(error), str(error.response.get("Error", {}).get("Message") or "")
    made = LaunchError(f"cannot {action}: {words or code} ({code})", hint=hints.get(code) or _hint(code))
    made.retryable = code in _BUSY or error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500
    return made


def _hint(code: str) -> str:
    if code in _LOGIN:
        return SIGN_IN
    if code in DENIED:
        return _PERMISSION
    if code == "ResourceLimitExceeded":
        return _QUOTA
    return "Try again in a minute." if code in _BUSY else ""


def _sdk_hint(error: Exception) -> tuple[str, bool]:
    names = {kind.__name__ for kind in type(error).__mro__}
    for kinds, hint, retryable in _SDK:
        if kinds & names:
            return hint, retryable
    return "", False
