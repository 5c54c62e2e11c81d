"""Real HTTP servers in this process that do as they are told, as `serving.Server` objects."""

import asyncio
import json
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

from llm_ocr.engines import Address, CompletionRequest, ServerFacts
from llm_ocr.errors import ServerError
from llm_ocr.types import EncodedImage

#: Excerpts of what each kind of server answers.
METRICS = {
    "vLLM": "vllm:num_requests_running RUNNING\nvllm:num_requests_waiting WAITING\n",
    "SGLang": """\
# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="a",pp_rank="0",tp_rank="0"} RUNNING.0
sglang:num_queue_reqs{engine_type="unified",model_name="a",pp_rank="0",tp_rank="0"} WAITING.0
sglang:num_grammar_queue_reqs{engine_type="unified",model_name="a",pp_rank="0",tp_rank="0"} 0.0
sglang:token_usage{engine_type="unified",model_name="a",pp_rank="0",tp_rank="0"} 0.28
sglang:prompt_tokens_total{model_name="a"} 8.128902e+06
""",
    "llama.cpp": """\
# HELP llamacpp:requests_processing Number of requests processing.
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing RUNNING
# HELP llamacpp:requests_deferred Number of requests deferred.
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred WAITING
llamacpp:n_busy_slots_per_decode 3.87
llamacpp:tokens_predicted_total 17029
""",
    "TensorRT-LLM": """\
# HELP trtllm_num_requests_running Number of active requests
# TYPE trtllm_num_requests_running gauge
trtllm_num_requests_running{engine_type="trtllm",model_name="a"} RUNNING.0
trtllm_num_requests_waiting{engine_type="trtllm",model_name="a"} WAITING.0
trtllm_num_requests_completed_total{engine_type="trtllm",model_name="a"} 12.0
trtllm_kv_cache_utilization{engine_type="trtllm",model_name="a"} 0.31
""",
    "TGI": """\
# TYPE tgi_batch_current_size gauge
tgi_batch_current_size RUNNING
# TYPE tgi_queue_size gauge
tgi_queue_size WAITING
tgi_request_generated_tokens_bucket{le="1"} 0
tgi_request_generated_tokens_sum 8123
""",
}
OWNERS = {"SGLang": "sglang", "llama.cpp": "llamacpp", "TensorRT-LLM": "tensorrt_llm"}


def request_for(name: str) -> CompletionRequest:
    """A question whose prompt is its id: the scripted server goes by it."""
    return CompletionRequest(name, EncodedImage(b"", "image/png", 1, 1), name, {"max_tokens": 10})


