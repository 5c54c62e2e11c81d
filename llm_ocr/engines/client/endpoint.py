"""Send chat requests to one server and probe its state."""

import asyncio
import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

from llm_ocr.engines import Address, Completion, CompletionRequest, Finish, ServerFacts
from llm_ocr.engines.client.connections import (
    OUTAGES,
    PROBE_TIMEOUT,
    Body,
    Flight,
    Pulse,
    body_parts,
    open_session,
    outage,
    read_events,
    read_whole,
)
from llm_ocr.engines.client.replies import Bounds, Failures, Reply, TooLong
from llm_ocr.errors import RequestLost, ServerBusy, ServerError

#: Names of each server's metrics by field of `Gauges`; the first name that a text contains counts. Sources, 2026-11:
#: - vLLM 0.32: docs.vllm.ai, "Production Metrics". Before 0.10 the KV gauge was `gpu_cache_usage_perc`.
#: - SGLang (needs --enable-metrics): sglang/srt/observability/metrics_collector.py.
#: - llama.cpp (needs --metrics): tools/server/README.md. Newer versions have no gauge of the KV cache.
#: - TensorRT-LLM: tensorrt_llm/metrics/collector.py. trtllm-serve has them under `PROMETHEUS`, with the options
#:   `return_perf_metrics` and `enable_iter_perf_stats`; its /metrics are JSON statistics that each read empties.
#: - TGI: huggingface.co/docs/text-generation-inference, "Metrics". TEI (embeddings): core/src/queue.rs of
#:   text-embeddings-inference; it has no gauge of running requests.
SERVERS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "vLLM": {
        "running": ("vllm:num_requests_running",),
        "waiting": ("vllm:num_requests_waiting",),
        "kv_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        "preemptions": ("vllm:num_preemptions_total",),
        "prompt_tokens": ("vllm:prompt_tokens_total",),
        "generation_tokens": ("vllm:generation_tokens_total",),
        "finished": ("vllm:request_success_total",),
    },
    "SGLang": {
        "running": ("sglang:num_running_reqs",),
        "waiting": ("sglang:num_queue_reqs",),
        "kv_usage": ("sglang:token_usage",),
        "preemptions": ("sglang:num_retracted_requests_total",),
    },
    "llama.cpp": {
        "running": ("llamacpp:requests_processing",),
        "waiting": ("llamacpp:requests_deferred",),
        "kv_usage": ("llamacpp:kv_cache_usage_ratio",),
    },
    "TensorRT-LLM": {
        "running": ("trtllm_num_requests_running",),
        "waiting": ("trtllm_num_requests_waiting",),
        "kv_usage": ("trtllm_kv_cache_utilization",),
    },
    "TGI": {
        "running": ("tgi_batch_current_size",),
        "waiting": ("tgi_queue_size",),
    },
}
#: Where trtllm-serve has its gauges.
PROMETHEUS = "/prometheus/metrics"

