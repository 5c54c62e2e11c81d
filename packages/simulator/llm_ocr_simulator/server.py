"""HTTP API of the simulator, compatible with vLLM's."""

import asyncio
import base64
import contextlib
import json
import os
import re
import socket
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from aiohttp import web

from llm_ocr_simulator import answers, reporting
from llm_ocr_simulator.answers import Ask, SseStream, image_hash, prompt_tokens, whole_answer
from llm_ocr_simulator.engine import EngineModel
from llm_ocr_simulator.faults import State, faults_of
from llm_ocr_simulator.live import Job, LiveEngine
from llm_ocr_simulator.options import VERSION, Options
from llm_ocr_simulator.reporting import Entry, log_json, metrics_text

_PNG = "data:image/png;base64,"
_DATA_URL = re.compile(r"data:image/[\w.+-]+;base64,[A-Za-z0-9+/]{4,64}")


class Refused(Exception):
    """Request that is answered with an error: status and body in vLLM's form."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError", param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = error_body(status, message, kind, param)


def error_body(status: int, message: str, kind: str, param: str | None = None) -> dict[str, Any]:
    """Return vLLM's error object."""
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """Valid request."""

    ask: Ask
    prompt_tokens: int
    stream: bool
    usage: bool  # stream_options.include_usage


def read_chat(
    body: bytes, model: str, max_model_len: int, too_long: int | None = None, patch: int | None = None
) -> ChatRequest:
    """Return the request in a body.

    URLs of more than `too_long` bytes count as a prompt that is too long. With `patch`, a PNG image costs one token per
    square with sides of `patch` pixels, as Qwen2.5-VL's 28.

    Raises:
        Refused: The request is invalid.
    """
    try:
        data = json.loads(body)
        messages = data["messages"]
        url, prompt, images = _parts(messages)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused(400, f"the request is not understood: {error!r}") from error
    if data.get("model", model) != model:
        raise Refused(404, f"The model `{data['model']}` does not exist.", "NotFoundError", "model")
    if images > 1:
        raise Refused(400, "At most 1 image(s) may be provided in one prompt.")
    if url and not _DATA_URL.match(url):
        raise Refused(400, "Failed to load image: cannot identify image file: only data URLs with base64 are read")
    image = image_hash(url) if url else ""
    squares = _squares(url, patch) if patch else 0
    tokens = squares + prompt_tokens("", prompt) if squares else prompt_tokens(image, prompt)
    if url and too_long is not None and len(url) > too_long:
        tokens += max_model_len
    room = _room(data, tokens, max_model_len)
    temperature = float(data["temperature"]) if data.get("temperature") is not None else 0.0
    ask = Ask(image, prompt, temperature, room, _forced(data))
    options = data.get("stream_options") or {}
    return ChatRequest(ask, tokens, bool(data.get("stream")), bool(options.get("include_usage")))


def _parts(messages: list[Any]) -> tuple[str, str, int]:
    """Return the image URL, all text, and the number of images."""
    urls: list[str] = []
    texts: list[str] = []
    for message in messages:
        content = message["content"]
        if isinstance(content, str):
            texts.append(content)
            continue
        for part in content:
            if part["type"] == "image_url":
                urls.append(part["image_url"]["url"])
            elif part["type"] == "text":
                texts.append(part["text"])
    return (urls[0] if urls else ""), "\n".join(texts), len(urls)


