"""Parse replies of a server: server-sent events, one JSON value, or an error."""

import json
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypeGuard
from urllib.parse import urlsplit

from llm_ocr.engines import Address, Completion, Finish, TextWatch
from llm_ocr.errors import LlmOcrError, RequestLost, RequestRefused, ServerBusy, ServerError

_LONGEST_SHOWN = 300  # characters of a server's text that are shown

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
    text = "".join(character if character.isprintable() else " " for character in text[: 20 * _LONGEST_SHOWN])
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"


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
        try:
            error_body = error_body_of(json.loads(body))
        except (ValueError, RecursionError):  # plain text, or a page of a proxy
            text = re.sub(r"<(script|style).*?</\1>|<[^>]*>", " ", body.decode("utf-8", "replace"), flags=re.S)
            error_body = ErrorBody(text)
        return self._error(status, error_body, headers)

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


#: Size limit of an event in bytes. An answer of 100,000 tokens in one event is smaller than 1 MB.
LONGEST = 16 * 1024 * 1024


class TooLong(ValueError):
    """An event exceeds its size limit."""


class EventSplitter:
    """Splitter of a byte stream into the data of its server-sent events (WHATWG HTML, section 9.2.6).

    The cuts of the stream make no difference. Names, ids, and comments of events are skipped: chat servers do not use
    them.
    """

    __slots__ = ("_longest", "_rest")

    def __init__(self, longest: int | None = None) -> None:
        """Configure the splitter; `longest`: bytes of an event, at most `LONGEST`."""
        self._longest = LONGEST if longest is None else min(longest, LONGEST)
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the events that end in the next piece of the stream. Raises `TooLong`."""
        if self._rest:
            data = self._rest + data
        held = b""
        if b"\r" in data:
            if data.endswith(b"\r"):  # possibly the first half of a CRLF
                data, held = data[:-1], b"\r"
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        blocks = data.split(b"\n\n")
        self._rest = blocks.pop() + held
        if len(self._rest) > self._longest:
            raise TooLong(f"an event of more than {self._longest} bytes")
        return [found for block in blocks if (found := self._data(block)) is not None]

    def finish(self) -> list[bytes]:
        """Return the data at the end of the stream that no empty line terminates."""
        rest, self._rest = self._rest, b""
        found = self._data(rest.replace(b"\r", b"\n"))
        return [] if found is None else [found]

    def _data(self, block: bytes) -> bytes | None:
        """Return the data of one event, its lines joined; None for an event without data."""
        if block.startswith(b"data:") and b"\n" not in block:
            return block[6:] if block.startswith(b"data: ") else block[5:]
        fields = (line.partition(b":") for line in block.removeprefix(b"\xef\xbb\xbf").split(b"\n"))
        lines = [value.removeprefix(b" ") for name, _, value in fields if name == b"data"]
        return b"\n".join(lines) if lines else None


#: Finish reasons of OpenAI and their synonyms in other servers. `repetition`: vLLM detected a loop itself.
_FINISHES = {
    "stop": Finish.STOP,
    "eos": Finish.STOP,
    "eos_token": Finish.STOP,
    "end_turn": Finish.STOP,
    "stop_sequence": Finish.STOP,
    "length": Finish.LENGTH,
    "max_tokens": Finish.LENGTH,
    "model_length": Finish.LENGTH,
    "repetition": Finish.CUT,
}
_BYTES_A_TOKEN = 4  # of text, for an estimate if the server sends no counts
#: Maximum characters of an answer: a base amount, and an amount per token. Tokenizers produce 3 to 5 for prose.
_LEAST_CHARACTERS, _CHARACTERS_A_TOKEN = 1000, 16
#: Maximum bytes of a JSON value: a base amount, and an amount per character (as \\uXXXX, or a token with logprobs).
_LEAST_BYTES, _BYTES_A_CHARACTER = 64 * 1024, 12
#: Maximum tokens of an answer without a limit, and of any prompt: no model has a longer context.
_UNLIMITED, _LONGEST_PROMPT = 128 * 1024, 10_000_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """Size limits of the answer to a request for `tokens`, independent of the server."""

    tokens: int

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "Bounds":
        """Return the bounds for a request with these settings."""
        limits = (settings.get(name) for name in ("max_tokens", "max_completion_tokens"))
        return cls(next((limit for limit in limits if isinstance(limit, int) and limit > 0), _UNLIMITED))

    @property
    def characters(self) -> int:
        """Maximum characters of text and reasoning together."""
        return _LEAST_CHARACTERS + _CHARACTERS_A_TOKEN * self.tokens

    @property
    def bytes(self) -> int:
        """Maximum bytes of a complete answer in JSON, or of one event of a stream."""
        return _LEAST_BYTES + _BYTES_A_CHARACTER * self.characters


#: Parser of one JSON value in a text; also returns its end. `json.loads` takes 1.5 times as long, and this function
#: runs for every token.
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # typeshed leaves it out


class Reply:
    """Received part of an answer.

    Only `content` is the answer. Reasoning is discarded, but counts as progress, length, and tokens.
    """

    __slots__ = (
        "_count", "_estimate", "_events", "_failures", "_pieces", "_size", "_tokens_in", "_watch", "bounds", "cut",
        "done", "finish", "progress",
    )  # fmt: skip

    def __init__(self, watch: TextWatch | None, failures: Failures, bounds: Bounds, prompt_tokens: int = 0) -> None:
        self.bounds = bounds
        self.finish: Finish | None = None
        self.done = False  # the server reported the end
        self.cut = False  # stop reading: the text repeats itself, or is too long
        self.progress = 0  # grows with new text, tokens, and the end, but not with keep-alive data
        self._pieces: list[str] = []
        self._size = 0  # characters of text and reasoning
        self._events = 0  # events with text or reasoning
        self._tokens_in = 0
        self._estimate = prompt_tokens
        self._count = -1  # tokens by the server's last plausible usage; -1 before the first
        self._watch = watch
        self._failures = failures

    def answer(self, seconds: float, server: str) -> Completion:
        """Return the completion after `finish` is known."""
        if self.finish is None:
            raise self._failures.lost("the answer ended without a finish reason", status=200)
        tokens_in, tokens_out, estimated = self.counts()
        text = "".join(self._pieces)
        reasoned = self._size - len(text)
        return Completion(
            text, self.finish, tokens_in, tokens_out, seconds, server=server, estimated=estimated, reasoned=reasoned
        )

    def take(self, event: bytes) -> None:
        """Process one event of the stream.

        Raises:
            RequestError: The event is an error of the request, or is not part of an answer.
            ServerError: The event is an error of the server.
        """
        if event.startswith(b"[DONE]"):
            self.done = True
        elif event:  # an empty event only keeps the connection open
            self._read(event, "delta")

    def take_whole(self, body: bytes) -> None:
        """Process the answer of a server that does not stream. Raises the errors of `take`."""
        self._read(body, "message")
        self._events = 0  # a single event says nothing about the number of tokens

    def _read(self, data: bytes, name: str) -> None:
        """Process one JSON value. `name`: of the member of a choice that contains the text."""
        try:
            text = data.decode().strip()
            value, end = _scan(text, 0)
        except (ValueError, StopIteration, RecursionError):
            raise self._failures.lost(f"sent invalid JSON: {_sample(data)}", status=200) from None
        if end != len(text) or not isinstance(value, dict):
            raise self._failures.lost(f"sent JSON that is not a completion: {_sample(data)}", status=200)
        # Some servers send `"error": null` with each event.
        if value.get("error") or value.get("object") == "error":
            raise self._failures.streamed(value)
        usage = value.get("usage")
        count = usage.get("completion_tokens") if isinstance(usage, dict) else None
        # The count may include hidden reasoning, which is limited by the request and not by the text.
        if not _is_count(count, max(self.bounds.tokens, self._size) + _LEAST_CHARACTERS):
            count = -1
        choices = value.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            # One answer was asked for; a server with settings of its own may send several, mixed.
            if not isinstance(choice, dict) or not choice.get("index"):
                self._take_choice(choice, name)
                break
        if not isinstance(usage, dict):
            return
        tokens_in = usage.get("prompt_tokens")
        if _is_count(tokens_in, _LONGEST_PROMPT):
            self._tokens_in = tokens_in
        if count < 0:
            return
        self.progress += count > self._count >= 0
        self._count = count

    def _take_choice(self, choice: Any, name: str) -> None:
        try:
            message = choice.get(name) or {}
            content = message.get("content")
            reasoning = message.get("reasoning_content") or message.get("reasoning")
            reason = choice.get("finish_reason")
        except AttributeError:
            raise self._failures.lost(f"sent an invalid choice: {choice!r:.2000}", status=200) from None
        if isinstance(reasoning, str) and reasoning:
            self._grow(len(reasoning))
        if isinstance(content, list):  # the format of some providers
            parts = [part for part in content if isinstance(part, dict) and part.get("type") == "text"]
            content = "".join(str(part.get("text") or "") for part in parts)
        if content and isinstance(content, str):
            piece = content[: max(0, self.bounds.characters - self._size)]
            self._grow(len(piece))
            self._pieces.append(piece)
            if self._watch is not None and self._watch.feed(piece):
                self.finish, self.cut = Finish.CUT, True
        if reason is None or self.cut:
            return
        if reason == "content_filter":
            url = self._failures.address.url
            raise RequestRefused(f"{url}: the server's content filter stopped the answer", status=200)
        # Only a known reason is a sound end: vLLM also sends `abort` and `error`.
        finish = _FINISHES.get(reason) if isinstance(reason, str) else None
        if finish is None:
            raise self._failures.lost(f"ended the answer with the finish reason {reason!r:.40}", status=200)
        self.finish = finish
        self.progress += 1

    def _grow(self, characters: int) -> None:
        self._events += 1
        self.progress += 1
        self._size += characters
        # no tokenizer encodes so many characters in the allowed tokens: the server ignores the limit
        if self._size >= self.bounds.characters:
            self.finish, self.cut = Finish.LENGTH, True

    def counts(self) -> tuple[int, int, bool]:
        """Return the tokens in and out, and whether they are estimated.

        The counts are the server's last plausible ones. Without them, those of the prompt are the estimate of the
        request, and those of the answer follow from the bytes and the events.
        """
        tokens_in = self._tokens_in or self._estimate
        most = _LEAST_CHARACTERS + _CHARACTERS_A_TOKEN * self._count
        if self._count >= 0 and self._size <= most:
            return tokens_in, self._count, tokens_in != self._tokens_in
        answer = sum(len(piece.encode("utf-8", "surrogatepass")) for piece in self._pieces)
        reasoned = self._size - sum(map(len, self._pieces))
        return tokens_in, max(self._events, (answer + reasoned) // _BYTES_A_TOKEN), True


def _is_count(value: Any, most: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _sample(data: bytes) -> str:
    return data[:2000].decode("utf-8", "replace")
