"""Open HTTP connections to a server, send request bodies, and receive response bodies."""

import asyncio
import binascii
import contextlib
import errno
import json
import re
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp import payload
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import HttpProcessingError

from llm_ocr.engines import Address, CompletionRequest
from llm_ocr.engines.client.replies import EventSplitter, Failures, Reply
from llm_ocr.errors import LlmOcrError, UsageError

#: The provider's own version in the path (/v1, /v1beta/openai, /api/paas/v4); then nothing is appended.
_VERSION = re.compile(r"/v\d+[a-z0-9]*(?=/|$)")


def address_of(url: str, model: str, key: str = "") -> Address:
    """Return the address of a server whose URL may end in /v1, a slash, or /chat/completions.

    Raises:
        UsageError: The URL is not a server's URL, or an HTTP header cannot carry the key.
    """
    text = url.strip()
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port  # `port` raises for an invalid port
    except ValueError as error:
        raise UsageError(f"the server's URL cannot be read: {error}") from None
    if "@" in parts.netloc:
        raise UsageError(
            "the server's URL contains a name or password", hint="Pass the API key with `server_key_file`."
        )
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(
            f"not the URL of a server: {text!r}", hint="Use the form http://HOST:PORT/v1 or https://HOST/v1."
        )
    if parts.query or parts.fragment or re.search(r"[\s\x00-\x1f]", text):
        raise UsageError("the server's URL contains a query, a fragment, or a space", hint="End the URL with its path.")
    key = key.strip()
    if not all("!" <= character <= "~" for character in key):
        raise UsageError(
            "the server's API key contains a space, a control character, or a non-ASCII character",
            hint="Copy the key again. It is a single line.",
        )
    path = parts.path.rstrip("/").removesuffix("/chat/completions").rstrip("/")
    if not _VERSION.search(path):
        path += "/v1"
    return Address(f"{parts.scheme}://{parts.netloc}{path}", model, key)


_RESERVED = frozenset({"model", "messages", "stream", "stream_options"})


def body_parts(request: CompletionRequest, model: str, vllm: bool) -> tuple[bytes, bytes, bytes]:
    """Return the JSON before the image's base64, the image itself (the same object), and the JSON after it.

    Without an image, the second part is empty.
    """
    # An empty system message is sent as well: HunyuanOCR was trained with it. An empty prompt has no text part.
    given = request.system is not None
    system = f'{{"role": "system", "content": {json.dumps(request.system)}}}, ' if given else ""
    head = f'{{"model": {json.dumps(model)}, "messages": [{system}{{"role": "user", "content": ['
    tail = '"}}'
    text = json.dumps({"type": "text", "text": request.prompt})
    image = request.image
    if image is None:
        head, tail = f"{head}{text}", ""
    elif request.prompt and request.image_first:
        tail += f", {text}"
    elif request.prompt:
        head += f"{text}, "
    if image is not None:
        head += f'{{"type": "image_url", "image_url": {{"url": "data:{image.media_type};base64,'
    options: dict[str, Any] = {"include_usage": True}
    settings = dict(request.settings)
    if vllm:
        settings |= request.vllm_settings
        # Each event then includes the counts, so that the counts of a cut answer are known.
        options["continuous_usage_stats"] = True
    settings = {name: value for name, value in settings.items() if name not in _RESERVED}
    members = json.dumps({**settings, "stream": True, "stream_options": options}, default=_plain)[1:-1]
    return head.encode("ascii"), image.data if image else b"", f"{tail}]}}], {members}}}".encode("ascii")


def _plain(value: Any) -> Any:
    """Convert a profile's frozen mappings and sets, which `json` does not support."""
    return sorted(value) if isinstance(value, frozenset | set) else dict(value)


#: Errors of aiohttp for failed or broken connections and for data that is not HTTP; `outage` classifies them.
OUTAGES = (aiohttp.ClientError, HttpProcessingError, OSError)

CONNECT_SECONDS = 30.0  # to open a connection
#: Time limits of requests for a small page: 5 s to connect, name resolution included.
PROBE_TIMEOUT = aiohttp.ClientTimeout(total=None, connect=5.0, sock_connect=5.0)
#: vLLM closes a connection after 5 s without traffic (uvicorn's default); a request at that moment would be lost.
IDLE_SECONDS = 4.0
_PIECE = 192 * 1024  # bytes of an image per encoding and write; divisible by 3


