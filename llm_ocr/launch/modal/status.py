"""What became of a call of a Modal function."""

import re
from collections.abc import Mapping
from typing import Any

from llm_ocr.errors import LaunchError
from llm_ocr.launch import Job, JobStatus, State
from llm_ocr.launch.modal.client import modal

_CANCELLED = re.compile(r"cancel|terminated by user", re.IGNORECASE)


def call_status(job: Job, call: Any, begun: float | None, ended: Mapping[str, Any] | None) -> JobStatus:
    """The status of a call; `begun` and `ended` are what the call itself has noted.

    Raises `LaunchError` when Modal cannot be asked.
    """
    state, reason = _outcome(call, begun, ended)
    if state is State.FAILED and ended and ended.get("timed_out"):
        state = State.TIMED_OUT
    end = float(ended["time"]) if ended and state.over else None
    seconds = end - begun if end is not None and begun is not None else None
    if begun is None and state.over:
        seconds = 0.0  # it never had a container
    return JobStatus(job, state, reason, begun, end, seconds)


def _outcome(call: Any, begun: float | None, ended: Mapping[str, Any] | None) -> tuple[State, str]:
    exception = modal().exception
    try:
        call.get(timeout=0)
    except TimeoutError:  # Python's own: no result yet
        return (State.QUEUED if begun is None else State.RUNNING), ""
    except exception.FunctionTimeoutError as error:
        return State.TIMED_OUT, _words(error, "stopped by its time limit")
    except exception.InputCancellation as error:
        return State.CANCELLED, _words(error, "cancelled")
    except exception.OutputExpiredError:
        return _as_noted(ended)
    except (exception.RemoteError, exception.InternalFailure, exception.ExecutionError) as error:
        words = _words(error, "failed on Modal")
        return (State.CANCELLED if _CANCELLED.search(words) else State.FAILED), words
    except exception.NotFoundError as error:
        return State.FAILED, _words(error, "Modal does not know this call")
    except exception.Error as error:
        raise LaunchError(f"Modal cannot be asked: {error}") from error
    except Exception as error:  # noqa: BLE001 - the job raised it, over there
        return State.FAILED, _words(error, type(error).__name__)
    return State.SUCCEEDED, ""


def _words(error: BaseException, otherwise: str) -> str:
    return " ".join(str(error).split()) or otherwise


def _as_noted(ended: Mapping[str, Any] | None) -> tuple[State, str]:
    """Modal forgets results; the notes tell what they were."""
    if ended is None:
        return State.FAILED, "Modal has forgotten its result, and it noted no end"
    if ended["exit_code"]:
        return State.FAILED, f"exit code {ended['exit_code']}"
    return State.SUCCEEDED, ""
