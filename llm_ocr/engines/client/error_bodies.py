"""Parse error bodies of vLLM, OpenAI, FastAPI, and proxies, and convert them to typed errors."""

import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from llm_ocr.engines import Address
from llm_ocr.errors import LlmOcrError, RequestLost, RequestRefused, ServerBusy, ServerError

LONGEST = 300  # characters of a server's text that are shown

#: Base64 in a server's echo of the request: with its header, or a long run of one alphabet of RFC 4648. PHP escapes the
#: slashes. The long path of a model's folder mixes both alphabets.
_BASE64 = re.compile(r"data:[\w/+.-]*;base64,[A-Za-z0-9+/=_\\-]*|[A-Za-z0-9+/=\\]{100,}|[A-Za-z0-9=_-]{100,}")

#: Prompts and answers that exceed the context: vLLM ("maximum context length is", "cannot be greater than
#: max_model_len", "exceeds the pre-allocated encoder cache size", seen in 0.32), OpenAI's code, SGLang, llama.cpp, TGI,
#: Gemini.
_TOO_LONG = re.compile(
    r"maximum context length|max_model_len|maximum model length|encoder cache size|context_length_exceeded"
    r"|longer than the model'?s context|exceeds? the (?:available|model'?s(?: maximum)?) context|exceed_context_size"
    r"|prompt is too long|max_(?:completion_)?tokens\W* (?:or \S+ )?is too large|`?max_new_tokens`? must be <="
    r"|token count .{0,40}exceeds the maximum number of tokens",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """Error as sent by the server; its text is untrusted and not yet cleaned."""

    message: str
    code: str = ""  # OpenAI's code (`context_length_exceeded`), or the status repeated by vLLM
    kind: str = ""  # `type` in the JSON
    param: str = ""

    @property
    def too_long(self) -> bool:
        """Whether the prompt or the answer exceeds the model's context."""
        return self.param == "input_tokens" or bool(_TOO_LONG.search(f"{self.code} {self.kind} {self.message[:2000]}"))

    @property
    def status(self) -> int:
        """HTTP status that corresponds to an error in a stream; 500 if the error does not include it."""
        if re.fullmatch(r"[45][0-9][0-9]", self.code):
            return int(self.code)
        words = f"{self.code} {self.kind}".lower()
        for status, pattern in _WORDS.items():
            if re.search(pattern, words):
                return status
        return 500


_WORDS = {
    429: r"rate_?limit|too_?many_?requests",
    503: r"overloaded|unavailable",
    400: r"bad_?request|invalid_request|context_length|content_filter",
    401: r"authentication|invalid_api_key",
    403: r"permission",
    404: r"not_?found",
}


def error_body_in(body: bytes) -> ErrorBody:
    """Return the error in a response body: JSON of any known format, otherwise the plain text."""
    try:
        return error_body_of(json.loads(body))
    except (ValueError, RecursionError):
        return ErrorBody(re.sub(r"<(script|style).*?</\1>|<[^>]*>", " ", body.decode("utf-8", "replace"), flags=re.S))


def error_body_of(value: Any) -> ErrorBody:
    """Return the error in a JSON value."""
    if isinstance(value, list) and value:
        return error_body_of(value[0])
    if not isinstance(value, Mapping):
        return ErrorBody(str(value))
    inner = value.get("error")
    if isinstance(inner, Mapping):
        value = inner
    elif isinstance(inner, str):
        value = {"message": inner, **value}
    message = value.get("message") or value.get("detail") or value.get("error") or ""
    if isinstance(message, list | tuple):  # FastAPI: one entry per field, with the complete input next to the text
        message = "; ".join(str(entry.get("msg", "") if isinstance(entry, Mapping) else entry) for entry in message)
    code, kind, param = (str(value.get(name) or "") for name in ("code", "type", "param"))
    return ErrorBody(str(message), code, kind, param)


def shown(text: str, key: str) -> str:
    """Return a server's text for display: one short line without the key, images, and control characters."""
    if key:
        text = text.replace(key, "[key]")
    text = _BASE64.sub("[data]", text)
    text = "".join(character if character.isprintable() else " " for character in text[: 20 * LONGEST])
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait by `Retry-After` in seconds or as a date; None without a valid value.

    A date is compared with the server's own `Date`, because the server's clock may differ.
    """
    text = headers.get("Retry-After", "").strip()
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        then = _moment(text)
        if then is None:
            return None
        now = _moment(headers.get("Date", ""))
        seconds = then - (time.time() if now is None else now)
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _moment(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


_BUSY = frozenset({429, 503, 529})  # 529: "overloaded" at some providers


@dataclass(frozen=True, slots=True)
class Failures:
    """Factory for the errors of one server; no error text includes the key or an image."""

    address: Address

    def answered(self, status: int, headers: Mapping[str, str], body: bytes) -> LlmOcrError:
        """Return the error for a response with a status other than 200; `body` may be cut."""
        if 300 <= status < 400:
            target = urlsplit(headers.get("Location", ""))
            place = f"{target.scheme}://{target.netloc}{target.path}" if target.netloc else target.path
            what = f"redirects requests to {place or 'another address'}"
            return self.unusable(what, "Use the URL of the server itself.")
        return self._error(status, error_body_in(body), headers)

    def streamed(self, value: Any) -> LlmOcrError:
        """Return the error for an error object inside an answer."""
        error_body = error_body_of(value)
        return self._error(error_body.status, error_body, {})

    def lost(self, what: str, *, status: int = 0, unreachable: bool = False, stalled: bool = False) -> RequestLost:
        """Return the error for an incomplete answer."""
        what = shown(what, self.address.key)
        return RequestLost(f"{self.address.url}: {what}", status=status, unreachable=unreachable, stalled=stalled)

    def unusable(self, what: str, hint: str) -> ServerError:
        """Return the error for a server that cannot complete any request."""
        return ServerError(f"{self.address.url}: {shown(what, self.address.key)}", hint=hint)

    def filtered(self) -> RequestRefused:
        """Return the error for an answer that a provider's content filter ended."""
        return RequestRefused(f"{self.address.url}: the server's content filter stopped the answer", status=200)

    def unknown(self, error: LlmOcrError, served: tuple[str, ...]) -> LlmOcrError:
        """Return the error for a 404, with the names of the served models if the requested one is missing."""
        model = self.address.model
        if not served or model in served:
            return error
        names = ", ".join(served[:20]) + (f" and {len(served) - 20} more" if len(served) > 20 else "")
        return self.unusable(
            f"does not serve the model {model!r}; it serves: {names}",
            "Choose one of these: `server_model=NAME`",
        )

    def _error(self, status: int, error_body: ErrorBody, headers: Mapping[str, str]) -> LlmOcrError:
        text = shown(error_body.message or error_body.kind or "no reason given", self.address.key)
        message = f"{self.address.url} answered {status}: {text}"
        if status == 402 or error_body.code == "insufficient_quota":
            return ServerError(message, hint="The quota of this account is exhausted.")
        if status in _BUSY:
            return ServerBusy(message, status=status, retry_after=retry_after(headers))
        if status in (401, 403):
            hint = "Check the server's API key." if self.address.key else "Set the server's API key."
            return ServerError(message, hint=hint)
        if status in (404, 405):
            return ServerError(message, hint="Check the URL and the model's name.")
        if status >= 500 or status in (408, 425) or status < 400:
            return RequestLost(message, status=status)
        # 413: the body is too large for a proxy; a smaller image is the remedy as well.
        return RequestRefused(message, status=status, too_long=status == 413 or error_body.too_long)
