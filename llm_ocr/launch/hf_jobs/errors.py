"""From the Hub's answers about jobs to errors that say what to do."""

import contextlib
from collections.abc import Iterator
from typing import Any

from llm_ocr.errors import LaunchError, LlmOcrError

LOG_IN = "Log in (hf auth login), or set HF_TOKEN to a token that may write: https://huggingface.co/settings/tokens"
_PAYING = "https://huggingface.co/settings/billing (for an organisation: its settings)"
_AGAIN = "Run the same command again later: what stands already is found."

_HINTS = {
    401: f"The token has expired or was revoked. {LOG_IN}",
    402: f"Jobs need a positive balance of credits: {_PAYING}",
    403: "The token must be allowed to write and to start jobs in this namespace, and the account must have a plan or "
    f"credits for jobs: {_PAYING}",
    404: "Check --namespace, and which account the token belongs to: hf auth whoami",
    429: f"The Hub's limit of requests or jobs is used up. {_AGAIN}",
}


@contextlib.contextmanager
def asking(action: str) -> Iterator[None]:
    """Errors of huggingface_hub inside become `LaunchError`s: "cannot <action>", the Hub's words, what to do."""
    from huggingface_hub import errors as hub

    # The error of the HTTP library, which is another one in other releases.
    no_answer: type[BaseException] = hub.HfHubHTTPError.__bases__[0]
    try:
        yield
    except LlmOcrError:
        raise
    except hub.LocalTokenNotFoundError as error:
        raise no_login(action) from error
    except hub.HfHubHTTPError as error:
        raise _refused(error, action) from error
    except (no_answer, OSError, RuntimeError) as error:
        raise _made(f"cannot {action}: no answer from the Hub ({_said(error)})", _AGAIN, retryable=True) from error
    except ValueError as error:
        raise LaunchError(f"cannot {action}: {_said(error)}") from error


def no_login(action: str) -> LaunchError:
    """Nobody is logged in on this machine."""
    return LaunchError(f"cannot {action}: there is no token of the Hugging Face Hub", hint=LOG_IN)


def _refused(error: Any, action: str) -> LaunchError:
    status = int(error.response.status_code)
    message = (error.server_message or _said(error)).strip().partition("\n")[0]
    hint = _HINTS.get(status, _AGAIN if status >= 500 else "")
    return _made(f"cannot {action}: {message} ({status})", hint, retryable=status >= 500 or status in (408, 429))


def _made(message: str, hint: str, *, retryable: bool) -> LaunchError:
    made = LaunchError(message, hint=hint)
    made.retryable = retryable
    return made


def _said(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
