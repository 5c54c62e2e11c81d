"""Answers that end in the wrong way."""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from llm_ocr.testing.simulator import loglines
from llm_ocr.testing.simulator.requests import error_body
from llm_ocr.testing.simulator.streams import SseStream


def reset_connection(request: web.Request) -> web.StreamResponse:
    """End the connection with RST: the client sees a reset, not an end."""
    transport = request.transport
    if transport is not None:
        sock = transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    raise asyncio.CancelledError


def broken_answer(
    request: web.Request, fault: str, stream: SseStream | None, response: web.StreamResponse, text: str
) -> web.StreamResponse:
    """Half of the answer is out (or, not streamed, made); end it in the way of the fault."""
    if fault == "reset-within":
        return reset_connection(request)
    if stream is not None:
        if fault == "stream-error":
            stream.fail(error_body(500, loglines.ENGINE_DEAD, "InternalServerError"))
        return response
    if fault == "stream-error":
        return web.json_response(error_body(500, loglines.ENGINE_DEAD, "InternalServerError"), status=500)
    half: Mapping[str, Any] = {"object": "chat.completion", "choices": [{"message": {"content": text}}]}
    body = json.dumps(half).encode()
    return web.Response(body=body[: len(body) // 2], content_type="application/json")
