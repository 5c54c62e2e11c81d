"""Fetch documents over HTTP with limits for size, time, redirects, and addresses."""

import asyncio
import base64
import contextlib
import email.utils
import hashlib
import ipaddress
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import aiohttp
from aiohttp import ThreadedResolver
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from llm_ocr.documents.files import kind_by_content
from llm_ocr.documents.remote import RemoteOptions, fingerprint, shown
from llm_ocr.documents.remote.cache import DiskError, Fetched, NotNow, Room, Sink, changed, persistently
from llm_ocr.errors import PageFailure
from llm_ocr.types import Reason

# Allowed addresses. A host is resolved, checked, and connected to in one step, without a second look-up.


_HINT = "To read documents from inside this network, set `allow_private_addresses`."
#: Ranges without public hosts. Source: the IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890), IPv4 as
#: updated on 2020-09-04, with the later RFC 9602 (5f00::/16), 9637 (3fff::/20), and 9780 (100:0:0:1::/64); also
#: multicast and Azure's wire server. The table replaces `ipaddress`, whose definition of private and global differs
#: between Python releases. Globally reachable entries (AS112, AMT, anycast of PCP and TURN) publish no documents.
_SPECIAL = tuple(
    (ipaddress.ip_network(block), kind)
    for block, kind in (
        ("0.0.0.0/32", "unspecified"),
        ("0.0.0.0/8", "reserved"),  # "this network"
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "private"),  # shared address space of carriers
        ("127.0.0.0/8", "loopback"),
        # Formally public; inside a virtual machine of Azure, the address serves the machine's metadata.
        ("168.63.129.16/32", "private"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),  # IETF protocol assignments, such as 192.0.0.192 of Oracle's metadata
        ("192.0.2.0/24", "reserved"),  # documentation
        ("192.31.196.0/24", "reserved"),  # AS112
        ("192.52.193.0/24", "reserved"),  # AMT
        ("192.88.99.0/24", "reserved"),  # relays of 6to4, deprecated
        ("192.168.0.0/16", "private"),
        ("192.175.48.0/24", "reserved"),  # AS112
        ("198.18.0.0/15", "private"),  # benchmarking
        ("198.51.100.0/24", "reserved"),  # documentation
        ("203.0.113.0/24", "reserved"),  # documentation
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),  # limited broadcast included
        ("::1/128", "loopback"),
        ("::/128", "unspecified"),
        ("64:ff9b:1::/48", "private"),  # local translators: the position of the IPv4 address is unknown
        ("100::/64", "reserved"),  # discard-only
        ("100:0:0:1::/64", "reserved"),  # dummy prefix
        ("2001::/23", "reserved"),  # IETF protocol assignments, Teredo included
        ("2001:db8::/32", "reserved"),  # documentation
        ("2620:4f:8000::/48", "reserved"),  # AS112
        ("3fff::/20", "reserved"),  # documentation
        ("5f00::/16", "reserved"),  # segment routing
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private"),  # site-local, deprecated
        ("ff00::/8", "multicast"),
    )
)
#: The only IPv6 addresses of internet hosts; the rest is unassigned.
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
#: Prefixes before an IPv4 address, and the bits after it: IPv4-mapped, NAT64 (RFC 6052), 6to4.
_EMBEDDING = (
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),
    (ipaddress.IPv6Network("2002::/16"), 80),
)
#: A numeric last label makes a host an IPv4 address in a legacy spelling (URL Standard, "ends in a number"): 127.1,
#: 0x7f.1, and 2130706433 are all 127.0.0.1.
_NUMBER = re.compile(r"(?:\d+|0[xX][0-9a-fA-F]*)")


def problem(address: IPv4Address | IPv6Address) -> str:
    """Return the reason why the address is not public; "" for a public address."""
    if isinstance(address, IPv6Address):
        behind = next((bits for block, bits in _EMBEDDING if address in block), None)
        if behind is not None:  # the IPv4 address inside receives the packets
            return problem(IPv4Address(int(address) >> behind & 0xFFFFFFFF))
    kind = next((kind for block, kind in _SPECIAL if block.version == address.version and address in block), "")
    unassigned = isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST
    return kind or ("reserved" if unassigned else "")


