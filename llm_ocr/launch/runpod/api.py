"""RunPod over HTTP: the job API of serverless endpoints, and the management API that describes them."""

import json
import logging
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar

from llm_ocr.config.environment import environment
from llm_ocr.errors import LaunchError

#: The job API, and the management API, REST v2 (docs.runpod.io/api-reference-v2, read in November 2026; v1 retires
#: in winter 2026).
JOBS, MANAGEMENT = "https://api.runpod.ai", "https://api.runpod.io"
#: Timeouts in seconds. Jobs do not need the management API.
SECONDS, MANAGEMENT_SECONDS = 60.0, 15.0
_KEY = "RUNPOD_API_KEY"
_HINTS = {
    401: f"Set {_KEY} to a valid key: create one in the console under Settings, API Keys.",
    403: f"The key in {_KEY} needs read and write access to the endpoint.",
    429: "Too many requests or queued jobs: try again later, or raise the endpoint's Max workers.",
}

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class NotThere(LaunchError):
    """Status 404: RunPod does not have the endpoint, or no longer has the job."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Settings of an endpoint; None for values that RunPod did not return."""

    workers: int  # maximum
    machine: str  # "gpu", "cpu", or ""
    pools: tuple[str, ...]  # of GPU types
    excluded: tuple[str, ...]  # GPU types of the pools
    variables: frozenset[str] | None


class Api:
    """Both APIs; `server` replaces the servers of both."""

    def __init__(self, server: str = "") -> None:
        self._jobs = (server or JOBS).rstrip("/")
        self._management = (server or MANAGEMENT).rstrip("/")

    def get(self, path: str) -> Mapping[str, Any]:
        """Send a GET request to the job API.

        Raises:
            NotThere: RunPod does not have the object.
            LaunchError: The request failed; contains RunPod's message.
        """
        return _call(f"{self._jobs}/{path}", None, SECONDS)

    def post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request to the job API. Raises as `get`."""
        return _call(f"{self._jobs}/{path}", body, SECONDS)

    def endpoint(self, id_: str) -> Endpoint | None:
        """Return the settings of an endpoint; None and a warning in the log if the management API fails."""
        subject = f"workers, GPU, and variables of endpoint {id_}"
        found = _known(subject, lambda: _endpoint(self._manage(f"v2/serverless/{id_}")))
        if found is not None and found.variables is None:
            _log.warning("variables of endpoint %s were not checked: RunPod did not return them", id_)
        return found

    def gpu_types(self, endpoint: Endpoint) -> list[str]:
        """Return the GPU types that an endpoint may use; none, and a warning, if the management API fails."""

        def ask() -> list[str]:
            types = self._manage("v2/catalog/gpus")["gpus"]
            ids = [str(one["id"]) for one in types if one["pool"] in endpoint.pools]
            return [id_ for id_ in ids if id_ not in endpoint.excluded]

        return _known("GPU types of the endpoint", ask) or []

    def _manage(self, path: str) -> Mapping[str, Any]:
        return _call(f"{self._management}/{path}", None, MANAGEMENT_SECONDS)


def _known(subject: str, ask: Callable[[], _T]) -> _T | None:
    try:
        return ask()
    except (LaunchError, AttributeError, KeyError, TypeError, ValueError) as error:
        why = error.args[0] if isinstance(error, LaunchError) else "the response has an unexpected form"
        _log.warning("%s were not checked: %s", subject, why)
        return None


def _endpoint(found: Mapping[str, Any]) -> Endpoint:
    """Return the settings in a response.

    Raises `KeyError`, `TypeError`, `ValueError`, or `AttributeError` for an unexpected form.
    """
    gpu, variables = found.get("gpu") or {}, found.get("env")
    return Endpoint(
        workers=int(found["workers"]["max"]),
        machine="gpu" if gpu else "cpu" if found.get("cpu") else "",
        pools=tuple(gpu.get("pools") or ()),
        excluded=tuple(gpu.get("excludedTypes") or ()),
        variables=None if variables is None else frozenset(variables),
    )


def _call(url: str, body: Mapping[str, Any] | None, seconds: float) -> Mapping[str, Any]:
    key = environment().get(_KEY, "").strip() or _configured()
    if not key:
        raise LaunchError(f"RunPod needs a key, but {_KEY} is not set", hint=_HINTS[401])
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "llm-ocr"}
    request = urllib.request.Request(url, data, headers)
    request.add_unredirected_header("Authorization", f"Bearer {key}")  # for this server only
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            found = json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as error:
        kind = NotThere if error.code == 404 else LaunchError
        message = f"RunPod returned {error.code} {error.reason}: {_message(error)}"
        raise kind(message, hint=_HINTS.get(error.code, "")) from error
    except (OSError, HTTPException, ValueError) as error:
        why = getattr(error, "reason", None) or error  # URLError, SSLError, and UnicodeError have a reason
        raise LaunchError(f"RunPod cannot be reached: {why}", hint="Check the network, and try again.") from error
    return found if isinstance(found, dict) else {}


def _configured() -> str:
    """Return the key that RunPod's own command line has stored, or ""."""
    try:
        return str(tomllib.loads(Path("~/.runpod/config.toml").expanduser().read_text())["default"]["api_key"])
    except (OSError, ValueError, RuntimeError, KeyError, TypeError):
        return ""


def _message(error: urllib.error.HTTPError) -> str:
    """Return the platform's message without its markup; v2 has RFC 9457 problems."""
    text = error.read(4096).decode(errors="replace").strip()
    try:
        found = json.loads(text)
    except ValueError:
        return text[:300] or "no message"
    if isinstance(found, dict):
        found = next((found[name] for name in ("error", "message", "detail", "title") if found.get(name)), found)
    return found if isinstance(found, str) else json.dumps(found)[:300]
