"""Translation of the Hub's error responses into errors with a remedy."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from llm_ocr.errors import LlmOcrError, ObjectNotFound, StorageError
from llm_ocr.storage.hf import Place
from llm_ocr.storage.local import storage_error

_TOKENS = "https://huggingface.co/settings/tokens"
_AGAIN = "Published results remain. Run the same command again later."
_LOG_IN = "Set HF_TOKEN to a token with write permission, or log in: hf auth login."
_WRITE = f"Use a token with write permission (HF_TOKEN): {_TOKENS}"

#: Statuses for concurrent commits, too many requests, and failures of the Hub itself.
_PASSING = frozenset({408, 409, 412, 423, 425, 429, 500, 502, 503, 504})

#: Seconds in a `RateLimit` header (`"api";r=0;t=55`).
_RATE_LIMIT = re.compile(r"\bt=(\d+)")


class HubRefused(StorageError):
    """Failed request to the Hub or its storage. `status` is 0 without a response; `wait` in seconds, if given."""

    status = 0
    wait: float | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """Names for messages. `token`: whether requests carry a token; `page`: the URL for a browser."""

    place: Place
    token: bool
    page: str


@contextlib.contextmanager
def translated(action: str, where: str, context: Context, *, reading: bool = False) -> Iterator[None]:
    """Turn the client's errors into a `StorageError` "cannot <action> <where>"; for a missing file its own."""
    from huggingface_hub import errors as hub

    try:
        yield
    except LlmOcrError:
        raise
    except hub.HfHubHTTPError as error:
        raise _of_answer(error, action, where, context, reading=reading) from error
    except hub.LocalTokenNotFoundError as error:
        raise StorageError(f"cannot {action} {where}: there is no token", hint=_LOG_IN) from error
    except no_answer() as error:
        raise lost(f"cannot {action} {where}: no answer from the Hub ({said(error)})") from error
    except ConnectionError as error:  # also raised by hf_xet, whose message is the only information
        status = re.search(r"status client error \((4\d\d)|status server error \((5\d\d)", str(error))
        number = int(status[1] or status[2]) if status else 0
        if number in (401, 403, 404):
            raise _refused(number, f"cannot {action} {where}", said(error), context) from error
        raise lost(f"cannot {action} {where}: {said(error)}") from error
    except OSError as error:
        raise _of_cause(error, action, where, context) or storage_error(error, action, where) from error
    except RuntimeError as error:  # of its threads, of hf_xet, and of a connection that another thread has closed
        raise _of_cause(error, action, where, context) or lost(f"cannot {action} {where}: {said(error)}") from error
    except ValueError as error:
        raise StorageError(f"cannot {action} {where}: {said(error)}") from error


def no_answer() -> type[BaseException]:
    """Return the HTTP library's error for a missing response, whose class depends on the release of the client."""
    from huggingface_hub.errors import HfHubHTTPError

    return HfHubHTTPError.__bases__[0]


def lost(message: str) -> HubRefused:
    """Return the error for a missing or incomplete response."""
    return HubRefused(message, hint=f"Check the network. {_AGAIN}", retryable=True)


def said(error: BaseException) -> str:
    """Return the first line of a message, or the error's type if there is none."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _of_cause(error: BaseException, action: str, where: str, context: Context) -> StorageError | None:
    """Return the error that the client wrapped: of uploads in its threads, and of downloads without a cached copy."""
    from huggingface_hub import errors as hub

    cause = error.__cause__
    if isinstance(cause, hub.HfHubHTTPError):
        return _of_answer(cause, action, where, context)
    if cause is not None and isinstance(cause, no_answer()):
        return lost(f"cannot {action} {where}: no answer from the Hub ({said(cause)})")
    return None


def _of_answer(error: Any, action: str, where: str, context: Context, *, reading: bool = False) -> StorageError:
    from huggingface_hub import errors as hub

    status, what = int(error.response.status_code), f"cannot {action} {where}"
    message = (error.server_message or said(error)).partition("\n")[0]
    message = _batch_failure(error.response) or message
    if isinstance(error, hub.EntryNotFoundError) and reading:
        return ObjectNotFound(f"no object {where}")
    if isinstance(error, hub.GatedRepoError):
        hint = f"Request access at {context.page} with the account of the token."
        return _made(403, f"{what}: the {context.place.name} is gated, and this account has no access", hint)
    if isinstance(error, hub.RevisionNotFoundError):
        hint = f"Create the branch first, or leave out the @ and the revision: {context.page}"
        return _made(404, f"{what}: the {context.place.name} has no revision {context.place.revision}", hint)
    if isinstance(error, hub.RepositoryNotFoundError | hub.BucketNotFoundError) and status in (401, 404):
        return missing(what, context)
    made = _refused(status, what, message, context)
    made.wait = waiting(error.response.headers)
    return made


def _batch_failure(response: Any) -> str:
    """Return why the first operation of a bucket's batch failed; "" for other responses.

    Only clients since 1.30 raise the failures as an attribute; all of them keep the response's body.
    """
    try:
        body = response.json()
    except (ValueError, RuntimeError):  # not JSON, or a streamed body that is closed
        return ""
    failed = body.get("failed") if isinstance(body, Mapping) else None
    first = failed[0] if isinstance(failed, list) and failed else None
    return str(first.get("error") or "") if isinstance(first, Mapping) else ""


def missing(what: str, context: Context) -> HubRefused:
    """Return the error for a repository or bucket that is missing or invisible: the Hub's response is the same."""
    if not context.token:
        return _made(
            401, f"{what}: the {context.place.name} does not exist or is private, and there is no token", _LOG_IN
        )
    hint = f"Check the name, and the account of the token (hf auth whoami): {context.page}"
    return _made(404, f"{what}: the {context.place.name} does not exist, or this token may not read it", hint)


def no_token(what: str) -> HubRefused:
    """Return the error for a request without a token."""
    return _made(401, f"{what}: there is no token of the Hugging Face Hub", _LOG_IN)


def _refused(status: int, what: str, message: str, context: Context) -> HubRefused:
    if status == 401 and not context.token:
        return no_token(what)
    if status == 401:
        hint = f"The token has expired or was revoked. Create another ({_TOKENS}) and set HF_TOKEN, or: hf auth login."
        return _made(status, f"{what}: the token is not valid ({message})", hint)
    if status == 403:
        return _made(status, f"{what}: this token lacks a permission ({message})", _WRITE)
    if status == 429:
        return _made(status, f"{what}: the limit of requests or commits of the Hub is exceeded ({message})", _AGAIN)
    if status in (409, 412):
        return _made(status, f"{what}: another process wrote at the same time ({message})", _AGAIN)
    if status >= 500:
        return _made(status, f"{what}: the Hub failed with {status} ({message})", _AGAIN)
    return _made(status, f"{what}: {message}", f"See {context.page}")


def _made(status: int, message: str, hint: str) -> HubRefused:
    made = HubRefused(message, hint=hint, retryable=status in _PASSING)
    made.status = status
    return made


def waiting(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the Hub requests to wait, or None."""
    given = headers.get("retry-after", "")
    if given.isdigit():
        return float(given)
    found = _RATE_LIMIT.search(headers.get("ratelimit", ""))
    return float(found[1]) if found else None