def check_literal(host: str) -> None:
    """Check a host that is an address: such hosts are connected to without a resolver.

    Raises:
        PageFailure: The address is not public, or is in a legacy spelling.
    """
    plain = host.rstrip(".")
    if ":" not in plain and not _NUMBER.fullmatch(plain.rpartition(".")[2]):
        return
    try:
        address = ipaddress.ip_address(plain)
    except ValueError as error:
        raise PageFailure(Reason.UNREADABLE, f"{host} is not an address in the standard form") from error
    _refuse(host, address)


class CheckedResolver(AbstractResolver):
    """Resolver that returns a host's addresses only if all of them are public."""

    def __init__(self, resolver: AbstractResolver | None = None) -> None:
        self._resolver = resolver or ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        for result in found:
            _refuse(host, ipaddress.ip_address(result["host"].partition("%")[0]))
        return found

    async def close(self) -> None:
        await self._resolver.close()


def _refuse(host: str, address: IPv4Address | IPv6Address) -> None:
    if kind := problem(address):
        named = host if host == str(address) else f"{host} is {address}, which"
        raise PageFailure(Reason.UNREADABLE, f"{named} is not a public address ({kind})", hint=_HINT)


_GONE = frozenset({404, 410})
_LOCKED = frozenset({401, 402, 403, 407})
#: Temporary: Too Early, Too Many Requests, Request Timeout, and all server errors.
_PASSING = frozenset({408, 425, 429})
_LONGEST = 200  # characters of a server's text in a reason


def refused(response: aiohttp.ClientResponse, url: str) -> PageFailure | None:
    """Return the failure in a response, or None for a response with the document."""
    status = response.status
    detail = f"{url}: {status} {short(response.reason or '')}".rstrip()
    if status in _GONE:
        return PageFailure(Reason.NOT_FOUND, detail)
    if status in _LOCKED:
        return PageFailure(Reason.UNREADABLE, detail, hint="The server requires valid credentials.")
    if status in _PASSING or status >= 500:
        wanted, after = response.headers.get("Retry-After", "").strip(), None
        if wanted.isdigit():  # in seconds; otherwise a date
            after = float(wanted[:9])
        else:
            with contextlib.suppress(ValueError, TypeError, OverflowError):
                after = max(0.0, email.utils.parsedate_to_datetime(wanted).timestamp() - time.time())
        return NotNow(PageFailure(Reason.UNREADABLE, detail), after)
    if status != 200:
        return PageFailure(Reason.UNREADABLE, detail)
    coding = response.headers.get("Content-Encoding", "identity")
    if coding.strip().lower() not in ("", "identity"):
        return PageFailure(Reason.UNREADABLE, f"{url}: unrequested compression ({short(coding)})")
    return None


def version_in(headers: Mapping[str, str], fingerprint: str) -> str:
    """Return the version in a response, or "" without one.

    The version is the ETag, otherwise Last-Modified with the size. Both apply only to this URL, so its fingerprint is
    included.
    """
    tag = headers.get("ETag", "").removeprefix("W/")
    modified, length = headers.get("Last-Modified", ""), headers.get("Content-Length", "")
    if tag.strip('"'):
        kind, text = "etag", f"{tag}\0{fingerprint}"
    elif modified and length:
        kind, text = "modified", f"{modified}\0{length}\0{fingerprint}"
    else:
        return ""
    return f"{kind}:{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}"


