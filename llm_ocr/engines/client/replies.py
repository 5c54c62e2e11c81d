"""Parse replies: server-sent events or one JSON value."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from llm_ocr.engines import Completion, Finish, TextWatch
from llm_ocr.engines.client.error_bodies import Failures

# Server-sent events, cut from a stream of bytes (WHATWG HTML, section 9.2.6).


#: An event's longest size in bytes. An answer of 100,000 tokens in one event has under 1 MB.
LONGEST = 16 * 1024 * 1024
#: Events with ids that are remembered, to find those that come again.
_REMEMBERED = 64


class TooLong(ValueError):
    """An event has no end."""


class EventSplitter:
    """Gives the data of each event as soon as its end has come. How the stream was cut makes no difference.

    An event that comes again with the same id and the same data is left out, unless the stream gives one id to several
    events. Names and comments of events are left out: chat servers use none that matter.
    """

    __slots__ = ("_longest", "_rest", "_seen", "_shared")

    def __init__(self, longest: int | None = None) -> None:
        """`longest`: bytes of an event, `LONGEST` at most."""
        self._longest = LONGEST if longest is None else min(longest, LONGEST)
        self._rest = b""
        self._seen: dict[bytes, bytes] = {}  # the data of the last events that had an id
        self._shared = False  # an id stood for several events: ids show no repetition

    def feed(self, data: bytes) -> list[bytes]:
        """The events that end in the next piece of the stream. Raises `TooLong`."""
        if self._rest:
            data = self._rest + data
        held = b""
        if b"\r" in data:
            if data.endswith(b"\r"):  # perhaps the first half of a CRLF
                data, held = data[:-1], b"\r"
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        blocks = data.split(b"\n\n")
        self._rest = blocks.pop() + held
        if len(self._rest) > self._longest:
            raise TooLong(f"an event of more than {self._longest} bytes")
        return [found for block in blocks if (found := self._data(block)) is not None]

    def finish(self) -> list[bytes]:
        """What stands at the end of the stream without an empty line behind it."""
        rest, self._rest = self._rest, b""
        found = self._data(rest.replace(b"\r", b"\n"))
        return [] if found is None else [found]

    def _data(self, block: bytes) -> bytes | None:
        """Return the data of one event, its lines joined; None for an event without any, and for a repeated one."""
        if block.startswith(b"data:") and b"\n" not in block:
            return block[6:] if block.startswith(b"data: ") else block[5:]
        lines, event_id = [], b""
        for line in block.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
            name, _, value = line.partition(b":")
            if name == b"data":
                lines.append(value.removeprefix(b" "))
            elif name == b"id":
                event_id = value.strip()
        if not lines:
            return None
        data = b"\n".join(lines)
        return None if event_id and self._repeated(event_id, data) else data

    def _repeated(self, event_id: bytes, data: bytes) -> bool:
        before = self._seen.pop(event_id, None)
        self._seen[event_id] = data
        if len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]
        self._shared = self._shared or before not in (None, data)
        return before is not None and not self._shared


# An answer, put together from the events of a stream or from one JSON value.


#: OpenAI's words and those that other servers use for the same. `repetition`: vLLM saw a loop itself.
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
_BYTES_A_TOKEN = 4  # of text, for an estimate where a server counts nothing
#: Characters that an answer may have: so many, and so many for each token. Tokenizers need 3 to 5 for prose.
_LEAST_CHARACTERS, _CHARACTERS_A_TOKEN = 1000, 16
#: Bytes of a JSON value around an answer, and for each character of it (as \\uXXXX, or as a token with its logprobs).
_LEAST_BYTES, _BYTES_A_CHARACTER = 64 * 1024, 12
#: Tokens of an answer for a request that does not limit them, and of any prompt: no model has a longer context.
_UNLIMITED, _LONGEST_PROMPT = 128 * 1024, 10_000_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long the answer to a request for `tokens` may be, whatever the server sends."""

    tokens: int

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "Bounds":
        """Return the bounds for a request with these settings."""
        given = (settings.get(name) for name in ("max_tokens", "max_completion_tokens"))
        return cls(next((one for one in given if isinstance(one, int) and one > 0), _UNLIMITED))

    @property
    def characters(self) -> int:
        """Characters of text and reasoning together."""
        return _LEAST_CHARACTERS + _CHARACTERS_A_TOKEN * self.tokens

    @property
    def bytes(self) -> int:
        """Bytes of a whole answer in JSON, or of one event of a stream."""
        return _LEAST_BYTES + _BYTES_A_CHARACTER * self.characters


#: One JSON value at a place of a text, and where it ends. `json.loads` costs half as much again, and this runs for
#: every token.
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # typeshed leaves it out


