"""The body of a response: a stream of events, or all of it."""

import asyncio
import contextlib
import time
from collections.abc import Callable

import aiohttp

from llm_ocr.engines.chat.connections import OUTAGES
from llm_ocr.engines.chat.events import EventSplitter
from llm_ocr.engines.chat.reply import Reply

#: Where events come faster than this (seconds), they are left in the sockets and taken together at the next beat, for
#: all streams at once: with an event a token that saves a quarter of the client's CPU time (benchmarks/chat_client.py).
#: It is also the most by which the end of an answer is late.
BEAT = 0.05
_TAIL_SECONDS = 1.0  # for the end of a body whose answer is already whole; then the connection is given up


class Pulse:
    """Lets streams rest until its next beat. It beats only while somebody rests."""

    def __init__(self) -> None:
        self._resting: list[tuple[asyncio.Transport, asyncio.Future[None]]] = []

    async def rest(self, response: aiohttp.ClientResponse) -> None:
        """Read nothing of a stream until the next beat, at most `BEAT` seconds."""
        connection = response.connection
        transport = connection.transport if connection is not None else None
        if transport is None:  # the body has ended
            return
        loop = asyncio.get_running_loop()
        if not self._resting:
            loop.call_later(BEAT, self._beat)
        transport.pause_reading()
        future = loop.create_future()
        self._resting.append((transport, future))
        await future

    def _beat(self) -> None:
        resting, self._resting = self._resting, []
        for transport, future in resting:
            if not transport.is_closing():
                transport.resume_reading()
            if not future.done():
                future.set_result(None)


async def read_events(response: aiohttp.ClientResponse, reply: Reply, heard: Callable[[], None], pulse: Pulse) -> None:
    """Feed a stream into `reply` until it is done, cut, or the body ends. `heard` is called when it has made progress.

    A body that was read to its end leaves the connection for the next request. Raises what `Reply.take` raises,
    `TooLong`, and aiohttp's errors for a broken connection.
    """
    content = response.content
    splitter = EventSplitter(reply.bounds.bytes)
    while not (reply.done or reply.cut):
        began = time.monotonic()
        data = await content.readany()
        before = reply.progress
        for event in splitter.feed(data) if data else splitter.finish():
            reply.take(event)
            if reply.cut:
                return
        if reply.progress > before:
            heard()
        if not data:
            return
        if reply.finish is None and time.monotonic() - began < BEAT:
            await pulse.rest(response)
    if not content.at_eof():
        await _finish(content)


async def read_whole(response: aiohttp.ClientResponse, limit: int, heard: Callable[[], None] | None = None) -> bytes:
    """A body, or its first `limit` bytes. `heard` is called when bytes have come that are not blank."""
    pieces, size = [], 0
    while size < limit and (piece := await response.content.readany()):
        if heard is not None and not piece.isspace():
            heard()
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)[:limit]


async def _finish(content: aiohttp.StreamReader) -> None:
    """Read what stands behind [DONE]. The answer is whole: an error here costs the connection only."""
    with contextlib.suppress(*OUTAGES):
        async with asyncio.timeout(_TAIL_SECONDS):
            while await content.readany():
                pass