def outage(error: Exception, url: str) -> PageFailure:
    """Return the failure for an error of the client."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return PageFailure(
            Reason.UNREADABLE,
            f"{url}: the certificate is not trusted: {error.certificate_error}",
            hint="Add the certificate authority to the system certificates, or set SSL_CERT_FILE to a file with it.",
        )
    if isinstance(error, (aiohttp.InvalidURL, aiohttp.ClientSSLError)):
        return PageFailure(Reason.UNREADABLE, f"{url}: {error}")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        cause = error.os_error
        failure = PageFailure(Reason.NOT_FOUND, f"{url}: no such host ({cause.strerror or cause})")
        lasting = isinstance(cause, socket.gaierror) and cause.errno in (socket.EAI_NONAME, socket.EAI_FAIL)
        return failure if lasting else NotNow(failure)
    if isinstance(error, aiohttp.ServerTimeoutError | asyncio.TimeoutError):
        return NotNow(PageFailure(Reason.UNREADABLE, f"{url}: the server stopped sending"))
    if isinstance(error, aiohttp.ClientPayloadError):
        return NotNow(PageFailure(Reason.UNREADABLE, f"{url}: ended early"))
    what = short(str(error)) or type(error).__name__
    if isinstance(error, (HttpProcessingError, aiohttp.ClientResponseError)):
        # the error quotes the response, and the URL with its signature
        what = "the response of the server is not valid HTTP"
    return NotNow(PageFailure(Reason.UNREADABLE, f"{url}: {what}"))


def short(text: str) -> str:
    """Return untrusted server text on one line and shortened."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


# Documents over HTTP: limited in size, time, and redirects, and only from checked addresses. Cookies, proxies, and
# netrc are off. Credentials in a URL are sent only to its host.


_CONNECT_SECONDS = 30.0
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
#: Bytes per write; the memory of one download.
_PIECE = 1 << 20
#: Room in the cache that is taken before the size is known.
_FIRST_GUESS = 1 << 20
_HEADERS = {"User-Agent": "llm-ocr", "Accept": "*/*", "Accept-Encoding": "identity"}
#: Errors of aiohttp for failed or broken connections and for data that is not HTTP.
_OUTAGES = (aiohttp.ClientError, HttpProcessingError, OSError)


