"""Google's clients for one endpoint and one set of credentials, over REST."""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from llm_ocr.errors import LaunchError, MissingExtra
from llm_ocr.launch.cloud_run.address import base_of, is_stand_in
from llm_ocr.launch.cloud_run.errors import refused, translated
from llm_ocr.settings.environment import environment

_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_INSTALL = 'Install it: pip install "llm-ocr[cloud-run]"'

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
            raise MissingExtra("cloud-run needs google-cloud-run, which is not installed", hint=_INSTALL) from error
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
            raise LaunchError(
                "Cloud Run: the credentials name no project",
                hint="Give --project PROJECT, or set GOOGLE_CLOUD_PROJECT.",
            )
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
