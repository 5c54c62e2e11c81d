"""What answers of web servers mean: failures that pass, failures that stay, and versions."""

import asyncio
import email.utils
import hashlib
import socket
import time
from collections.abc import Mapping

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from llm_ocr.documents.remote.trying import NotNow
from llm_ocr.errors import PageFailure
from llm_ocr.types import Reason

_GONE = frozenset({404, 410})
_LOCKED = frozenset({401, 402, 403, 407})
#: Too Early, Too Many Requests, Request Timeout and all that servers say of their own troubles.
_PASSING = frozenset({408, 425, 429})
_LONGEST = 200  # characters of a server's own words in a reason


def refused(response: aiohttp.ClientResponse, url: str) -> PageFailure | None:
    """The failure that a response is, None for one with the document."""
    status = response.status
    said = f"{url}: {status} {short(response.reason or '')}".rstrip()
    if status in _GONE:
        return PageFailure(Reason.NOT_FOUND, said)
    if status in _LOCKED:
        return PageFailure(Reason.UNREADABLE, said, hint="The server wants credentials, or has let them run out.")
    if status in _PASSING or status >= 500:
        return NotNow(PageFailure(Reason.UNREADABLE, said), _patience(response.headers))
    if status != 200:
        return PageFailure(Reason.UNREADABLE, said)
    coding = response.headers.get("Content-Encoding", "identity")
    if coding.strip().lower() not in ("", "identity"):
        return PageFailure(Reason.UNREADABLE, f"{url}: sent compressed ({short(coding)}), which was not asked for")
    return None


def version_in(headers: Mapping[str, str], fingerprint: str) -> str:
    """The version that a response names, empty where it names none.

    ETag, else Last-Modified with the size. Both say something of this URL alone, hence its fingerprint.
    """
    tag = headers.get("ETag", "").removeprefix("W/")
    if tag.strip('"'):
        return "etag:" + _digest(f"{tag}\0{fingerprint}")
    modified, length = headers.get("Last-Modified", ""), headers.get("Content-Length", "")
    return "modified:" + _digest(f"{modified}\0{length}\0{fingerprint}") if modified and length else ""


def too_large(url: str, most: int) -> PageFailure:
    """The failure for a document above the limit."""
    return PageFailure(
        Reason.UNREADABLE, f"{url}: larger than {most >> 20} MiB", hint="Raise the limit if the document is wanted."
    )


def outage(error: Exception, url: str) -> PageFailure:
    """The failure for what the client raised."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return PageFailure(
            Reason.UNREADABLE,
            f"{url}: its certificate is not trusted: {error.certificate_error}",
            hint="Add its authority to the system's certificates, or name a file with it in SSL_CERT_FILE.",
        )
    if isinstance(error, (aiohttp.InvalidURL, aiohttp.ClientSSLError)):
        return PageFailure(Reason.UNREADABLE, f"{url}: {error}")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return _unknown_host(error, url)
    if isinstance(error, aiohttp.ServerTimeoutError | asyncio.TimeoutError):
        return NotNow(PageFailure(Reason.UNREADABLE, f"{url}: the server went silent"))
    if isinstance(error, aiohttp.ClientPayloadError):
        return NotNow(PageFailure(Reason.UNREADABLE, f"{url}: ended before it was whole"))
    what = short(str(error)) or type(error).__name__
    if isinstance(error, (HttpProcessingError, aiohttp.ClientResponseError)):
        what = "the server's answer is no HTTP that can be read"  # the error quotes it, and the URL with its signature
    return NotNow(PageFailure(Reason.UNREADABLE, f"{url}: {what}"))


def short(text: str) -> str:
    """What a server said, on one line and cut: it may be anything."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def _unknown_host(error: aiohttp.ClientConnectorDNSError, url: str) -> PageFailure:
    cause = error.os_error
    failure = PageFailure(Reason.NOT_FOUND, f"{url}: no such host ({cause.strerror or cause})")
    lasting = isinstance(cause, socket.gaierror) and cause.errno in (socket.EAI_NONAME, socket.EAI_FAIL)
    return failure if lasting else NotNow(failure)


def _patience(headers: Mapping[str, str]) -> float | None:
    """Seconds that Retry-After asks for, in either of its forms."""
    wanted = headers.get("Retry-After", "").strip()
    if wanted.isdigit():
        return float(wanted[:9])
    try:
        return max(0.0, email.utils.parsedate_to_datetime(wanted).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]
