"""Where a server answers, from what a user typed."""

import re
from urllib.parse import urlsplit

from llm_ocr.engines.serving import Address
from llm_ocr.errors import UsageError

#: A version in the path (/v1, /v1beta/openai, /api/paas/v4): the provider's own; nothing is appended then.
_VERSION = re.compile(r"/v\d+[a-z0-9]*(?=/|$)")
_ENDPOINT = "/chat/completions"


def address_of(url: str, model: str, key: str = "") -> Address:
    """The address of a server, given with or without /v1, a slash at the end, or /chat/completions.

    Raises `UsageError` for what is not the URL of a server, and for a key that no HTTP header can carry.
    """
    text = url.strip()
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port  # reading the port checks it
    except ValueError as error:
        raise UsageError(f"the server's URL cannot be read: {error}") from None
    if "@" in parts.netloc:
        raise UsageError("the server's URL holds a name or password", hint="Give the API key by its own setting.")
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(
            f"not the URL of a server: {text!r}", hint="Give it as http://HOST:PORT/v1 or https://HOST/v1."
        )
    if parts.query or parts.fragment or re.search(r"[\s\x00-\x1f]", text):
        raise UsageError("the server's URL holds a query, a fragment or a space", hint="Give it as far as its path.")
    path = parts.path.rstrip("/").removesuffix(_ENDPOINT).rstrip("/")
    if not _VERSION.search(path):
        path += "/v1"
    return Address(f"{parts.scheme}://{parts.netloc}{path}", model, _sendable(key))


def _sendable(key: str) -> str:
    key = key.strip()
    if not all("!" <= character <= "~" for character in key):
        raise UsageError(
            "the server's API key holds a space, a control character or a letter outside ASCII",
            hint="Copy it again; only one line belongs to it.",
        )
    return key