_VALUE = re.compile(r"^((?:vllm|sglang|llamacpp):\w+|(?:trtllm|tgi)_\w+)(?:\{.*\})? (\S+)", re.MULTILINE)
_CACHE = re.compile(r"^vllm:cache_config_info\{(.*)\} ", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_COUNT = re.compile("[0-9]{1,12}")  # Python refuses to convert numbers with thousands of digits


@dataclass(frozen=True, slots=True)
class Gauges:
    """Current gauges of a server, summed over its engines; `kv_usage` is their mean, 0..1, and 0 if not reported.

    `server` is a name in `SERVERS`. `preemptions` and the fields after it count from the server's start, and are 0 if
    not reported. Benchmarks read the last three, which only vLLM reports here. `finished` excludes aborted requests.
    """

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0
    preemptions: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    finished: int = 0
    server: str = "vLLM"


def parse(text: str) -> Gauges | None:
    """Parse the text of /metrics; return None without the gauges of a known server."""
    found: dict[str, list[float]] = {}
    for name, number in _VALUE.findall(text):
        try:
            value = float(number)
        except ValueError:
            value = 0.0
        found.setdefault(name, []).append(value if math.isfinite(value) else 0.0)
    for server, names in SERVERS.items():
        values = {field: next((found[name] for name in known if name in found), []) for field, known in names.items()}
        if values["running"] and values["waiting"]:
            usage = values.pop("kv_usage", None) or [0.0]
            sums = {field: round(sum(numbers)) for field, numbers in values.items()}
            return Gauges(kv_usage=sum(usage) / len(usage), server=server, **sums)
    return None


def cache_tokens(text: str) -> int | None:
    """Return the tokens of the KV cache, summed over the engines, or None if the text of /metrics lacks them."""
    engines: dict[str, int] = {}
    for labels in _CACHE.findall(text):
        values = dict(_LABEL.findall(labels))
        blocks, size = values.get("num_gpu_blocks", ""), values.get("block_size", "")
        if _COUNT.fullmatch(blocks) and _COUNT.fullmatch(size):
            engines[values.get("engine", "")] = int(blocks) * int(size)
    return sum(engines.values()) or None


def facts_of(model: str, models: bytes, version: bytes, metrics: bytes) -> ServerFacts:
    """Return the facts in the responses of /v1/models, /version, and /metrics; empty bytes for a missing response.

    A server is vLLM if the models' owner is vLLM or vLLM's gauges exist. Other servers may have gauges as well.
    """
    entries = _entries(models)
    entry = next((entry for entry in entries if entry["id"] == model), entries[0] if len(entries) == 1 else {})
    text = metrics.decode("utf-8", "replace")
    gauges = parse(text)
    vllm = any(entry.get("owned_by") == "vllm" for entry in entries) or (gauges is not None and gauges.server == "vLLM")
    reported = _json(version)
    length = entry.get("max_model_len")
    return ServerFacts(
        vllm=vllm,
        gauges="" if gauges is None else gauges.server,
        simulated=entry.get("simulated") is True,
        version=str(reported.get("version", "")) if vllm and isinstance(reported, Mapping) else "",
        max_model_len=length if isinstance(length, int) and length > 0 else None,
        kv_tokens=cache_tokens(text) if vllm else None,
        serves=identity(str(entry["id"]), str(entry.get("root") or "")) if entry else "",
    )


def identity(name: str, root: str) -> str:
    """Return a listed model's name and the end of the path or id of its weights: mount points may differ."""
    end = root.rstrip("/").rpartition("/")[2]
    return f"{name} ({end})" if end and end != name else name


def _entries(body: bytes) -> list[Mapping[str, Any]]:
    value = _json(body)
    entries = value.get("data") if isinstance(value, Mapping) else value
    if not isinstance(entries, list):
        return []
    return [entry for entry in entries if isinstance(entry, Mapping) and "id" in entry]


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


_ERROR_BYTES = 64 * 1024  # read from an error's body
_PAGE_BYTES = 4 * 1024 * 1024  # read from a page with server information
_PROBE_SECONDS = 10.0
#: Ratio of an answer's total time limit to its limit without progress.
LONGEST = 10
_USAGE_SECONDS = 2.0  # for the token counts, which may follow the finish reason


class Endpoint:
    """Client of one server.

    The endpoint belongs to the event loop of its first use; `close` is final.

    `received` is the `time.monotonic()` of the last progress of any answer, or of a request sent to an idle endpoint.
    Progress is the start of a response, new text or tokens, and the end. Keep-alive data is not progress.
    """

    def __init__(self, address: Address, *, vllm: bool = False, stall: float = 180.0, known: bool = False) -> None:
        """Configure the endpoint.

        Args:
            address: Address of the server.
            vllm: Whether the server supports vLLM's own settings.
            stall: Seconds without progress after which an answer is lost. After `LONGEST` times as many it is cut.
            known: Whether the server has completed requests before, so that a 404 is from a gateway without its server.
        """
        self.address = address
        self.received = time.monotonic()
        self.absent: RequestLost | None = None  # reason why the last `probe` received no answer
        self._vllm = vllm
        self._known = known
        self._stall = stall
        self._failures = Failures(address)
        self._chat = URL(f"{address.url}/chat/completions")
        self._metrics = f"{address.root}/metrics"
        self._opened: aiohttp.ClientSession | None = None
        self._flights: set[Flight] = set()
        self._pulse = Pulse()
        self._closed = False

    async def complete(self, request: CompletionRequest) -> Completion:
        """Send a request and return the complete answer.

        Raises:
            ServerBusy: The server is overloaded; try again later.
            RequestRefused: The server refused the request.
            RequestLost: The answer was lost.
            ServerError: The key, model, or URL is wrong.
        """
        if self._closed:
            raise self._ended()
        flight = Flight(self._stall, LONGEST * self._stall)
        started = time.monotonic()
        if not self._flights:
            self.received = started
        try:
            reply = await self._exchange(request, flight)
        except RequestLost as lost:
            if flight.reply is not None:
                lost.tokens_in, lost.tokens_out, _ = flight.reply.counts()
            raise
        except ServerError as error:
            if flight.status == 404 and self._known:
                raise ServerBusy(str(error.args[0]), status=404) from None
            if flight.status == 404:
                raise self._failures.unknown(error, tuple(await self.served())) from None
            raise
        answer = reply.answer(time.monotonic() - started, self.address.url)
        self._known = True
        return answer

    async def served(self) -> dict[str, str]:
        """Return the source of each served model by name, "" if not reported; empty if no model is listed."""
        entries = _entries(await self._page(f"{self.address.url}/models"))
        return {str(entry["id"]): str(entry.get("root") or "") for entry in entries}

    async def probe(self) -> ServerFacts | None:
        """Return the facts that the server reports, or None without an answer, or from a proxy without a server.

        Afterwards `absent` contains the reason for a missing answer. It is None after any answer, including "not
        ready".

        Raises:
            ServerError: Status 401 or 403, a redirect, or an untrusted certificate.
        """
        status, headers, models = await self._get(f"{self.address.url}/models")
        if not status or status >= 500:
            return None
        if status in (401, 403) or 300 <= status < 400:
            raise self._failures.answered(status, headers, models)
        version = await self._page(f"{self.address.root}/version")
        return facts_of(self.address.model, models if status == 200 else b"", version, await self._metrics_text())

    async def healthy(self) -> bool:
        """Return whether the server answers /health, with any status below 500."""
        status, _, _ = await self._get(f"{self.address.root}/health")
        return 0 < status < 500

    async def gauges(self) -> Gauges | None:
        """Return the server's current gauges, or None without gauges."""
        return parse((await self._metrics_text()).decode("utf-8", "replace"))

    async def close(self) -> None:
        """Close all connections at once. Current and later requests raise `RequestLost`."""
        self._closed = True
        for flight in self._flights:
            flight.end()
        if self._opened is not None:
            await self._opened.close()

    async def _exchange(self, request: CompletionRequest, flight: Flight) -> Reply:
        """Send the request, read the answer, and convert interruptions to typed errors."""

        def on_progress() -> None:
            self.received = flight.seen = time.monotonic()
            if flight.reply is not None and flight.reply.finish is not None:
                flight.end_within(_USAGE_SECONDS)

        response: aiohttp.ClientResponse | None = None
        self._flights.add(flight)
        try:
            async with flight:
                body = Body(body_parts(request, self.address.model, self._vllm))
                response = await self._session().post(self._chat, data=body, allow_redirects=False)
                del body  # frees the image while the answer is read
                flight.status = response.status
                on_progress()
                if response.status != 200:
                    text = await read_whole(response, _ERROR_BYTES)
                    raise self._failures.answered(response.status, response.headers, text)
                watch = request.watch() if request.watch is not None else None
                reply = flight.reply = Reply(watch, self._failures, Bounds.of(request.settings), request.prompt_tokens)
                await self._read(response, reply, on_progress)
                return reply
        except (*OUTAGES, TooLong) as error:
            if self._closed:
                raise self._ended() from error
            if flight.reply is not None and flight.reply.finish is None and flight.late:
                flight.reply.finish = Finish.LATE
            if flight.reply is not None and flight.reply.finish is not None:
                return flight.reply  # the answer is complete, whatever happens to the connection
            if flight.stalled:
                what = f"no new text for {self._stall:g} s" if flight.status else f"no answer within {self._stall:g} s"
                raise self._failures.lost(what, status=flight.status, stalled=True) from error
            if isinstance(error, TooLong):
                raise self._failures.lost(f"sent {error}", status=flight.status) from error
            raise outage(error, self._failures, flight.status) from error
        except RuntimeError as error:
            if self._closed:  # aiohttp's exception for a session or connection that was closed in the meantime
                raise self._ended() from error
            raise
        finally:
            if response is not None:
                response.close()  # a body that was read to its end has already returned the connection
            self._flights.discard(flight)

    async def _read(self, response: aiohttp.ClientResponse, reply: Reply, on_progress: Callable[[], None]) -> None:
        """Read the body of a response with status 200: an event stream, or one JSON value."""
        encoding, kind = response.headers.get("Content-Encoding", "identity"), response.content_type
        if encoding != "identity":
            what = f"the response is compressed ({encoding}), which the request excludes"
            raise self._failures.lost(what, status=200)
        if kind.endswith("json"):
            body = await read_whole(response, reply.bounds.bytes, on_progress)
            if len(body) == reply.bounds.bytes:
                raise self._failures.lost(f"sent a response of more than {len(body)} bytes", status=200)
            reply.take_whole(body)
        else:
            await read_events(response, reply, on_progress, self._pulse)
        if reply.finish is None and kind != "text/event-stream":
            raise self._failures.lost(f"the response has the type {kind} and no end of an answer", status=200)

    async def _metrics_text(self) -> bytes:
        """Return the metrics in Prometheus' format; empty without them."""
        text = await self._page(self._metrics)
        if text.lstrip()[:1] == b"[":  # trtllm-serve: a list in JSON
            self._metrics = f"{self.address.root}{PROMETHEUS}"
            text = await self._page(self._metrics)
        return text

    async def _page(self, url: str) -> bytes:
        """Return the body of a small page; empty for any other status than 200."""
        status, _, body = await self._get(url)
        return body if status == 200 else b""

    async def _get(self, url: str) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers, and body of a small page; status 0 without an answer.

        Raises:
            ServerError: The server cannot answer at all.
        """
        if self._closed:
            return 0, {}, b""
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                response = await self._session().get(URL(url), allow_redirects=False, timeout=PROBE_TIMEOUT)
                self.absent = None
                try:
                    return response.status, response.headers, await read_whole(response, _PAGE_BYTES)
                finally:
                    response.close()
        except OUTAGES as error:
            failure = outage(error, self._failures, 0)
            if not isinstance(failure, RequestLost):
                raise failure from error
            # A server that accepts the connection and is silent is loading or busy; it is not absent.
            self.absent = None if type(error) is TimeoutError else failure
            return 0, {}, b""

    def _session(self) -> aiohttp.ClientSession:
        if self._opened is None:
            self._opened = open_session(self.address.key)
        return self._opened

    def _ended(self) -> RequestLost:
        return self._failures.lost("the client closed the connection")