def _room(data: dict[str, Any], tokens: int, context: int) -> int:
    """Return the maximum tokens of the answer."""
    if tokens > context:
        raise Refused(
            400,
            f"This model's maximum context length is {context} tokens. However, your prompt contains at least "
            f"{context + 1} input tokens. Please reduce the length of the input prompt.",
            param="input_tokens",
        )
    wanted = data.get("max_completion_tokens") or data.get("max_tokens")
    if wanted is None:
        return max(context - tokens, 1)
    if int(wanted) < 1:
        raise Refused(400, f"max_tokens must be at least 1, got {wanted}.", param="max_tokens")
    if int(wanted) > context:
        raise Refused(
            400,
            f"max_tokens={wanted} cannot be greater than max_model_len={context}. Please request fewer output tokens.",
        )
    if int(wanted) + tokens > context:
        raise Refused(
            400,
            f"This model's maximum context length is {context} tokens. However, you requested {wanted} output tokens "
            f"and your prompt contains at least {tokens} input tokens, for a total of at least {int(wanted) + tokens} "
            "tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
            param="input_tokens",
        )
    return int(wanted)


def _squares(url: str, patch: int) -> int:
    """Return the number of such squares in a PNG, with those at the edges; 0 for another image.

    The size is in bytes 16 to 24.
    """
    if not url.startswith(_PNG):
        return 0
    head = base64.b64decode(url[len(_PNG) : len(_PNG) + 32])
    width, height = int.from_bytes(head[16:20]), int.from_bytes(head[20:24])
    return -(-width // patch) * -(-height // patch)


def _forced(data: dict[str, Any]) -> dict[str, object]:
    if outputs := data.get("structured_outputs"):
        return dict(outputs)
    shape = data.get("response_format") or {}
    if shape.get("type") == "json_schema":
        return {"json": shape["json_schema"]["schema"]}
    return {}


def reset_connection(request: web.Request) -> web.StreamResponse:
    """Reset the connection with RST: the client sees a reset instead of an end."""
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
    """End an answer with the fault, after half of its text was sent (or generated, without a stream)."""
    if fault == "reset-within":
        return reset_connection(request)
    if stream is not None:
        if fault == "stream-error":
            stream.fail(error_body(500, reporting.ENGINE_DEAD, "InternalServerError"))
        return response
    if fault == "stream-error":
        return web.json_response(error_body(500, reporting.ENGINE_DEAD, "InternalServerError"), status=500)
    half: Mapping[str, Any] = {"object": "chat.completion", "choices": [{"message": {"content": text}}]}
    body = json.dumps(half).encode()
    return web.Response(body=body[: len(body) // 2], content_type="application/json")


_LARGEST_BODY = 1 << 30
_KILLED = 137
#: Seconds from its worker's end to vLLM's own end (measured: 1.7 s).
_ENGINE_DEATH_SECONDS = 1.0

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class EngineDead(Exception):
    """The engine has ended; open requests end with 500."""


class Simulator:
    """One simulated server. Create it inside a running event loop, then serve `app()`."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.live = LiveEngine(EngineModel(options.costs, options.limits))
        self.in_flight = 0  # unanswered requests for answers
        self.ended = asyncio.Event()  # set when the process must exit
        self._state = State(options.state_file)
        only = options.faults.only_starts
        self._faults = options.faults if only is None or self._state.starts <= only else options.faults.calmed()
        self._entries: list[Entry] = []
        self._numbers: dict[str, int] = {}  # numbers of images, in order of their first request
        self._finished: Counter[str] = Counter()
        self._answering = 0  # requests for answers since the start
        self._engine_dead = False
        self._plan_triggers()

    def app(self) -> web.Application:
        """Return the routes."""
        app = web.Application(client_max_size=_LARGEST_BODY, middlewares=[self._gate])
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        if self.options.metrics:
            app.router.add_get("/metrics", self._metrics)
            app.router.add_get("/version", self._version)
        app.router.add_get("/simulator/log", self._log)
        app.router.add_post("/simulator/faults", self._set_faults)
        app.router.add_post("/simulator/reset", self._reset)
        return app

    @web.middleware
    async def _gate(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Apply slow start, and check the API key."""
        if request.path.startswith("/simulator/"):
            return await handler(request)
        if self.live.now() < self._faults.slow_start:
            return self._refusal(503, "The server is starting.", "ServiceUnavailableError", self._faults.retry_after)
        key = self.options.api_key
        if key and request.path.startswith("/v1/") and request.headers.get("Authorization") != f"Bearer {key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        return await handler(request)

    async def _models(self, request: web.Request) -> web.Response:
        name = self.options.model
        card = {"id": name, "object": "model", "created": int(time.time()), "owned_by": "vllm", "root": name}
        card |= {"parent": None, "max_model_len": self.options.max_model_len, "permission": []}
        if not self.options.style.said:
            card["simulated"] = True  # the client does not judge answers that are made up
        return web.json_response({"object": "list", "data": [card]})

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(status=503 if self._engine_dead else 200)

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": VERSION})

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(text=metrics_text(self.live.model, self.options.model, self._finished))

    async def _log(self, request: web.Request) -> web.Response:
        data = log_json(self._entries, self.live.model)
        return web.json_response({**data, "cpu_seconds": time.process_time(), "uptime": self.live.now()})

    async def _set_faults(self, request: web.Request) -> web.Response:
        """Replace all faults by the JSON object KIND: VALUE; {} ends all faults, including a hang.

        The counts of `*-after` restart.
        """
        try:
            faults = faults_of(await request.json())
        except (ValueError, TypeError) as error:
            return web.json_response({"error": str(error)}, status=400)
        self._faults = faults
        self._answering = 0
        self.live.thaw()
        self._plan_triggers()
        return web.json_response({})

    async def _reset(self, request: web.Request) -> web.Response:
        """Clear the log."""
        self._entries.clear()
        return web.json_response({})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        entry = Entry("", 0, self.live.now())
        self._entries.append(entry)
        self.in_flight += 1
        try:
            response = await self._answered(request, entry)
            entry.status = response.status
            return response
        except Refused as refusal:
            entry.status, entry.finish = refusal.status, "error"
            return web.json_response(refusal.body, status=refusal.status)
        except EngineDead as error:
            entry.status, entry.finish = 500, "error"
            return self._refusal(500, str(error), "InternalServerError")
        except asyncio.CancelledError:
            entry.finish = "error" if entry.fault.startswith("reset") else "abort"
            raise
        finally:
            self.in_flight -= 1
            if entry.end is None:
                entry.end = self.live.now()

    async def _answered(self, request: web.Request, entry: Entry) -> web.StreamResponse:
        options = self.options
        # `request.read()` is unsuitable: it keeps the body, half a megabyte, until the request ends.
        body = b"".join([piece async for piece in request.content.iter_any()])
        chat = read_chat(body, options.model, options.max_model_len, self._faults.too_long, options.patch)
        del body
        image = chat.ask.image
        entry.image, entry.temperature = image, chat.ask.temperature
        entry.asked = self._state.count(image)
        self._pull_triggers(chat)
        if self._engine_dead:
            raise EngineDead(reporting.ENGINE_DEAD)
        if options.in_order:  # the n-th image of a list, where n is the order of the image's first request
            number = self._numbers.setdefault(image, len(self._numbers))
            chat = replace(chat, ask=replace(chat.ask, image=image_hash(f"in order {number}")))
        limit = self._faults.max_inflight
        too_many = limit is not None and self.in_flight > limit
        entry.fault = "429" if too_many else self._faults.drawn(options.seed, chat.ask.image, entry.asked)
        if entry.fault in ("429", "503"):
            kind = "RateLimitError" if entry.fault == "429" else "ServiceUnavailableError"
            return self._refusal(
                int(entry.fault), "Too many requests, try again later.", kind, self._faults.retry_after
            )
        if entry.fault == "400":
            raise Refused(400, "this server does not take such requests")
        if entry.fault == "500":
            return self._refusal(500, "Internal server error", "InternalServerError")
        if entry.fault == "hang":
            await asyncio.Event().wait()
        if entry.fault == "reset":
            return reset_connection(request)
        return await self._made(request, chat, entry)

    async def _made(self, request: web.Request, chat: ChatRequest, entry: Entry) -> web.StreamResponse:
        """Let the engine generate the answer, and send it."""
        try:
            reply = answers.reply(chat.ask, self.options.style)
        except ValueError as error:
            raise Refused(400, str(error)) from error
        head = {"id": f"chatcmpl-{len(self._entries)}-{entry.asked}", "created": int(time.time())}
        head |= {"object": "chat.completion.chunk" if chat.stream else "chat.completion", "model": self.options.model}
        stream: SseStream | None = None
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        if chat.stream:
            await response.prepare(request)
            if request.transport is None:
                raise asyncio.CancelledError
            stream = SseStream(request.transport, head, reply.text, reply.tokens, self.options.stream_interval)
        broken = entry.fault in ("reset-within", "truncated", "stream-error")
        output = max(reply.tokens // 2, 1) if broken else reply.tokens
        job = self.live.submit(chat.prompt_tokens, output, 1 if chat.ask.image else 0, stream)
        try:
            await self._wait(job, entry)
        except EngineDead as error:
            if stream is None:
                raise
            stream.fail(error_body(500, str(error), "InternalServerError"))
            return response
        if broken:
            return broken_answer(request, entry.fault, stream, response, reply.text)
        entry.finish = "length" if reply.cut else "stop"
        self._finished[entry.finish] += 1
        usage = {"prompt_tokens": chat.prompt_tokens, "total_tokens": chat.prompt_tokens + reply.tokens}
        usage["completion_tokens"] = reply.tokens
        if stream is None:
            return web.Response(
                body=whole_answer(head, reply.text, entry.finish, usage), content_type="application/json"
            )
        stream.finish(entry.finish, usage if chat.usage else None)
        return response

    async def _wait(self, job: Job, entry: Entry) -> None:
        """Wait until all tokens exist. A client that disconnects cancels the wait: the engine drops the request."""
        entry.sequence = job.sequence
        try:
            await job.done
        finally:
            self.live.abort(job)
            entry.produced = self.live.model.made(job.sequence)
            entry.end = job.sequence.end if job.sequence.end is not None else self.live.now()

    def _refusal(self, status: int, message: str, kind: str, retry_after: float | None = None) -> web.Response:
        headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
        return web.json_response(error_body(status, message, kind), status=status, headers=headers)

    def _plan_triggers(self) -> None:
        loop = asyncio.get_running_loop()
        faults = self._faults

        def due(action: Callable[[], object]) -> None:
            if self._faults is faults:  # they may have been replaced in the meantime
                action()

        if faults.hang_after_seconds is not None:
            loop.call_later(faults.hang_after_seconds, due, self.live.freeze)
        if faults.die_after_seconds is not None:
            loop.call_later(faults.die_after_seconds, due, self._die)

    def _pull_triggers(self, chat: ChatRequest) -> None:
        """Apply the triggers of this request."""
        faults = self._faults
        self._answering += 1
        number = self._answering
        if faults.oom_after is not None and number > faults.oom_after:
            reporting.say(reporting.OUT_OF_MEMORY)
            self._die()
        prompted = bool(faults.die_prompt) and faults.die_prompt in chat.ask.prompt
        if prompted or _reached(number, faults.die_after) or _names(faults.die_image, chat.ask.image):
            self._die()
        if _reached(number, faults.hang_after) or _names(faults.hang_image, chat.ask.image):
            self.live.freeze()

    def _die(self) -> None:
        if not self._faults.engine_death:
            _exit()
        self._engine_dead = True
        reporting.say(reporting.ENGINE_DIED)
        self.live.fail_all(EngineDead(reporting.ENGINE_DEAD))
        self.live.freeze()
        asyncio.get_running_loop().call_later(_ENGINE_DEATH_SECONDS, _exit)


def _exit() -> NoReturn:
    os._exit(_KILLED)


def _reached(number: int, limit: int | None) -> bool:
    return limit is not None and number > limit


def _names(prefix: str, image: str) -> bool:
    return bool(prefix) and image.startswith(prefix)
