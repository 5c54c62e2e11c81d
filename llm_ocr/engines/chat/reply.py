"""An answer, put together from the events of a stream or from one JSON value."""

import json
from collections.abc import Callable
from typing import Any

from llm_ocr.engines.asking import Answer, Finish, TextWatch
from llm_ocr.engines.chat.failures import Failures

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
_CHARACTERS_A_TOKEN = 4  # only where a server sends the whole answer at once and counts nothing

#: One JSON value at a place of a text, and where it ends. `json.loads` costs half as much again, and this runs for
#: every token.
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # typeshed leaves it out


class Reply:
    """What has come so far. Reasoning is left out: only `content` is the answer."""

    __slots__ = ("_estimate", "_failures", "_pieces", "_usage", "_watch", "done", "finish")

    def __init__(self, watch: TextWatch | None, failures: Failures) -> None:
        self.finish: Finish | None = None
        self.done = False  # the server said that nothing follows
        self._pieces: list[str] = []
        self._estimate = 0
        self._usage: Any = None
        self._watch = watch
        self._failures = failures

    @property
    def cut(self) -> bool:
        return self.finish is Finish.CUT

    def answer(self, seconds: float, server: str) -> Answer:
        """What came, for an answer whose `finish` is known."""
        if self.finish is None:
            raise self._failures.lost("the answer ended without a reason for its end", status=200)
        tokens_in, tokens_out = self._counts()
        return Answer("".join(self._pieces), self.finish, tokens_in, tokens_out, seconds, server=server)

    def take(self, event: bytes) -> None:
        """One event of the stream. Raises `RequestError` or `ServerError` for an error and for what is no answer."""
        if event.startswith(b"[DONE]"):
            self.done = True
        elif event:  # an empty one only keeps the connection awake
            self._read(event, "delta")

    def take_whole(self, body: bytes) -> None:
        """The answer of a server that does not stream. Raises as `take`."""
        self._read(body, "message")
        self._estimate = sum(map(len, self._pieces)) // _CHARACTERS_A_TOKEN

    def _read(self, data: bytes, name: str) -> None:
        value = self._value(data)
        if "error" in value or value.get("object") == "error":
            self._check(value)
        choices = value.get("choices")
        if choices and isinstance(choices, list):
            self._take_choice(choices[0], name)
        if usage := value.get("usage"):
            self._usage = usage

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
            content = (choice.get(name) or {}).get("content")
            reason = choice.get("finish_reason")
        except AttributeError:
            raise self._failures.lost(f"sent a choice that is none: {choice!r:.2000}", status=200) from None
        if content:
            self._take_text(content if isinstance(content, str) else _parts(content))
        if reason is not None and self.finish is not Finish.CUT:
            self.finish = self._finish(reason)

    def _take_text(self, piece: str) -> None:
        self._estimate += 1
        self._pieces.append(piece)
        if self._watch is not None and self._watch.feed(piece):
            self.finish = Finish.CUT

    def _finish(self, reason: Any) -> Finish:
        """Only an end that is known to be sound is taken for one: vLLM also says `abort` and `error`."""
        if reason == "content_filter":
            raise self._failures.filtered()
        finish = _FINISHES.get(reason) if isinstance(reason, str) else None
        if finish is None:
            raise self._failures.lost(f"ended the answer with {reason!r:.40}", status=200)
        return finish

    def _counts(self) -> tuple[int, int]:
        """Tokens in and out by the last usage that came; without one the events that held text are counted."""
        usage = self._usage if isinstance(self._usage, dict) else {}
        tokens_in, tokens_out = usage.get("prompt_tokens"), usage.get("completion_tokens")
        return (
            tokens_in if isinstance(tokens_in, int) else 0,
            tokens_out if isinstance(tokens_out, int) else self._estimate,
        )


def _parts(content: Any) -> str:
    """The text of content in parts, as some providers give it."""
    if not isinstance(content, list):
        return ""
    parts = [part for part in content if isinstance(part, dict) and part.get("type") == "text"]
    return "".join(str(part.get("text") or "") for part in parts)


def _sample(data: bytes) -> str:
    return data[:2000].decode("utf-8", "replace")
