"""Web servers that do anything but serve documents, as handlers for `web_servers.serving`. Seeded."""

import gzip
import random

from web_servers import PDF, Handler, in_turn, moved, sending, speaking, trickling

_PLACES = (
    "/0", "loop", "//", "", " ", "file:///etc/passwd", "FILE:///etc/passwd", "ftp://h/a", "gopher://h",
    "data:,x", "javascript:x",
    "http://", "http://[", "http://h:99999/", "http:///a", "//[x", "http://\x00", "\\\\h\\a",
    "http://127.0.0.1:1/", "?" * 3000,
    "http://user:secret-word@127.0.0.1:1/", "jar:file:///a!/b", "http://127.0.0.1:99999999999/", "/\u00e9",
    "unix:/tmp/x",
)  # fmt: skip
_STATUS = (
    b"200 OK", b"200", b"99 x", b"0 x", b"999 x", b"abc", b"206 Partial", b"100 Continue", b"101 Switch", b"204 No",
    b"304 Not",
)  # fmt: skip
_HEADERS = (
    b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: x", b"Content-Length: 99999999999999999999",
    b"Content-Length: 3\r\nContent-Length: 7", b"Transfer-Encoding: chunked", b"Transfer-Encoding: x",
    b"Content-Encoding: gzip",
    b"Content-Type: \xff", b"ETag: " + b"x" * 5000, b"X: " + b"y" * 70_000, b"Last-Modified: never", b": x",
    b"no colon", b"A\0: b",
    b"Set-Cookie: a=b", b"Connection: upgrade", b"Content-Disposition: attachment; filename=../../x",
    b"\xf0\x9f\x98\x80: x",
)  # fmt: skip


def raw(chance: random.Random) -> bytes:
    """An answer as bytes: any status line, headers and body."""
    if chance.random() < 0.15:
        return chance.choice(
            (b"", b"\0" * 100, chance.randbytes(500), b"HTTP/1.1", b"HTTP/9.9 200 OK\r\n\r\n", b"\r\n" * 1000)
        )
    headers = chance.sample(_HEADERS, chance.choice((0, 1, 2)))
    if chance.random() < 0.1:
        headers += [b"H%d: x" % number for number in range(3000)]
    body = chance.choice(
        (
            *(b"", PDF, b"5\r\nabcde\r\n", b"zz\r\n", b"ffffffffffffffff\r\nx", b"0\r\n\r\n"),
            b"5\r\n%PDF-\r\n0\r\nX: y\r\n\r\n",
        )
    )
    return b"\r\n".join((b"HTTP/1.1 " + chance.choice(_STATUS), *headers, b"", body))


def handler(chance: random.Random) -> Handler:
    """Slow, endless, cut, lying, redirecting, compressed, empty or garbage; a sound answer now and then behind it."""
    kind = chance.choice(
        ("raw", "raw", "raw", "drip", "endless", "redirect", "redirect", "bomb", "status", "page", "empty")
    )
    if kind == "raw":
        one = speaking(raw(chance))
    elif kind == "drip":
        one = trickling(b"x", 0.05, chance.choice((b"", PDF)))
    elif kind == "endless":
        one = trickling(bytes(1 << 16), 0)
    elif kind == "redirect":
        one = moved(chance.choice(_PLACES).replace("\x00", "%00"), chance.choice((301, 302, 303, 307, 308)))
    elif kind == "bomb":
        one = sending(
            gzip.compress(bytes(1 << 22)), Content_Encoding=chance.choice(("gzip", "br", "deflate, gzip", "GZIP", "x"))
        )
    elif kind == "status":
        after = chance.choice(
            ("0", "-1", "nan", "x", "1e999", "Wed, 21 Oct 2015 07:28:00 GMT", "9" * 50, "Mon, 99 Foo 9999 99:99:99")
        )
        one = sending(b"no", chance.choice((400, 404, 418, 429, 500, 503, 511)), Retry_After=after)
    else:
        one = sending(b"<html>" if kind == "page" else b"")
    return in_turn(one, sending()) if chance.random() < 0.2 else one


def inward(chance: random.Random) -> str:
    """A spelling of an address inside of this network or machine."""
    number = chance.choice((0x7F000001, 0xA9FEA9FE, 0x0A000001, 0xC0A80101, 0xAC100001, 0, 0x64400001, 0xA83F8110))
    parts = [str(number >> shift & 255) for shift in (24, 16, 8, 0)]
    plain = ".".join(parts)
    ways = (
        plain, plain + ".", str(number), hex(number), "0" + oct(number)[2:],
        ".".join(hex(int(part)) for part in parts),
        ".".join("0" + oct(int(part))[2:] for part in parts), f"{parts[0]}.{number & 0xFFFFFF}", f"::ffff:{plain}",
        f"64:ff9b::{plain}", f"2002:{number >> 16:x}:{number & 0xFFFF:x}::1", "::1", "fe80::1", "fc00::1", "::",
        f"::{plain}",
    )  # fmt: skip
    return chance.choice(ways)