@dataclass
class Scripted:
    """A server of a model; fields may be changed while it runs.

    `slots` requests are worked on at once, each for `seconds`; more wait. It dies of questions in `killers`, hangs
    (and goes on answering /v1/models) from one in `hangers` on, and lets `behave` answer others in its own way.
    """

    name: str = "scripted 0"
    facts: ServerFacts = field(default_factory=ServerFacts)
    slots: int = 1000
    seconds: float = 0.005
    killers: frozenset[str] = frozenset()
    hangers: frozenset[str] = frozenset()
    behave: Callable[[str], web.Response | None] = lambda prompt: None
    starts_after: float = 0.0
    fails_to_start: str = ""
    fails_to_restart: str = ""
    gauges: bool = False
    kind: str = "vLLM"  # of server, which decides the words of its metrics
    managed: bool = True  # its process's end is seen
    cut_after: float = 0.0  # seconds after which a proxy in front of it resets a silent connection

    asked: Counter[str] = field(default_factory=Counter)
    arrived: list[tuple[float, str]] = field(default_factory=list)
    neighbours: dict[str, list[int]] = field(default_factory=dict)  # at each arrival, how many were there with it
    running: int = 0
    waiting: int = 0
    most: int = 0
    starts: int = 0
    stops: int = 0

    def __post_init__(self) -> None:
        self._runner: web.AppRunner | None = None
        self._listening: socket.socket | None = None
        self._end: asyncio.Future[str] | None = None
        self._hung = False
        self._turns = asyncio.Condition()

    async def start(self) -> tuple[Address, ServerFacts]:
        self.starts += 1
        await asyncio.sleep(self.starts_after)
        if self.fails_to_start:
            raise ServerError(self.fails_to_start, hint="Look at its log.")
        return await self._listen()

    async def restart(self, why: str) -> tuple[Address, ServerFacts]:
        await self._shut()
        self.starts += 1
        if self.fails_to_restart:
            raise ServerError(self.fails_to_restart)
        return await self._listen()

    async def ended(self) -> str:
        assert self._end is not None
        if not self.managed:
            await asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._end)

    async def stop(self) -> None:
        self.stops += 1
        await self._shut()

    async def die(self, why: str = "killed") -> None:
        """As a kill -9."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        assert runner.server is not None
        assert self._listening is not None
        # Accept no more, then let accepted connections receive their transports: Python 3.13.0 leaves those that come
        # after `stop` unclosed.
        asyncio.get_running_loop().remove_reader(self._listening)
        await asyncio.sleep(0)
        for site in list(runner.sites):
            await site.stop()
        for handler in list(runner.server.connections):
            if handler.transport is not None:
                handler.transport.abort()
        if self._end is not None and not self._end.done():
            self._end.set_result(why)
        await runner.cleanup()

    async def _listen(self) -> tuple[Address, ServerFacts]:
        self._hung = False
        self.running = self.waiting = 0
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/prometheus/metrics", self._metrics)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.01)
        await runner.setup()
        self._listening = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(runner, self._listening).start()
        self._runner = runner
        self._end = asyncio.get_running_loop().create_future()
        port = runner.addresses[0][1]
        return Address(f"http://127.0.0.1:{port}/v1", "scripted"), self.facts

    async def _shut(self) -> None:
        await self.die("stopped")

    async def _models(self, request: web.Request) -> web.Response:
        owner = {"owned_by": OWNERS[self.kind]} if self.kind in OWNERS else {}
        return web.json_response({"data": [{"id": "scripted", **owner}]})

    async def _metrics(self, request: web.Request) -> web.Response:
        if not self.gauges:
            return web.Response(status=404)
        if self.kind == "TensorRT-LLM" and request.path == "/metrics":
            return web.json_response([])
        names = METRICS[self.kind]
        return web.Response(text=names.replace("RUNNING", str(self.running)).replace("WAITING", str(self.waiting)))

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        prompt = next(p["text"] for p in (await request.json())["messages"][0]["content"] if p["type"] == "text")
        self.asked[prompt] += 1
        self.arrived.append((time.monotonic(), prompt))
        self.neighbours.setdefault(prompt, []).append(self.running + self.waiting)
        self.waiting += 1
        running = False
        try:
            if prompt in self.hangers:
                self._hung = True
            if self._hung:
                await self._silence(request)
            special = self.behave(prompt)
            if special is not None:
                return special
            async with self._turns:
                await self._turns.wait_for(lambda: self.running < self.slots)
                self.waiting -= 1
                self.running += 1
                running = True
            self.most = max(self.most, self.running)
            await asyncio.sleep(self.seconds)
            if prompt in self.killers:
                asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(self.die(f"killed by {prompt}")))
                await asyncio.get_running_loop().create_future()
            if self._hung:
                await self._silence(request)
            return await self._answer(request, prompt)
        finally:
            if running:
                self.running -= 1
                async with self._turns:
                    self._turns.notify()
            else:
                self.waiting -= 1

    def hang(self) -> None:
        """Answer no question any more, until the next start."""
        self._hung = True

    async def _silence(self, request: web.Request) -> None:
        await asyncio.sleep(self.cut_after or 3600)
        if request.transport is not None:
            request.transport.abort()
        await asyncio.get_running_loop().create_future()

    async def _answer(self, request: web.Request, prompt: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        choice = {"delta": {"content": f"answer to {prompt}"}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 3, "completion_tokens": 5}
        for event in ({"choices": [choice]}, {"choices": [], "usage": usage}):
            await response.write(f"data: {json.dumps(event)}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response
