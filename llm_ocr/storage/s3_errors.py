"""From the SDK's errors to errors that say what to do."""

import contextlib
from collections.abc import Iterator
from typing import Any

from llm_ocr.errors import LlmOcrError, ObjectNotFound, StorageError
from llm_ocr.storage.local_errors import storage_error
from llm_ocr.storage.s3_advice import AGAIN, DENIED, Advice, Answer, Context, advice_for, sdk_advice


class Conflict(StorageError):
    """409 or 412: a conditional write met another version of the object, or another writer."""

    retryable = True


class Unsupported(StorageError):
    """The service does not know the request, or a header of it."""


class Denied(StorageError):
    """The credentials are good, and do not allow this."""


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
        if reading and _is_missing(error):
            raise ObjectNotFound(f"no object {where}") from error
        raise _from_answer(error, f"cannot {action} {where}", context) from error
    except (BotoCoreError, HTTPError) as error:
        raise _made(StorageError, f"cannot {action} {where}", sdk_advice(error, context)) from error
    except OSError as error:  # of the local file that is sent or written
        raise storage_error(error, action, where) from error


def _is_missing(error: Any) -> bool:
    code, status = _code(error)
    return status == 404 and code != "NoSuchBucket"


def _code(error: Any) -> tuple[str, int]:
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
    return str(error.response.get("Error", {}).get("Code") or status), status


def _from_answer(error: Any, what: str, context: Context) -> StorageError:
    code, status = _code(error)
    said = error.response.get("Error", {})
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = str(said.get("Region") or headers.get("x-amz-bucket-region") or "")
    return _made(
        _kind(code, status),
        what,
        advice_for(Answer(code, status, said.get("Message") or "", region, error.operation_name), context),
    )


def _kind(code: str, status: int) -> type[StorageError]:
    if status in (409, 412) or code in ("PreconditionFailed", "ConditionalRequestConflict"):
        return Conflict
    if code in DENIED:
        return Denied
    return Unsupported if status in (405, 501) or code in ("NotImplemented", "MethodNotAllowed") else StorageError


def _made(kind: type[StorageError], what: str, advice: Advice) -> StorageError:
    made = kind(f"{what}: {advice.what}", hint=advice.hint or (AGAIN if advice.retryable else ""))
    made.retryable = advice.retryable or kind is Conflict
    return made
