"""Real web servers on loopback with set faults, and clients for them."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver

from llm_ocr.documents.remote import RemoteOptions
from llm_ocr.documents.remote.http import WebClient
from llm_ocr.documents.remote.listing import RemoteDocuments
from llm_ocr.errors import PageFailure
from tests.engines.client.chat_servers import in_turn as in_turn
from tests.engines.client.chat_servers import speaking as speaking

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
PDF = b"%PDF-1.5\n" + bytes(range(256)) * 40


def sending(body: bytes = PDF, status: int = 200, **headers: str) -> Handler:
    """Answers with these bytes; underscores in names of headers stand for hyphens."""

    async def handler(_: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named.setdefault("Content-Type", "application/pdf")
        return web.Response(status=status, body=body, headers=named)

    return handler


def moved(place: str, status: int = 302) -> Handler:
    return sending(b"", status, Location=place)


def trickling(piece: bytes, pause: float, first: bytes = PDF) -> Handler:
    """Sends without an end, and without saying how much it will be."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/pdf"})
        await response.prepare(request)
        await response.write(first)
        while True:
            await response.write(piece)
            await asyncio.sleep(pause)

    return handler


class Server:
    """Its `url`, and the requests that came, as (host header, path, headers)."""

    def __init__(self) -> None:
        self.url = ""
        self.port = 0
        self.seen: list[web.Request] = []

    def paths(self) -> list[str]:
        return [request.raw_path for request in self.seen]


@asynccontextmanager
async def serving(pages: dict[str, Handler], tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """A server with these paths on 127.0.0.1."""
    server = Server()

    async def any_page(request: web.Request) -> web.StreamResponse:
        server.seen.append(request)
        handler = pages.get(request.path)
        return await handler(request) if handler else web.Response(status=404)

    app = web.Application()
    app.router.add_get("/{path:.*}", any_page)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    server.port = runner.addresses[0][1]
    server.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.port}"
    try:
        yield server
    finally:
        await runner.cleanup()


async def failing(documents: RemoteDocuments, url: str, version: str = "") -> PageFailure:
    """Why the document cannot be opened."""
    with pytest.raises(PageFailure) as caught:
        async with documents.open(url, version):
            pass
    return caught.value


class Names(AbstractResolver):
    """A name service of the test: `addresses` in turn for each question, the last one for good."""

    def __init__(self, **addresses: list[list[str]]) -> None:
        self._left = {name.replace("_", "."): list(answers) for name, answers in addresses.items()}
        self.asked: list[str] = []

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET) -> list[Any]:
        self.asked.append(host)
        left = self._left.get(host)
        if left is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        found = left.pop(0) if len(left) > 1 else left[0]
        kinds = [(socket.AF_INET6 if ":" in address else socket.AF_INET, address) for address in found]
        return [
            {"hostname": host, "host": address, "port": port, "family": kind, "proto": 0, "flags": 0}
            for kind, address in kinds
        ]

    async def close(self) -> None:
        """Nothing is held."""


def options(folder: Any, **more: Any) -> RemoteOptions:
    """Loopback allowed and hardly a pause between tries, unless `more` says otherwise."""
    return RemoteOptions(**{"allow_private_addresses": True, "pause": 0.01, "cache_folder": folder, **more})


def remote(folder: Any, names: Names | None = None, tls: ssl.SSLContext | None = None, **more: Any) -> RemoteDocuments:
    chosen = options(folder, **more)
    return RemoteDocuments(chosen, web=WebClient(chosen, resolver=names, tls=tls))
