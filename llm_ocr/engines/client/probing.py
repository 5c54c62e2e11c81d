"""Parse facts that a server reports: models, versions, and Prometheus gauges."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm_ocr.engines import ServerFacts

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
        "prompt_tokens": ("sglang:prompt_tokens_total",),
        "generation_tokens": ("sglang:generation_tokens_total",),
    },
    "llama.cpp": {
        "running": ("llamacpp:requests_processing",),
        "waiting": ("llamacpp:requests_deferred",),
        "kv_usage": ("llamacpp:kv_cache_usage_ratio",),
        "prompt_tokens": ("llamacpp:prompt_tokens_total",),
        "generation_tokens": ("llamacpp:tokens_predicted_total",),
    },
    "TensorRT-LLM": {
        "running": ("trtllm_num_requests_running",),
        "waiting": ("trtllm_num_requests_waiting",),
        "kv_usage": ("trtllm_kv_cache_utilization",),
        "prompt_tokens": ("trtllm_prompt_tokens_total",),
        "generation_tokens": ("trtllm_generation_tokens_total",),
        "finished": ("trtllm_request_success_total",),
    },
    "TGI": {
        "running": ("tgi_batch_current_size",),
        "waiting": ("tgi_queue_size",),
        "prompt_tokens": ("tgi_request_input_length_sum",),
        "generation_tokens": ("tgi_request_generated_tokens_sum",),
        "finished": ("tgi_request_success",),
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
    not reported. `finished` excludes aborted requests.
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


def roots_in(body: bytes) -> dict[str, str]:
    """Return the source of each model in a response of /v1/models by name; "" if not reported.

    The result is empty for any other text.
    """
    return {str(entry["id"]): str(entry.get("root") or "") for entry in _entries(body)}


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
