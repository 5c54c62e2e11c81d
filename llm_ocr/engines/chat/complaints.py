"""What a server says when it does not answer, in the shapes of vLLM, OpenAI, FastAPI and plain proxies."""

import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

LONGEST = 300  # characters of a server's text that are shown

#: Base64 in a server's echo of the request: with its head, or a long run of one of the two alphabets of RFC 4648 (PHP
#: escapes the slashes). The long path of a model's folder mixes both.
_BASE64 = re.compile(r"data:[\w/+.-]*;base64,[A-Za-z0-9+/=_\\-]*|[A-Za-z0-9+/=\\]{100,}|[A-Za-z0-9=_-]{100,}")

#: Prompts and answers that do not fit: vLLM ("maximum context length is", "cannot be greater than max_model_len",
#: "exceeds the pre-allocated encoder cache size", seen in 0.32), OpenAI's code, SGLang, llama.cpp, TGI, Gemini.
_TOO_LONG = re.compile(
    r"maximum context length|max_model_len|maximum model length|encoder cache size|context_length_exceeded"
    r"|longer than the model'?s context|exceeds? the (?:available|model'?s(?: maximum)?) context|exceed_context_size"
    r"|prompt is too long|max_(?:completion_)?tokens\W* (?:or \S+ )?is too large|`?max_new_tokens`? must be <="
    r"|token count .{0,40}exceeds the maximum number of tokens",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Complaint:
    """An error as the server gave it; nothing in it is trusted or cleaned yet."""

    message: str
    code: str = ""  # OpenAI's word (`context_length_exceeded`) or vLLM's repetition of the status
    kind: str = ""  # `type` in the JSON
    param: str = ""

    @property
    def too_long(self) -> bool:
        """The prompt or the room for the answer does not fit into the model's context."""
        return self.param == "input_tokens" or bool(_TOO_LONG.search(f"{self.code} {self.kind} {self.message[:2000]}"))

    @property
    def status(self) -> int:
        """The HTTP status that an error inside a stream stands for; 500 where it does not say."""
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


def complaint_in(body: bytes) -> Complaint:
    """The error in the body of a response: JSON of any known shape, else the text as it stands."""
    try:
        return complaint_of(json.loads(body))
    except (ValueError, RecursionError):
        return Complaint(re.sub(r"<(script|style).*?</\1>|<[^>]*>", " ", body.decode("utf-8", "replace"), flags=re.S))


def complaint_of(value: Any) -> Complaint:
    """The error in a JSON value."""
    if isinstance(value, list) and value:
        return complaint_of(value[0])
    if not isinstance(value, Mapping):
        return Complaint(str(value))
    inner = value.get("error")
    if isinstance(inner, Mapping):
        value = inner
    elif isinstance(inner, str):
        value = {"message": inner, **value}
    message = value.get("message") or value.get("detail") or value.get("error") or ""
    if isinstance(message, list | tuple):  # FastAPI: one entry a field, with the whole input beside the text
        message = "; ".join(str(one.get("msg", "")) if isinstance(one, Mapping) else str(one) for one in message)
    code, kind, param = (str(value.get(name) or "") for name in ("code", "type", "param"))
    return Complaint(str(message), code, kind, param)


def shown(text: str, key: str) -> str:
    """A server's text as it may be shown: one line, not long, without the key, images and control characters."""
    if key:
        text = text.replace(key, "[key]")
    text = _BASE64.sub("[data]", text)
    text = "".join(character if character.isprintable() else " " for character in text[: 20 * LONGEST])
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from `Retry-After` in seconds or as a date; None when there is none that can be read.

    A date is taken against the server's own `Date`: its clock may differ from ours.
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