class Reply:
    """The part of an answer that has come.

    Only `content` is the answer. Reasoning is not kept, but counts: as progress, as length, and as tokens.
    """

    __slots__ = (
        "_count", "_counts_rise", "_events", "_failures", "_last", "_pieces", "_size", "_tokens_in", "_watch", "bounds",
        "cut", "done", "finish", "progress",
    )  # fmt: skip

    def __init__(self, watch: TextWatch | None, failures: Failures, bounds: Bounds) -> None:
        self.bounds = bounds
        self.finish: Finish | None = None
        self.done = False  # the server said that nothing follows
        self.cut = False  # nothing more is to be read: the text repeats itself, or is too long
        self.progress = 0  # grows with each new text, token, and the end; not with what only keeps a connection awake
        self._pieces: list[str] = []
        self._size = 0  # characters of text and reasoning
        self._events = 0  # that held text or reasoning
        self._tokens_in = 0
        self._count = -1  # tokens of the answer by the server's last plausible usage; -1 before it
        self._counts_rise: bool | None = None  # whether the counts of tokens only grow; None before the first growth
        self._last = b""  # the last event
        self._watch = watch
        self._failures = failures

    def answer(self, seconds: float, server: str) -> Completion:
        """What came, for an answer whose `finish` is known."""
        if self.finish is None:
            raise self._failures.lost("the answer ended without a reason for its end", status=200)
        tokens_in, tokens_out, estimated = self.counts()
        return Completion(
            "".join(self._pieces), self.finish, tokens_in, tokens_out, seconds, server=server, estimated=estimated
        )

    def take(self, event: bytes) -> None:
        """One event of the stream. Raises `RequestError` or `ServerError` for an error and for what is no answer."""
        if event.startswith(b"[DONE]"):
            self.done = True
        elif event:  # an empty one only keeps the connection awake
            self._read(event, "delta")
            self._last = event

    def take_whole(self, body: bytes) -> None:
        """The answer of a server that does not stream. Raises as `take`."""
        self._read(body, "message")
        self._events = 0  # one event says nothing about tokens

    def _read(self, data: bytes, name: str) -> None:
        value = self._value(data)
        if "error" in value or value.get("object") == "error":
            self._check(value)
        usage = value.get("usage")
        count = self._count_in(usage)
        if count > 0 and self._counts_rise and data == self._last:
            return  # sent twice: the count of tokens would have grown with more text
        choices = value.get("choices")
        if choices and isinstance(choices, list):
            self._take_choice(choices[0], name)
        if isinstance(usage, dict):
            self._take_usage(usage, count)

    def _value(self, data: bytes) -> dict[str, Any]:
        try:
            text = data.decode().strip()
            value, end = _scan(text, 0)
        except (ValueError, StopIteration, RecursionError):
            raise self._failures.lost(f"sent what is not JSON: {_sample(data)}", status=200) from None
        if end != len(text) or not isinstance(value, dict):
            raise self._failures.lost(f"sent what is no answer: {_sample(data)}", status=200)
        return value

    def _check(self, value: dict[str, Any]) -> None:
        """Some servers send `"error": null` with each event."""
        if value.get("error") or value.get("object") == "error":
            raise self._failures.streamed(value)

    def _take_choice(self, choice: Any, name: str) -> None:
        try:
            said = choice.get(name) or {}
            content = said.get("content")
            thoughts = said.get("reasoning_content") or said.get("reasoning")
            reason = choice.get("finish_reason")
        except AttributeError:
            raise self._failures.lost(f"sent a choice that is none: {choice!r:.2000}", status=200) from None
        if isinstance(thoughts, str) and thoughts:
            self._grow(len(thoughts))
        if content:
            self._take_text(content if isinstance(content, str) else _parts(content))
        if reason is not None and not self.cut:
            self.finish = self._finish(reason)
            self.progress += 1

    def _take_text(self, piece: str) -> None:
        if not piece:
            return
        piece = piece[: max(0, self.bounds.characters - self._size)]
        self._grow(len(piece))
        self._pieces.append(piece)
        if self._watch is not None and self._watch.feed(piece):
            self.finish, self.cut = Finish.CUT, True

    def _grow(self, characters: int) -> None:
        self._events += 1
        self.progress += 1
        self._size += characters
        if self._size >= self.bounds.characters:  # no tokenizer makes so few tokens of it: the server ignores the limit
            self.finish, self.cut = Finish.LENGTH, True

    def _finish(self, reason: Any) -> Finish:
        """Only an end that is known to be sound is taken for one: vLLM also says `abort` and `error`."""
        if reason == "content_filter":
            raise self._failures.filtered()
        finish = _FINISHES.get(reason) if isinstance(reason, str) else None
        if finish is None:
            raise self._failures.lost(f"ended the answer with {reason!r:.40}", status=200)
        return finish

    def _count_in(self, usage: Any) -> int:
        """Return the tokens of the answer that a usage names; -1 where it names none or no possible number."""
        count = usage.get("completion_tokens") if isinstance(usage, dict) else None
        # Hidden reasoning may be in it, too: it is not limited by the text, but by the request.
        return count if _is_count(count, max(self.bounds.tokens, self._size) + _LEAST_CHARACTERS) else -1

    def _take_usage(self, usage: dict[str, Any], count: int) -> None:
        tokens_in = usage.get("prompt_tokens")
        if _is_count(tokens_in, _LONGEST_PROMPT):
            self._tokens_in = tokens_in
        if count < 0:
            return
        if count > self._count >= 0:
            self.progress += 1
            self._counts_rise = self._counts_rise is not False
        elif count < self._count:
            self._counts_rise = False
        self._count = count

    def counts(self) -> tuple[int, int, bool]:
        """Return the tokens in and out, and whether the tokens out are estimated.

        The server's last plausible counts are taken. Without one the tokens are estimated by the bytes and the events.
        """
        most = _LEAST_CHARACTERS + _CHARACTERS_A_TOKEN * self._count
        if self._count >= 0 and self._size <= most:
            return self._tokens_in, self._count, False
        answer = sum(len(piece.encode("utf-8", "surrogatepass")) for piece in self._pieces)
        reasoned = self._size - sum(map(len, self._pieces))
        return self._tokens_in, max(self._events, (answer + reasoned) // _BYTES_A_TOKEN), True


def _is_count(value: Any, most: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _parts(content: Any) -> str:
    """The text of content in parts, as some providers give it."""
    if not isinstance(content, list):
        return ""
    parts = [part for part in content if isinstance(part, dict) and part.get("type") == "text"]
    return "".join(str(part.get("text") or "") for part in parts)


def _sample(data: bytes) -> str:
    return data[:2000].decode("utf-8", "replace")
