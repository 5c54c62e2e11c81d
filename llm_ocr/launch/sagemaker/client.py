"""AWS clients of a launch, and their errors as `LaunchError`."""

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from llm_ocr.errors import MissingExtra
from llm_ocr.launch.refusals import Refusal, translated

#: Error codes for a missing object. SageMaker itself uses a ValidationException.
ABSENT = frozenset(
    {
        *("ResourceNotFound", "ResourceNotFoundException", "NoSuchEntity", "NoSuchResourceException", "NoSuchBucket"),
        *("RepositoryNotFoundException", "ImageNotFoundException"),
    }
)
DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "NotAuthorized"})
_NOT_FOUND = re.compile(r"not found|could not find|does not exist", re.IGNORECASE)
SIGN_IN = "Sign in (aws configure, aws sso login), or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE."
_REGION = "Set --region or AWS_DEFAULT_REGION."
_BUSY = ("ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded")

#: Hints by error code, or by name of botocore's exception.
_HINTS: Mapping[str, str] = {
    **dict.fromkeys(("NoRegionError", "InvalidRegionError"), _REGION),
    **dict.fromkeys(("HTTPClientError", "ConnectionError"), f"Check the network and the region. {_REGION}"),
    **dict.fromkeys(("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound"), SIGN_IN),
    **dict.fromkeys(("CredentialRetrievalError", "SSOError", "TokenRetrievalError"), SIGN_IN),
    **dict.fromkeys(("NoAuthTokenError", "LoginError"), SIGN_IN),
    **dict.fromkeys(("UnrecognizedClientException", "InvalidClientTokenId", "SignatureDoesNotMatch"), SIGN_IN),
    **dict.fromkeys(("IncompleteSignature", "InvalidSignatureException", "RequestExpired"), SIGN_IN),
    **dict.fromkeys(("ExpiredToken", "ExpiredTokenException"), SIGN_IN),
    **dict.fromkeys(("MissingAuthenticationToken", "MissingAuthenticationTokenException"), SIGN_IN),
    **dict.fromkeys(DENIED, "Grant your account the permissions in sagemaker/launcher-policy.json."),
    **dict.fromkeys(_BUSY, "Try again in a minute."),
    "ResourceLimitExceeded": "Request a higher quota under Service Quotas, Amazon SageMaker (new accounts have 0 of "
    "most GPUs), or use other --hardware, fewer --shards, or another --region.",
}


class Clients:
    """Clients of one region, created at their first use; `endpoint` replaces the server of all of them."""

    def __init__(self, region: str | None = None, endpoint: str | None = None) -> None:
        self._region, self._endpoint = region, endpoint
        self._made: dict[tuple[str, str | None], Any] = {}

    def of(self, service: str, *, region: str | None = None) -> Any:
        """Return a client. Raises `MissingExtra` without boto3, and `LaunchError` if no region is known."""
        key = (service, region)
        if key not in self._made:
            try:
                import boto3
                from botocore.config import Config
            except ImportError as error:
                raise MissingExtra("SageMaker needs boto3, which is not installed", install="s3") from error
            config = Config(retries={"mode": "standard", "max_attempts": 4}, connect_timeout=10.0, read_timeout=60.0)
            options = {"region_name": region or self._region, "endpoint_url": self._endpoint, "config": config}
            with asking(f"connect to {service}"):
                self._made[key] = boto3.Session().client(service, **options)
        return self._made[key]

    @property
    def region(self) -> str:
        return str(self.of("sagemaker").meta.region_name)

    @property
    def place(self) -> dict[str, Any]:
        return {"region": self.region, **({"endpoint": self._endpoint} if self._endpoint else {})}


def is_absent(error: Any) -> bool:
    """Return whether a response means that no object has this name."""
    code = code_of(error)
    return code in ABSENT or (code == "ValidationException" and bool(_NOT_FOUND.search(str(error))))


def code_of(error: Any) -> str:
    """Return the code of an error response; "" for any other error."""
    return str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))


def asking(action: str, hints: Mapping[str, str] | None = None) -> AbstractContextManager[None]:
    """Turn the client's errors into a `LaunchError` "cannot <action>: <AWS's message>"; `hints` by error code."""

    def explain(error: Any) -> Refusal | None:
        from botocore.exceptions import BotoCoreError, ClientError

        if isinstance(error, ClientError):
            code, words = code_of(error), str(error.response.get("Error", {}).get("Message") or "")
            status = 429 if code in _BUSY else error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
            return Refusal(f"{words or code} ({code})", (hints or {}).get(code) or _HINTS.get(code, ""), status)
        if not isinstance(error, BotoCoreError):
            return None
        names = [kind.__name__ for kind in type(error).__mro__]
        hint = next((_HINTS[name] for name in names if name in _HINTS), "")
        return Refusal(str(error), hint, 0 if {"HTTPClientError", "ConnectionError"} & {*names} else 400)

    return translated(f"cannot {action}", explain)
