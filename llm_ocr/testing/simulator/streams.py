"""An answer on its way out: chunks in OpenAI's form, written to the transport directly."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

_DONE = b"data: [DONE]\n\n"


class SseStream:
    """Server-sent events of one answer, a piece of text per `interval` tokens.

    Frames are made here and not by aiohttp's `write`, which is a coroutine: the engine's timer writes for all requests.
    """

    def __init__(
        self, transport: asyncio.Transport, head: Mapping[str, Any], text: str, tokens: int, interval: int
    ) -> None:
        self._transport = transport
        self._head = json.dumps(dict(head))[:-1]
        self._text = text
        self._tokens = tokens
        self._interval = interval
        self._sent = 0  # characters
        self._next = 0  # tokens at which the next piece is due

    def send(self, made: int) -> int:
        """See `live.Stream`."""
        events = []
        if not self._next:
            events.append(self._event('{"role": "assistant", "content": ""}'))
            self._next = 1
        ends = range(self._next, made + 1, self._interval)
        for tokens in ends if made < self._tokens else (*ends, made):
            end = len(self._text) * tokens // self._tokens
            if end > self._sent:
                events.append(self._event('{"content": ' + json.dumps(self._text[self._sent : end]) + "}"))
                self._sent = end
        self._next += len(ends) * self._interval
        if events:
            self._write("".join(events).encode())
        return self._next

    def finish(self, reason: str, usage: Mapping[str, int] | None) -> None:
        """The last events."""
        last = self._event("{}", json.dumps(reason))
        if usage is not None:
            last += f'data: {self._head}, "choices": [], "usage": {json.dumps(dict(usage))}}}\n\n'
        self._write(last.encode() + _DONE)

    def fail(self, error: Mapping[str, Any]) -> None:
        """An error in the middle, then the end, as vLLM sends it."""
        self._write(f"data: {json.dumps(dict(error))}\n\n".encode() + _DONE)

    def _event(self, delta: str, reason: str = "null") -> str:
        choice = f'{{"index": 0, "delta": {delta}, "logprobs": null, "finish_reason": {reason}}}'
        return f'data: {self._head}, "choices": [{choice}]}}\n\n'

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))


def whole_answer(head: Mapping[str, Any], text: str, reason: str, usage: Mapping[str, int]) -> bytes:
    """The body of an answer that is not streamed."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason, "stop_reason": None}
    return json.dumps({**head, "choices": [choice], "usage": dict(usage)}).encode()
