"""HTTP connections to a server: request bodies out, response bodies in."""

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
from llm_ocr.engines.client.error_bodies import Failures
from llm_ocr.engines.client.replies import EventSplitter, Reply
from llm_ocr.errors import LlmOcrError, UsageError

# Where a server answers, from what a user typed.


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


# The JSON of a request, made around the image, of which nobody ever holds the base64 as a whole.


_IMAGE = ('{"type": "image_url", "image_url": {"url": "', '"}}')
_OURS = frozenset({"model", "messages", "stream", "stream_options"})


def body_parts(question: CompletionRequest, model: str, vllm: bool) -> tuple[bytes, bytes, bytes]:
    """The JSON before the image's base64, the image itself (the same object), and the JSON behind it."""
    before, after = _content(question)
    # An empty one is a message too: HunyuanOCR was trained with it.
    given = question.system is not None
    system = f'{{"role": "system", "content": {json.dumps(question.system)}}}, ' if given else ""
    start = f'{{"model": {json.dumps(model)}, "messages": [{system}{{"role": "user", "content": [{before}'
    head = f"{start}data:{question.image.media_type};base64,"
    return head.encode("ascii"), question.image.data, f"{after}]}}], {_settings(question, vllm)}}}".encode("ascii")


def _content(question: CompletionRequest) -> tuple[str, str]:
    """The parts of the user's message before and behind the image. An empty prompt leaves no text part."""
    opening, closing = _IMAGE
    if not question.prompt:
        return opening, closing
    text = json.dumps({"type": "text", "text": question.prompt})
    return (opening, f"{closing}, {text}") if question.image_first else (f"{text}, {opening}", closing)


def _settings(question: CompletionRequest, vllm: bool) -> str:
    """All other members, without the braces."""
    options: dict[str, Any] = {"include_usage": True}
    settings = dict(question.settings)
    if vllm:
        settings |= question.vllm_settings
        # Counts come with each event then, so that those of an answer that we cut are known too.
        options["continuous_usage_stats"] = True
    settings = {name: value for name, value in settings.items() if name not in _OURS}
    return json.dumps({**settings, "stream": True, "stream_options": options}, default=_plain)[1:-1]


def _plain(value: Any) -> Any:
    """What `json` does not know of a profile's frozen values: mappings and sets."""
    if isinstance(value, frozenset | set):
        return sorted(value)
    return dict(value)


# How bytes go to a server and come back: aiohttp without what costs time here.


#: What aiohttp raises for a connection that does not come, breaks, or carries what is not HTTP; `outage` tells apart.
OUTAGES = (aiohttp.ClientError, HttpProcessingError, OSError)

CONNECT_SECONDS = 30.0  # until a connection stands
_PROBE_CONNECT_SECONDS = 5.0  # the same for small pages, the look-up of the name included
#: vLLM closes a connection that was idle for 5 s (uvicorn's default); a request sent just then would be lost.
IDLE_SECONDS = 4.0
_PIECE = 192 * 1024  # bytes of an image that are encoded and given to the socket at once; divisible by 3


class Body(payload.Payload):
    """A request's body: JSON, an image in base64, JSON. The base64 is made piece by piece as it goes to the socket.

    A page that waits for its answer is so held once, not one and a third times more.
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
        """`content_length` is this body's own size: nobody else sets the header."""
        await self.write(writer)

    def _pieces(self) -> Iterator[bytes]:
        yield self._before
        image = memoryview(self._image)
        for start in range(0, len(image), _PIECE):
            yield binascii.b2a_base64(image[start : start + _PIECE], newline=False)
        yield self._behind


def open_session(key: str) -> aiohttp.ClientSession:
    """A pool of connections without a limit of its own and without time limits but for connecting.

    Needs the running loop. Proxies of the environment, cookies and compression are off.
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


def probing() -> aiohttp.ClientTimeout:
    """Return the time limits for the connection of a request for a small page."""
    return aiohttp.ClientTimeout(total=None, connect=_PROBE_CONNECT_SECONDS, sock_connect=_PROBE_CONNECT_SECONDS)


def outage(error: Exception, failures: Failures, status: int) -> LlmOcrError:
    """The typed error for one of `OUTAGES`. `status` of the response, 0 before it began."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return failures.unusable(
            f"its certificate is not trusted: {error.certificate_error}",
            "Add its authority to the system's certificates, or name a file with it in SSL_CERT_FILE.",
        )
    if isinstance(error, aiohttp.ClientConnectorError):
        if error.os_error.errno in (errno.EMFILE, errno.ENFILE):
            return failures.unusable("too many open files", "Raise the limit: ulimit -n 4096.")
        return failures.lost(f"nobody answers there: {error.os_error}", unreachable=True)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return failures.lost(f"nobody answers there: {error}", unreachable=True)
    where = "in the middle of the answer" if status else "before the answer began"
    return failures.lost(f"the connection was lost {where}: {type(error).__name__}: {error}", status=status)


class Flight:
    """One request under way.

    It ends with `TimeoutError` when it made no progress for `stall` seconds, after `longest` seconds in all, or by
    `end`. One timer looks when it is due, instead of being set again with each progress.
    """

    __slots__ = ("_handle", "_last", "_loop", "_stall", "_timeout", "late", "reply", "seen", "stalled", "status")

    def __init__(self, stall: float, longest: float) -> None:
        self.stalled = self.late = False  # which of the two ended it
        self.status = 0  # of the response, once it has begun
        self.reply: Reply | None = None  # the part of the answer that has come
        self._stall = stall
        self._loop = asyncio.get_running_loop()
        self.seen = time.monotonic()  # when it made progress last
        self._last = self.seen + longest  # when it must be over
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
        """End it now."""
        if not self._timeout.expired():
            self._timeout.reschedule(self._loop.time())

    def end_within(self, seconds: float) -> None:
        """Let it go on for so many seconds at most."""
        if self._handle is not None:
            self._handle.cancel()
        self._last = min(self._last, time.monotonic() + seconds)
        self._look()

    def _look(self) -> None:
        now = time.monotonic()
        self.late, self.stalled = now >= self._last, now >= self.seen + self._stall
        if self.late or self.stalled:
            self.end()
        else:
            self._handle = self._loop.call_later(min(self._last, self.seen + self._stall) - now, self._look)


# The body of a response: a stream of events, or all of it.


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
