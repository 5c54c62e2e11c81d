"""Google's REST APIs: credentials, clients for one endpoint, and their errors as ours."""

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from llm_ocr.errors import LaunchError, LlmOcrError, MissingExtra, UsageError
from llm_ocr.settings.environment import environment

_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)

#: Seconds for one request, and for a change of a job to be through.
TIMEOUT = 60.0
CHANGE_TIMEOUT = 600.0


class Google:
    """Credentials are found at the first use. Raises `MissingExtra` without the client library, `LaunchError` else."""

    def __init__(self, endpoint: str = "") -> None:
        self.endpoint = endpoint.rstrip("/")
        try:
            from google.cloud import run_v2
        except ImportError as error:
            what = "cloud-run needs google-cloud-run, which is not installed"
            raise MissingExtra(what, install="cloud-run") from error
        self.types: Any = run_v2

    @cached_property
    def _found(self) -> tuple[Any, str]:
        """Credentials and their project."""
        import google.auth
        from google.auth.credentials import AnonymousCredentials

        if is_stand_in(self.endpoint):
            return AnonymousCredentials(), environment().get("GOOGLE_CLOUD_PROJECT", "")
        with translated("sign in"):
            credentials, project = google.auth.default(scopes=_SCOPES)
        return credentials, project or ""

    @property
    def project(self) -> str:
        """Of the credentials. Raises `LaunchError` when they name none."""
        if not self._found[1]:
            hint = "Give --project PROJECT, or set GOOGLE_CLOUD_PROJECT."
            raise LaunchError("Cloud Run: the credentials name no project", hint=hint)
        return self._found[1]

    @cached_property
    def jobs(self) -> Any:
        """The client of jobs."""
        return self.types.JobsClient(**self._how)

    @cached_property
    def executions(self) -> Any:
        """The client of executions."""
        return self.types.ExecutionsClient(**self._how)

    @cached_property
    def tasks(self) -> Any:
        """The client of tasks."""
        return self.types.TasksClient(**self._how)

    def message(self, kind: str, body: Mapping[str, Any]) -> Any:
        """A message of the API from its JSON form; nothing in it is dropped."""
        return getattr(self.types, kind).from_json(json.dumps(body), ignore_unknown_fields=False)

    def rest(self, method: str, service: str, path: str, action: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON answer of another service of Google's. Raises `LaunchError`; see `asked` for its status."""
        status, answer = self.asked(method, service, path, action, body)
        if status >= 400:
            raise refused(action, status, message_in(answer))
        return answer

    def asked(
        self, method: str, service: str, path: str, action: str, body: Mapping[str, Any] | None = None
    ) -> tuple[int, Any]:
        """HTTP status and JSON answer."""
        with translated(action):
            url = f"{base_of(service, self.endpoint)}/{path}"
            response = self._session.request(method, url, json=body, timeout=TIMEOUT)
            try:
                return response.status_code, response.json()
            except ValueError:
                return response.status_code, response.text

    @cached_property
    def _session(self) -> Any:
        from google.auth.transport.requests import AuthorizedSession

        return AuthorizedSession(self._found[0])

    @property
    def _how(self) -> dict[str, Any]:
        options = {"api_endpoint": self.endpoint} if self.endpoint else None
        return {"transport": "rest", "credentials": self._found[0], "client_options": options}


def message_in(answer: Any) -> str:
    """What an error's body says."""
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    if not isinstance(error, dict):
        return str(error)
    reasons = [one.get("reason", "") for one in error.get("details", ()) if isinstance(one, dict)]
    return " ".join([str(error.get("message", error)), *(f"({reason})" for reason in reasons if reason)])


_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def check_endpoint(url: str) -> None:
    """Raises `UsageError` for an endpoint to which credentials would go unencrypted, or that is no URL."""
    parts = urlsplit(url)
    if not url or (parts.scheme == "https" and parts.hostname):
        return
    if parts.scheme == "http" and parts.hostname in _LOOPBACK:
        return
    hint = "Leave it out for Google's own."
    raise UsageError(f"--platform-endpoint {url}: must be an https URL, or http on this machine", hint=hint)


def is_stand_in(url: str) -> bool:
    """Whether it is a server on this machine, which asks for no credentials."""
    return urlsplit(url).scheme == "http"


def base_of(service: str, endpoint: str) -> str:
    """The URL of a service's REST API without a slash at its end, for example of `logging`."""
    return endpoint.rstrip("/") or f"https://{service}.googleapis.com"


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
