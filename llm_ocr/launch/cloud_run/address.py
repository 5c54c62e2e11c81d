"""Where Google's services are, and which server may stand in for all of them."""

from urllib.parse import urlsplit

from llm_ocr.errors import UsageError

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def check_endpoint(url: str) -> None:
    """Raises `UsageError` for an endpoint to which credentials would go unencrypted, or that is no URL."""
    parts = urlsplit(url)
    if not url or (parts.scheme == "https" and parts.hostname):
        return
    if parts.scheme == "http" and parts.hostname in _LOOPBACK:
        return
    raise UsageError(
        f"--platform-endpoint {url}: must be an https URL, or http on this machine",
        hint="Leave it out for Google's own.",
    )


def is_stand_in(url: str) -> bool:
    """Whether it is a server on this machine, which asks for no credentials."""
    return urlsplit(url).scheme == "http"


def base_of(service: str, endpoint: str) -> str:
    """The URL of a service's REST API without a slash at its end, for example of `logging`."""
    return endpoint.rstrip("/") or f"https://{service}.googleapis.com"


def console_url(execution: str) -> str:
    """The page of an execution, given its full name."""
    _, project, _, region, _, _, _, name = execution.split("/")
    return f"https://console.cloud.google.com/run/jobs/executions/details/{region}/{name}/tasks?project={project}"
