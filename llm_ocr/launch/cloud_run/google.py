"""Google's REST APIs: credentials, clients for one endpoint, and their errors."""

import json
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

from llm_ocr.config.environment import environment
from llm_ocr.errors import LaunchError, MissingExtra
from llm_ocr.launch.answers import AGAIN, Refusal, first_line, translated

_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)

#: Seconds for one request, and for an update of a job.
TIMEOUT = 60.0
CHANGE_TIMEOUT = 600.0


class Google:
    """Clients for one endpoint; credentials are loaded at the first use.

    Raises:
        MissingExtra: The client library is not installed.
        LaunchError: Google refuses a request, or cannot be reached.
    """

    def __init__(self, endpoint: str = "") -> None:
        self.endpoint = endpoint.rstrip("/")
        try:
            from google.cloud import run_v2
        except ImportError as error:
            raise MissingExtra(
                "cloud-run needs google-cloud-run, which is not installed", install="cloud-run"
            ) from error
        self.types: Any = run_v2

    @cached_property
    def _found(self) -> tuple[Any, str]:
        """Return credentials and their project."""
        import google.auth
        from google.auth.credentials import AnonymousCredentials

        if self.endpoint.startswith("http:"):  # a local server needs no credentials
            return AnonymousCredentials(), environment().get("GOOGLE_CLOUD_PROJECT", "")
        with asking("sign in"):
            credentials, project = google.auth.default(scopes=_SCOPES)
        return credentials, project or ""

    @property
    def project(self) -> str:
        """Return the project of the credentials, or raise `LaunchError` if they name none."""
        if not self._found[1]:
            hint = "Set --project PROJECT or GOOGLE_CLOUD_PROJECT."
            raise LaunchError("Cloud Run: the credentials contain no project", hint=hint)
        return self._found[1]

    @cached_property
    def jobs(self) -> Any:
        return self.types.JobsClient(**self._how)

    @cached_property
    def executions(self) -> Any:
        return self.types.ExecutionsClient(**self._how)

    @cached_property
    def tasks(self) -> Any:
        return self.types.TasksClient(**self._how)

    def message(self, kind: str, body: Mapping[str, Any]) -> Any:
        """Return a message of the API from its JSON form, with all fields."""
        return getattr(self.types, kind).from_json(json.dumps(body), ignore_unknown_fields=False)

    def update(self, action: str, body: Mapping[str, Any]) -> None:
        """Create or update a job, and wait for the end of the operation."""
        with asking(action):
            request = self.message("UpdateJobRequest", body)
            self.jobs.update_job(request=request, timeout=TIMEOUT).result(timeout=CHANGE_TIMEOUT)

    def asked(
        self, method: str, service: str, path: str, action: str, body: Mapping[str, Any] | None = None
    ) -> tuple[int, Any]:
        """Return HTTP status and JSON response of another service of Google."""
        with asking(action):
            url = f"{self.endpoint or f'https://{service}.googleapis.com'}/{path}"
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
    """Return the message of an error's body, with its reasons."""
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    if not isinstance(error, dict):
        return str(error)
    reasons = [detail.get("reason", "") for detail in error.get("details", ()) if isinstance(detail, dict)]
    return " ".join([str(error.get("message", error)), *(f"({reason})" for reason in reasons if reason)])


_SIGN_IN = "Sign in: gcloud auth application-default login."

#: Google's error texts -> advice. The first match counts.
_ADVICE = (
    (
        r"SERVICE_DISABLED|has not been used in project|API .*not enabled",
        "Enable the services: gcloud services enable run.googleapis.com secretmanager.googleapis.com "
        "artifactregistry.googleapis.com cloudbuild.googleapis.com logging.googleapis.com.",
    ),
    (
        r"quota",
        "Request a higher quota in the console (service Cloud Run Admin API, this GPU without zonal redundancy, this "
        "region), or use fewer --shards, a lower --parallelism, or another --region.",
    ),
    (
        r"permission denied on secret|secretmanager\.versions\.access",
        "Allow the jobs' account to read it: gcloud secrets add-iam-policy-binding SECRET "
        "--member=serviceAccount:EMAIL --role=roles/secretmanager.secretAccessor.",
    ),
    (
        r"secret.*not found|SECRETS_ACCESS_CHECK_FAILED",
        'Create it: printf %s "$VALUE" | gcloud secrets create SECRET --data-file=-; '
        "or set another with --secret NAME=SECRET.",
    ),
    (
        r"image.*not found|CONTAINER_MISSING|manifest.*unknown|CONTAINER_IMAGE_UNAUTHORIZED",
        "Build and push it (google-cloud-run/README.md), or set --image to an image in Artifact Registry, with an "
        "existing tag or digest.",
    ),
    (r"actas|act as", "Your account needs roles/iam.serviceAccountUser on the jobs' account."),
    (
        r"service account.*(not exist|not found)",
        "Create it (google-cloud-run/README.md), or set another --service-account.",
    ),
    (r"accelerator|gpu type|node.?selector", "This region may not have that GPU: use another --region or --hardware."),
    (
        r"location.*(not found|invalid|unknown)|locations/\S+ (?:was )?not found",
        "Set --region to a region of Cloud Run, for example us-central1.",
    ),
    (r"project.*(not found|deleted|invalid)", "Set --project to the project's ID, not its name or number."),
)

_BY_STATUS = {
    401: _SIGN_IN,
    403: "Your account needs roles/run.developer in the project, and roles/iam.serviceAccountUser on the jobs' "
    "account.",
    409: f"Another change is in progress. {AGAIN}",
    429: f"Too many requests. {AGAIN}",
}


def asking(action: str) -> AbstractContextManager[None]:
    """Turn errors of Google's clients into a `LaunchError` "Cloud Run: cannot <action>: <Google's message>"."""
    return translated(f"Cloud Run: cannot {action}", _explained)


def refused(action: str, status: int, words: str) -> LaunchError:
    """Return the error for a REST response with the message `words`."""
    return _refusal(words, status).error(f"Cloud Run: cannot {action}")


def _explained(error: Any) -> Refusal | None:
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError
    from requests import RequestException

    if isinstance(error, GoogleAuthError):
        return Refusal(first_line(error.args[0] if error.args else error), _SIGN_IN)
    if isinstance(error, GoogleAPIError):
        code, reason = getattr(error, "code", 0), getattr(error, "reason", None)
        message = str(getattr(error, "message", "") or error)
        status = getattr(code, "value", code)
        words = f"{message} ({reason})" if reason and reason not in message else message
        return _refusal(words, status if isinstance(status, int) else 0)
    if isinstance(error, RequestException | ConnectionError | TimeoutError):
        return _refusal(f"Google cannot be reached ({first_line(error)})", 0)
    return None


def _refusal(words: str, status: int) -> Refusal:
    """Add the hint for Google's message, or for the status."""
    by_status = _BY_STATUS.get(status, AGAIN if not status or status >= 500 else "")
    found = (hint for pattern, hint in _ADVICE if re.search(pattern, words, re.IGNORECASE | re.DOTALL))
    return Refusal(words.strip()[:1000], next(found, by_status), status)
