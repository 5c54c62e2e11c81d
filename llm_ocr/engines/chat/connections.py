"""How bytes go to a server and come back: aiohttp without what costs time here."""

import asyncio
import binascii
import errno
import time
from collections.abc import Iterator
from types import TracebackType

import aiohttp
from aiohttp import payload
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import HttpProcessingError

from llm_ocr.engines.chat.failures import Failures
from llm_ocr.engines.chat.reply import Reply
from llm_ocr.errors import LlmOcrError

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