class WebClient:
    """HTTP client for documents, for one event loop; requires `close`.

    `resolver` and `tls` replace the system's resolver and its trusted certificates.
    """

    def __init__(
        self, options: RemoteOptions, *, resolver: AbstractResolver | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._options = options
        self._resolver = resolver
        self._tls = tls

    @cached_property
    def _session(self) -> aiohttp.ClientSession:
        resolver = self._resolver or aiohttp.ThreadedResolver()
        connector = aiohttp.TCPConnector(
            limit=self._options.fetches,
            resolver=resolver if self._options.allow_private_addresses else CheckedResolver(resolver),
            ttl_dns_cache=60,
            ssl=self._tls or True,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=_HEADERS,
            auto_decompress=False,
            trust_env=False,
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=_CONNECT_SECONDS, sock_read=self._options.stall_seconds
            ),
        )

    async def fetch(self, url: str, version: str, target: Path, room: Room) -> Fetched:
        """Write the document to `target`, and verify its version unless `version` is empty.

        Raises:
            PageFailure: Not found, unreadable, source changed, or unknown type.
        """
        await room.take(_FIRST_GUESS)
        sink = Sink(target)  # not in a thread: a canceled thread would create the file too late
        try:
            async with asyncio.timeout(self._options.seconds):
                fetched = await persistently(
                    lambda: self._attempt(url, version, sink, room.resize),
                    tries=self._options.tries,
                    pause=self._options.pause,
                )
        except TimeoutError as error:
            detail = f"{shown(url)}: not complete after {self._options.seconds:g} s"
            raise PageFailure(Reason.UNREADABLE, detail, retryable=True) from error
        finally:
            await asyncio.to_thread(sink.close)
        await asyncio.to_thread(_no_web_page, url, target)
        return fetched

    async def close(self) -> None:
        """Close all connections."""
        if "_session" in self.__dict__:  # a request was made
            await self._session.close()

    async def _attempt(self, url: str, version: str, sink: Sink, resize: Callable[[int], None]) -> Fetched:
        try:
            async with self._response(url) as response:
                await asyncio.to_thread(sink.clear)
                most, length = self._options.most_bytes, response.content_length
                too_large = PageFailure(
                    Reason.UNREADABLE,
                    f"{shown(url)}: larger than {most >> 20} MiB",
                    hint="Download the document, and name the file.",
                )
                if length is not None:
                    if length > most:
                        raise too_large
                    resize(length)
                named = version_in(response.headers, fingerprint(url))
                if version.startswith("etag:") and version != named:
                    raise changed(f"{shown(url)}: the ETag differs from the plan")
                async for piece in _pieces(response.content):
                    if sink.size + len(piece) > most:
                        raise too_large
                    await asyncio.to_thread(sink.write, piece)
                    resize(max(sink.size, length or 0))
        except DiskError:
            raise  # includes OSError
        except _OUTAGES as error:
            raise outage(error, shown(url)) from error
        resize(sink.size)
        content = f"sha256:{sink.digest.hexdigest()}"
        if version not in ("", named, content):
            raise changed(f"{shown(url)} differs from the planned document")
        return Fetched(version or named or content, sink.size)

    @contextlib.asynccontextmanager
    async def _response(self, url: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """Return the response after all redirects, with status 200."""
        first = at = _parsed(url)
        for _ in range(self._options.redirects + 1):
            if not self._options.allow_private_addresses:
                check_literal(at.raw_host or "")
            headers = {}
            if first.user is not None and at.origin() == first.origin():
                pair = f"{first.user}:{first.password or ''}"
                headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
            async with self._session.get(at.with_user(None), allow_redirects=False, headers=headers) as response:
                if response.status not in _REDIRECTS:
                    if failure := refused(response, shown(url)):
                        raise failure
                    yield response
                    return
                at = _next(response, at, url)
        limit = self._options.redirects
        raise PageFailure(Reason.UNREADABLE, f"{shown(url)}: more than {limit} redirects")


async def _pieces(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield the body in pieces large enough for a thread switch."""
    piece = bytearray()
    async for data in content.iter_any():
        piece += data
        if len(piece) >= _PIECE:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def _parsed(url: str) -> URL:
    """Parse a URL; raises `PageFailure` if it is invalid. Quoted parts are unchanged, because signatures cover them."""
    try:
        parsed = URL(url, encoded=_is_encoded(url))
        if not parsed.host or not parsed.port:
            raise ValueError("no host")
        return parsed
    except ValueError as error:
        raise PageFailure(Reason.UNREADABLE, f"{shown(url)} is not a URL: {error}") from error


def _next(response: aiohttp.ClientResponse, at: URL, url: str) -> URL:
    place = response.headers.get("Location", "")
    try:
        target = at.join(URL(place, encoded=_is_encoded(place)))
        port = target.port  # raises for an invalid port
    except ValueError as error:
        raise PageFailure(Reason.UNREADABLE, f"{shown(url)}: redirected to no URL: {short(str(error))}") from error
    if not place or target.scheme not in ("http", "https") or not target.host or not port:
        raise PageFailure(Reason.UNREADABLE, f"{shown(url)}: redirected to {short(shown(place)) or 'nowhere'}")
    if at.scheme == "https" and target.scheme == "http":
        detail = f"{shown(url)}: redirected from https to {short(shown(place))}"
        raise PageFailure(Reason.UNREADABLE, detail, hint="If you trust the http:// address, give that address.")
    return target


def _is_encoded(url: str) -> bool:
    return url.isascii() and url.isprintable() and " " not in url


def _no_web_page(url: str, path: Path) -> None:
    """Raise for an HTML page: servers return one with a success status after a move, or for a login."""
    if kind_by_content(path):
        return
    with path.open("rb") as file:
        head = file.read(1024).lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith((b"<!doctype html", b"<html")):
        raise PageFailure(Reason.UNKNOWN_TYPE, f"{shown(url)}: the response is a web page, not a document")
