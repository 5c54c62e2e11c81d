"""Documents over HTTP: limited in size, time and redirects, and only from addresses that were checked.

No cookies, no proxies, no netrc. Credentials that stand in a URL go to that host alone.
"""

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
from aiohttp.abc import AbstractResolver
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from llm_ocr.documents.file_types import kind_by_content
from llm_ocr.documents.remote.addresses import CheckedResolver, check_literal
from llm_ocr.documents.remote.fetched import DiskError, Fetched, Room, Sink, changed
from llm_ocr.documents.remote.options import RemoteOptions
from llm_ocr.documents.remote.responses import outage, refused, short, too_large, version_in
from llm_ocr.documents.remote.trying import persistently
from llm_ocr.documents.remote.urls import fingerprint, shown
from llm_ocr.errors import PageFailure
from llm_ocr.types import Reason

_CONNECT_SECONDS = 30.0
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
#: Bytes that are written at a time; what one download holds in memory.
_PIECE = 1 << 20
#: What is taken in the cache before the size is known.
_FIRST_GUESS = 1 << 20
_HEADERS = {"User-Agent": "llm-ocr", "Accept": "*/*", "Accept-Encoding": "identity"}
#: What aiohttp raises for connections that do not come, break, or carry what is not HTTP.
_OUTAGES = (aiohttp.ClientError, HttpProcessingError, OSError)


class WebClient:
    """Fetches documents. For one event loop; `close` at the end.

    `resolver` and `tls` replace the system's resolver and its trusted certificates.
    """

    def __init__(
        self, options: RemoteOptions, *, resolver: AbstractResolver | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._options = options
        self._resolver = resolver
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def fetch(self, url: str, version: str, target: Path, room: Room) -> Fetched:
        """Write the document to `target`, and prove that it is the one of `version` unless that is empty.

        Raises `PageFailure`: not found, unreadable, source changed, unknown type.
        """
        await room.take(_FIRST_GUESS)
        sink = Sink(target)  # here, not in a thread: one that was given up would make the file when nobody wants it
        try:
            async with asyncio.timeout(self._options.seconds):
                fetched = await persistently(
                    lambda: self._attempt(url, version, sink, room.resize),
                    tries=self._options.tries,
                    pause=self._options.pause,
                )
        except TimeoutError as error:
            detail = f"{shown(url)}: not whole within {self._options.seconds:g} s"
            raise PageFailure(Reason.UNREADABLE, detail, retryable=True) from error
        finally:
            await asyncio.to_thread(sink.close)
        await asyncio.to_thread(_no_web_page, url, target)
        return fetched

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def _attempt(self, url: str, version: str, sink: Sink, resize: Callable[[int], None]) -> Fetched:
        try:
            async with self._response(url) as response:
                await asyncio.to_thread(sink.clear)
                return await self._body(response, url, version, sink, resize)
        except DiskError:
            raise  # an OSError, too
        except _OUTAGES as error:
            raise outage(error, shown(url)) from error

    async def _body(
        self, response: aiohttp.ClientResponse, url: str, version: str, sink: Sink, resize: Callable[[int], None]
    ) -> Fetched:
        most = self._options.most_bytes
        length = response.content_length
        if length is not None:
            if length > most:
                raise too_large(shown(url), most)
            resize(length)
        named = version_in(response.headers, fingerprint(url))
        if version.startswith("etag:") and version != named:
            raise changed(f"{shown(url)}: its ETag is not that of the plan")
        async for piece in _pieces(response.content):
            if sink.size + len(piece) > most:
                raise too_large(shown(url), most)
            await asyncio.to_thread(sink.write, piece)
            resize(max(sink.size, length or 0))
        resize(sink.size)
        content = f"sha256:{sink.sha256()}"
        if version not in ("", named, content):
            raise changed(f"{shown(url)} is not the document that was planned")
        return Fetched(version or named or content, sink.size)

    @contextlib.asynccontextmanager
    async def _response(self, url: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """The response behind all redirects, its status 200."""
        first = at = _parsed(url)
        for _ in range(self._options.redirects + 1):
            async with self._get(at, first) as response:
                if response.status not in _REDIRECTS:
                    if failure := refused(response, shown(url)):
                        raise failure
                    yield response
                    return
                at = _next(response, at, url)
        limit = self._options.redirects
        raise PageFailure(Reason.UNREADABLE, f"{shown(url)}: more than {limit} redirects")

    def _get(self, at: URL, first: URL) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        if not self._options.allow_private_addresses:
            check_literal(at.raw_host or "")
        known = first.user is not None and at.origin() == first.origin()
        headers = {"Authorization": _basic(first)} if known else {}
        return self._open().get(at.with_user(None), allow_redirects=False, headers=headers)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            resolver = self._resolver or aiohttp.ThreadedResolver()
            connector = aiohttp.TCPConnector(
                limit=self._options.fetches,
                resolver=resolver if self._options.allow_private_addresses else CheckedResolver(resolver),
                ttl_dns_cache=60,
                ssl=self._tls or True,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=_HEADERS,
                auto_decompress=False,
                trust_env=False,
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=_CONNECT_SECONDS, sock_read=self._options.stall_seconds
                ),
            )
        return self._session


async def _pieces(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The body in pieces that are worth a change of threads."""
    piece = bytearray()
    async for data in content.iter_any():
        piece += data
        if len(piece) >= _PIECE:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def _parsed(url: str) -> URL:
    """Raises `PageFailure` for what is no URL. What is quoted already stays as it is: signatures are made over it."""
    try:
        ready = url.isascii() and url.isprintable() and " " not in url
        parsed = URL(url, encoded=ready)
        if not parsed.host or not parsed.port:
            raise ValueError("no host")
        return parsed
    except ValueError as error:
        raise PageFailure(Reason.UNREADABLE, f"{shown(url)} is not a URL: {error}") from error


def _basic(url: URL) -> str:
    pair = f"{url.user or ''}:{url.password or ''}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _next(response: aiohttp.ClientResponse, at: URL, url: str) -> URL:
    place = response.headers.get("Location", "")
    try:
        target = at.join(_relative(place))
        port = target.port  # raises for one that cannot be
    except ValueError as error:
        raise PageFailure(Reason.UNREADABLE, f"{shown(url)}: redirected to no URL: {short(str(error))}") from error
    if not place or target.scheme not in ("http", "https") or not target.host or not port:
        raise PageFailure(Reason.UNREADABLE, f"{shown(url)}: redirected to {short(shown(place)) or 'nowhere'}")
    if at.scheme == "https" and target.scheme == "http":
        detail = f"{shown(url)}: redirected from https to {short(shown(place))}"
        raise PageFailure(Reason.UNREADABLE, detail, hint="Name the http:// address itself if it is to be trusted.")
    return target


def _relative(place: str) -> URL:
    return URL(place, encoded=place.isascii() and place.isprintable() and " " not in place)


def _no_web_page(url: str, path: Path) -> None:
    """Servers send pages of HTML where a document has moved or a login is wanted, and call them a success."""
    if kind_by_content(path):
        return
    with path.open("rb") as file:
        head = file.read(1024).lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith((b"<!doctype html", b"<html")):
        raise PageFailure(Reason.UNKNOWN_TYPE, f"{shown(url)}: a web page came, not a document")
