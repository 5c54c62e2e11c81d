"""RunPod's HTTP: jobs of endpoints, and what an endpoint says of itself."""

import json
import tomllib
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any

from llm_ocr.errors import LaunchError
from llm_ocr.settings.environment import environment

#: Jobs, and the management of endpoints (docs.runpod.io, November 2026).
JOBS, MANAGEMENT = "https://api.runpod.ai", "https://rest.runpod.io"
_KEY = "RUNPOD_API_KEY"
_SECONDS = 60.0

_HINTS = {
    401: f"{_KEY} holds no key that RunPod knows: make one in the console under Settings, API Keys.",
    403: f"The key in {_KEY} may not do this: it needs read and write access to the endpoint.",
    429: "Too many requests, or too many jobs in the endpoint's queue: try again later, or raise its Max workers.",
}


class NotThere(LaunchError):
    """404: no such endpoint, or no such job any more."""


class Api:
    """`server` stands in for both of RunPod's servers."""

    def __init__(self, server: str = "") -> None:
        self._jobs = (server or JOBS).rstrip("/")
        self._management = (server or MANAGEMENT).rstrip("/")

    def get(self, path: str) -> Mapping[str, Any]:
        """Raises `NotThere` and `LaunchError` with RunPod's words."""
        return self._call(f"{self._jobs}/{path}", None)

    def post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """As `get`."""
        return self._call(f"{self._jobs}/{path}", body)

    def about(self, endpoint: str) -> Mapping[str, Any]:
        """Its settings; empty where the key may not ask for them."""
        try:
            return self._call(f"{self._management}/v1/endpoints/{endpoint}?includeTemplate=true", None)
        except _Refused:
            return {}
        except NotThere:
            return {}  # somebody else's, which the key may use

    def _call(self, url: str, body: Mapping[str, Any] | None) -> Mapping[str, Any]:
        key = environment().get(_KEY, "").strip() or _configured()
        if not key:
            raise LaunchError(f"RunPod needs a key, and {_KEY} is not set", hint=_HINTS[401])
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "llm-ocr"}
        request = urllib.request.Request(url, data, headers)
        request.add_unredirected_header("Authorization", f"Bearer {key}")  # for this server, and for no other
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
                found = json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            raise _refusal(error) from error
        except (OSError, HTTPException, ValueError) as error:
            why = getattr(error, "reason", None) or error
            raise LaunchError(f"RunPod cannot be asked: {why}", hint="Is the network there? Try again.") from error
        return found if isinstance(found, dict) else {}


def _configured() -> str:
    """The key that RunPod's own command line has stored; "" for none."""
    try:
        held = tomllib.loads(Path("~/.runpod/config.toml").expanduser().read_text())
    except (OSError, ValueError, RuntimeError):
        return ""
    key = held.get("default", {}).get("api_key", "") if isinstance(held.get("default"), dict) else ""
    return str(key)


class _Refused(LaunchError):
    """401 or 403."""


def _refusal(error: urllib.error.HTTPError) -> LaunchError:
    words = _words(error)
    kind = {401: _Refused, 403: _Refused, 404: NotThere}.get(error.code, LaunchError)
    return kind(f"RunPod says {error.code} {error.reason}: {words}", hint=_HINTS.get(error.code, ""))


def _words(error: urllib.error.HTTPError) -> str:
    """What the platform says, without its markup."""
    text = error.read(4096).decode(errors="replace").strip()
    try:
        said = json.loads(text)
    except ValueError:
        return text[:300] or "nothing more"
    if isinstance(said, dict):
        said = said.get("error") or said.get("message") or said.get("title") or said
    return said if isinstance(said, str) else json.dumps(said)[:300]