class Body(payload.Payload):
    """Request body: JSON, an image in base64, JSON. The base64 is encoded in pieces during the transfer.

    So a page that waits for its answer occupies its size once, not 1 + 4/3 times.
    """

    def __init__(self, parts: tuple[bytes, bytes, bytes]) -> None:
        super().__init__(parts, content_type="application/json")
        self._before, self._image, self._behind = parts
        self._size = len(self._before) + 4 * -(-len(self._image) // 3) + len(self._behind)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return b"".join(self._pieces()).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        for piece in self._pieces():
            await writer.write(piece)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write the body; `content_length` is the body's own size, because nothing else sets the header."""
        await self.write(writer)

    def _pieces(self) -> Iterator[bytes]:
        yield self._before
        image = memoryview(self._image)
        for start in range(0, len(image), _PIECE):
            yield binascii.b2a_base64(image[start : start + _PIECE], newline=False)
        yield self._behind


def open_session(key: str) -> aiohttp.ClientSession:
    """Open a connection pool without limits, except for the time to connect.

    The function requires the running loop. Proxies of the environment, cookies, and compression are off.
    """
    headers = {"Accept-Encoding": "identity", "User-Agent": "llm-ocr"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    connector = aiohttp.TCPConnector(
        limit=0, keepalive_timeout=IDLE_SECONDS, ttl_dns_cache=60, resolver=aiohttp.ThreadedResolver()
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=headers,
        auto_decompress=False,
        trust_env=False,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
    )


def outage(error: Exception, failures: Failures, status: int) -> LlmOcrError:
    """Return the typed error for one of `OUTAGES`. `status`: of the response, 0 before its start."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return failures.unusable(
            f"its certificate is not trusted: {error.certificate_error}",
            "Add its certificate authority to the system's certificates, or set SSL_CERT_FILE to a file with it.",
        )
    if isinstance(error, aiohttp.ClientConnectorError):
        if error.os_error.errno in (errno.EMFILE, errno.ENFILE):
            return failures.unusable("too many open files", "Raise the limit: ulimit -n 4096.")
        return failures.lost(f"cannot connect: {error.os_error}", unreachable=True)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return failures.lost(f"cannot connect: {error}", unreachable=True)
    where = "in the middle of the answer" if status else "before the answer began"
    return failures.lost(f"the connection was lost {where}: {type(error).__name__}: {error}", status=status)


class Flight:
    """Request in flight with its time limits.

    The request ends with `TimeoutError` after `stall` seconds without progress, after `longest` seconds in total, or by
    `end`. A single timer checks the limits, so that progress does not reset a timer.
    """

    __slots__ = ("_handle", "_last", "_loop", "_stall", "_timeout", "late", "reply", "seen", "stalled", "status")

    def __init__(self, stall: float, longest: float) -> None:
        self.stalled = self.late = False  # which limit ended the request
        self.status = 0  # status of the response after its start
        self.reply: Reply | None = None  # received part of the answer
        self._stall = stall
        self._loop = asyncio.get_running_loop()
        self.seen = time.monotonic()  # time of the last progress
        self._last = self.seen + longest  # time of the total limit
        self._timeout = asyncio.timeout(None)
        self._handle: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> "Flight":
        await self._timeout.__aenter__()
        self._look()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            self._handle.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def end(self) -> None:
        """End the request now."""
        if not self._timeout.expired():
            self._timeout.reschedule(self._loop.time())

    def end_within(self, seconds: float) -> None:
        """Limit the remaining time of the request in seconds."""
        if self._handle is not None:
            self._handle.cancel()
        self._last = min(self._last, time.monotonic() + seconds)
        self._look()

    def _look(self) -> None:
        now = time.monotonic()
        if self._handle is not None:
            stood = max(0.0, now - self._handle.when())  # time in which this process did not run
            self._last += stood
            if stood > self._stall / 4:
                self.seen = now  # received bytes may still be unread
        self.late, self.stalled = now >= self._last, now >= self.seen + self._stall
        if self.late or self.stalled:
            self.end()
        else:
            self._handle = self._loop.call_later(min(self._last, self.seen + self._stall) - now, self._look)


#: Interval in seconds in which events are collected. Faster events stay in the sockets until the next beat of all
#: streams. With one event per token this saves a quarter of the client's CPU time. The end
#: of an answer is late by at most this interval.
BEAT = 0.05
_TAIL_SECONDS = 1.0  # for the end of a body after the complete answer; then the connection is closed


class Pulse:
    """Common beat of all streams; a stream rests until the next beat. The timer runs only while a stream rests."""

    def __init__(self) -> None:
        self._resting: list[tuple[asyncio.Transport, asyncio.Future[None]]] = []

    async def rest(self, response: aiohttp.ClientResponse) -> None:
        """Read nothing from a stream until the next beat, at most `BEAT` seconds."""
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


async def read_events(
    response: aiohttp.ClientResponse, reply: Reply, on_progress: Callable[[], None], pulse: Pulse
) -> None:
    """Feed a stream into `reply` until the answer is complete or cut, or the body ends.

    A body that was read to its end frees the connection for the next request.

    Args:
        response: Response with a stream of events.
        reply: Receiver of the events.
        on_progress: Called after each progress.
        pulse: Common beat of all streams.

    Raises:
        TooLong: An event exceeds its size limit.
        aiohttp.ClientError: The connection broke.
        LlmOcrError: An event contains an error; see `Reply.take`.
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
            on_progress()
        if not data:
            return
        if reply.finish is None and time.monotonic() - began < BEAT:
            await pulse.rest(response)
    if not content.at_eof():
        # Read the data after [DONE]. The answer is complete: an error here costs only the connection.
        with contextlib.suppress(*OUTAGES):
            async with asyncio.timeout(_TAIL_SECONDS):
                while await content.readany():
                    pass


async def read_whole(
    response: aiohttp.ClientResponse, limit: int, on_progress: Callable[[], None] | None = None
) -> bytes:
    """Read a body, at most its first `limit` bytes; `on_progress` is called after bytes that are not blank."""
    pieces, size = [], 0
    while size < limit and (piece := await response.content.readany()):
        if on_progress is not None and not piece.isspace():
            on_progress()
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)[:limit]
