"""From the errors of Google's clients to `LaunchError` in Google's words, with what to do."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from llm_ocr.errors import LaunchError, LlmOcrError

_SIGN_IN = "Sign in: gcloud auth application-default login."
_AGAIN = "Try again; nothing is lost."
_GOES_ON = "The same command goes on: it finds what was created."

#: What Google says -> what to do. The first that is found counts.
_ADVICE = (
    (
        r"SERVICE_DISABLED|has not been used in project|API .*not enabled",
        "Enable the services: gcloud services enable run.googleapis.com secretmanager.googleapis.com "
        "artifactregistry.googleapis.com cloudbuild.googleapis.com logging.googleapis.com.",
    ),
    (
        r"quota",
        "Ask for more on the console's page of quotas (service Cloud Run Admin API, this GPU without zonal redundancy, "
        "this region), or use fewer --shards, a lower --parallelism or another --region.",
    ),
    (
        r"permission denied on secret|secretmanager\.versions\.access",
        "Let the jobs' account read it: gcloud secrets add-iam-policy-binding SECRET "
        "--member=serviceAccount:EMAIL --role=roles/secretmanager.secretAccessor.",
    ),
    (
        r"secret.*not found|SECRETS_ACCESS_CHECK_FAILED",
        'Create it: printf %s "$VALUE" | gcloud secrets create SECRET --data-file=-; '
        "or name another with --secret NAME=SECRET.",
    ),
    (
        r"image.*not found|CONTAINER_MISSING|manifest.*unknown|CONTAINER_IMAGE_UNAUTHORIZED",
        "Build and push it as google-cloud-run/README.md says, or give another --image: one in Artifact Registry, with "
        "a tag or digest that exists.",
    ),
    (r"actas|act as", "Whoever launches needs roles/iam.serviceAccountUser on the jobs' account."),
    (
        r"service account.*(not exist|not found)",
        "Create it as google-cloud-run/README.md says, or give another --service-account.",
    ),
    (r"accelerator|gpu type|node.?selector", "This region may not have that GPU: use another --region or --hardware."),
    (
        r"location.*(not found|invalid|unknown)|locations/\S+ (?:was )?not found",
        "Give a region of Cloud Run as --region, for example us-central1.",
    ),
    (r"project.*(not found|deleted|invalid)", "Give the project's id, not its name or number, as --project."),
)

_BY_STATUS = {
    401: _SIGN_IN,
    403: "Whoever launches needs roles/run.developer in the project, and roles/iam.serviceAccountUser on the jobs' "
    "account.",
    409: f"Somebody else changes it at this moment. {_AGAIN}",
    429: f"Too many requests. {_AGAIN}",
}


@contextlib.contextmanager
def translated(action: str) -> Iterator[None]:
    """Turn errors of Google's clients into a `LaunchError` "Cloud Run: cannot <action>: <Google's words>"."""
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError
    from requests import RequestException

    try:
        yield
    except LlmOcrError:
        raise
    except GoogleAuthError as error:
        raise LaunchError(f"Cloud Run: cannot {action}: {first_line(error)}", hint=_SIGN_IN) from error
    except GoogleAPIError as error:
        raise _made(action, status_of(error), words_of(error)) from error
    except (RequestException, ConnectionError, TimeoutError) as error:
        raise _made(action, 0, f"Google could not be reached ({first_line(error)})") from error


def refused(action: str, status: int, words: str) -> LaunchError:
    """The error for an answer of a REST API: `words` is its body or message."""
    return _made(action, status, words)


def status_of(error: BaseException) -> int:
    """The HTTP status of the answer that the error was made of; 0 for none."""
    code: Any = getattr(error, "code", 0)
    return (
        code.value if hasattr(code, "value") and isinstance(code.value, int) else code if isinstance(code, int) else 0
    )


def words_of(error: BaseException) -> str:
    """What Google said, with the reasons that it gave apart from its message."""
    message = str(getattr(error, "message", "") or error)
    reason = getattr(error, "reason", None)
    return f"{message} ({reason})" if reason and reason not in message else message


def advice(status: int, words: str) -> str:
    """What to do."""
    for pattern, what in _ADVICE:
        if re.search(pattern, words, re.IGNORECASE | re.DOTALL):
            return what
    return _BY_STATUS.get(status, _GOES_ON if not status or status >= 500 else "")


def first_line(error: BaseException) -> str:
    """Short, for a message."""
    first = error.args[0] if error.args and isinstance(error.args[0], str) else error
    return (str(first).strip().splitlines() or [type(error).__name__])[0][:300]


def _made(action: str, status: int, words: str) -> LaunchError:
    made = LaunchError(f"Cloud Run: cannot {action}: {words.strip()[:1000]}", hint=advice(status, words))
    made.retryable = status in (0, 409, 429) or status >= 500
    return made
