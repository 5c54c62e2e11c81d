"""Real servers on loopback that answer as they are told, and a client that asks them."""

import asyncio
import base64
import contextlib
import hashlib
import itertools
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from aiohttp import web

from llm_ocr.engines import Completion, CompletionRequest
from llm_ocr.engines.client.connections import address_of
from llm_ocr.engines.client.endpoint import Endpoint
from llm_ocr.types import EncodedImage

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
KEY = "secret-key-0123456789"
MODEL = "some/ocr-model"
URL = b"data:image/png;base64," + b"iVBORw0KGgoAAAANSUhEUgAA" * 40
IMAGE = EncodedImage(base64.b64decode(URL.partition(b",")[2]), "image/png", 10, 10)
REQUEST = CompletionRequest("page-1", IMAGE, "Read it.", {"max_tokens": 100, "temperature": 0.0})
LARGE = replace(REQUEST, image=replace(IMAGE, data=IMAGE.data * 400))
HUGE = replace(REQUEST, image=replace(IMAGE, data=IMAGE.data * 20_000))
USAGE = {"prompt_tokens": 300, "completion_tokens": 77, "total_tokens": 377}


def event(text: str | None = None, finish: str | None = None, **more: Any) -> bytes:
    """One event of a stream, as vLLM sends it."""
    choice = {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": finish}
    return b"data: " + json.dumps({"object": "chat.completion.chunk", "choices": [choice], **more}).encode() + b"\n\n"


def usage(**counts: int) -> bytes:
    return b"data: " + json.dumps({"choices": [], "usage": {**USAGE, **counts}}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
WHOLE = (event("Hello "), event("wörld"), event("", "stop"), usage(), DONE)


def streaming(*pieces: bytes, pause: float = 0.0, end: Callable[[web.Request], None] | None = None) -> Handler:
    """Answers with these bytes; `end` is called instead of ending the body."""

    async def handler(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(pause)
        if end is not None:
            end(request)
        return response

    return handler


def replying(status: int, body: Any = b"", **headers: str) -> Handler:
    """Answers with a status and a body (JSON unless bytes); underscores of header names stand for hyphens."""

    async def handler(request: web.Request) -> web.StreamResponse:
        await request.read()
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = "application/json" if not isinstance(body, bytes) else "text/plain"
        named = {"Content-Type": kind} | {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, body=data, headers=named)

    return handler


def speaking(data: bytes) -> Handler:
    """Writes these bytes to the socket as they are, and closes it."""

    async def handler(request: web.Request) -> web.StreamResponse:
        await request.read()
        assert isinstance(request.transport, asyncio.Transport)
        request.transport.write(data)
        request.transport.close()
        return web.Response()

    return handler


def abort(request: web.Request) -> None:
    """Reset the connection."""
    assert isinstance(request.transport, asyncio.Transport)
    request.transport.abort()


def in_turn(*handlers: Handler) -> Handler:
    """The first request gets the first handler, and so on; the last one stays."""
    left = list(handlers)

    async def handler(request: web.Request) -> web.StreamResponse:
        return await (left.pop(0) if len(left) > 1 else left[0])(request)

    return handler


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None, **pages: Handler) -> AsyncIterator[str]:
    """A server whose /v1/chat/completions is `handler` and whose other `pages` are named by the end of their path."""
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/chat/completions", handler)
    for name, page in pages.items():
        app.router.add_get("/v1/models" if name == "models" else f"/{name}", page)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"{'https' if tls else 'http'}://{host}:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def connected(url: str, key: str = KEY, **options: Any) -> AsyncIterator[Endpoint]:
    endpoint = Endpoint(address_of(url, MODEL, key), **options)
    try:
        yield endpoint
    finally:
        await endpoint.close()


def complete(handler: Handler, request: CompletionRequest = REQUEST, **pages: Handler) -> Completion:
    """One question to a server with this handler, from start to end."""

    async def run() -> Completion:
        async with serving(handler, **pages) as url, connected(url) as endpoint:
            return await endpoint.complete(request)

    return asyncio.run(run())


def endless(
    first: bytes, piece: Callable[[int], bytes], pause: float = 0.01, kind: str = "text/event-stream"
) -> Handler:
    """Answers with `first`, then with the piece of each number, until the client closes the connection."""

    async def handler(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"Content-Type": kind})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            await response.write(first)
            for number in itertools.count():
                await response.write(piece(number))
                await asyncio.sleep(pause)
        return response

    return handler


def reasoning(text: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"reasoning_content": text}}]}).encode() + b"\n\n"


def words(number: int) -> str:
    """Text that does not repeat itself."""
    return "".join(f" {hashlib.sha256(b'%d' % (number * 64 + place)).hexdigest()[:7]}" for place in range(64))


#: Answers that never end, by what comes all the time.
ENDLESS: dict[str, Handler] = {
    "comments": endless(b"", lambda _: b": ping\n\n"),
    "empty deltas": endless(event("Hello"), lambda _: event("")),
    "roles": endless(b"", lambda _: b'data: {"choices": [{"delta": {"role": "assistant"}}]}\n\n'),
    "no choices": endless(event("Hello"), lambda _: usage()),
    "reasoning": endless(b"", lambda number: reasoning(words(number))),
    "slow reasoning": endless(b"", lambda _: reasoning("Hm. "), 0.1),
    "text": endless(b"", lambda number: event(words(number)), 0.0),
    "slow text": endless(b"", lambda number: event(words(number)[:8]), 0.1),
    "JSON": endless(
        b'{"choices": [{"message": {"content": "', lambda number: words(number).encode(), 0.0, "application/json"
    ),
    "blanks": endless(b"", lambda _: b" ", 0.1, "application/json"),
    "one event": endless(
        b'data: {"choices": [{"delta": {"content": "', lambda number: words(number).encode() * 16, 0.0
    ),
}


class CutAfter:
    """A watch that cuts when it has seen so many characters."""

    def __init__(self, characters: int) -> None:
        self.left = characters

    def feed(self, piece: str) -> bool:
        self.left -= len(piece)
        return self.left <= 0
