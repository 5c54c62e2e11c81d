"""Parse facts that a server reports: models, versions, and Prometheus gauges."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llm_ocr.engines import ServerFacts

# Gauges of vLLM under /metrics in Prometheus' text format, with the names of vLLM 0.32. Before 0.10,
# `kv_cache_usage_perc` was named `gpu_cache_usage_perc`.


_VALUE = re.compile(
    r"^vllm:(num_requests_running|num_requests_waiting|kv_cache_usage_perc|gpu_cache_usage_perc|num_preemptions_total"
    r"|prompt_tokens_total|generation_tokens_total|request_success_total)(?:\{.*\})? (\S+)",
    re.MULTILINE,
)
_CACHE = re.compile(r"^vllm:cache_config_info\{(.*)\} ", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_COUNT = re.compile("[0-9]{1,12}")  # Python refuses to convert numbers with thousands of digits


@dataclass(frozen=True, slots=True)
class Gauges:
    """Current gauges of a vLLM server, summed over its engines; `kv_usage` is their mean, 0..1.

    `preemptions` and the fields after it count from the server's start. `finished` excludes aborted requests.
    """

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0
    preemptions: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    finished: int = 0


def parse(text: str) -> Gauges | None:
    """Parse the text of /metrics; return None if it is not from vLLM."""
    found: dict[str, list[float]] = {}
    for name, value in _VALUE.findall(text):
        found.setdefault(name, []).append(_number(value))
    if "num_requests_running" not in found or "num_requests_waiting" not in found:
        return None
    usage = found.get("kv_cache_usage_perc") or found.get("gpu_cache_usage_perc") or [0.0]

    def total(name: str) -> int:
        return round(sum(found.get(name, ())))

    return Gauges(
        running=total("num_requests_running"),
        waiting=total("num_requests_waiting"),
        kv_usage=sum(usage) / len(usage),
        preemptions=total("num_preemptions_total"),
        prompt_tokens=total("prompt_tokens_total"),
        generation_tokens=total("generation_tokens_total"),
        finished=total("request_success_total"),
    )


def cache_tokens(text: str) -> int | None:
    """Return the tokens of the KV cache, summed over the engines, or None if the text of /metrics lacks them."""
    engines: dict[str, int] = {}
    for labels in _CACHE.findall(text):
        values = dict(_LABEL.findall(labels))
        blocks, size = values.get("num_gpu_blocks", ""), values.get("block_size", "")
        if _COUNT.fullmatch(blocks) and _COUNT.fullmatch(size):
            engines[values.get("engine", "")] = int(blocks) * int(size)
    return sum(engines.values()) or None


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) else 0.0


# Facts in the response bodies of a server.


def roots_in(body: bytes) -> dict[str, str]:
    """Return the source of each model in a response of /v1/models by name; "" if not reported.

    The result is empty for any other text.
    """
    return {str(entry["id"]): str(entry.get("root") or "") for entry in _entries(body)}


def facts_of(model: str, models: bytes, version: bytes, metrics: bytes) -> ServerFacts:
    """Return the facts in the responses of /v1/models, /version, and /metrics; empty bytes for a missing response.

    A server is vLLM if the models' owner is vLLM or vLLM's gauges exist.
    """
    entries = _entries(models)
    entry = next((entry for entry in entries if entry["id"] == model), entries[0] if len(entries) == 1 else {})
    text = metrics.decode("utf-8", "replace")
    if not any(entry.get("owned_by") == "vllm" for entry in entries) and parse(text) is None:
        return ServerFacts(
            max_model_len=_count(entry.get("max_model_len")),
            simulated=entry.get("simulated") is True,
            serves=_identity(entry),
        )
    said = _json(version)
    return ServerFacts(
        vllm=True,
        simulated=entry.get("simulated") is True,
        version=str(said.get("version", "")) if isinstance(said, Mapping) else "",
        max_model_len=_count(entry.get("max_model_len")),
        kv_tokens=cache_tokens(text),
        serves=_identity(entry),
    )


def identity(name: str, root: str) -> str:
    """Return a listed model's name and the end of the path or id of its weights: mount points may differ."""
    end = root.rstrip("/").rpartition("/")[2]
    return f"{name} ({end})" if end and end != name else name


def _identity(entry: Mapping[str, Any]) -> str:
    return identity(str(entry["id"]), str(entry.get("root") or "")) if entry else ""


def _entries(body: bytes) -> list[Mapping[str, Any]]:
    value = _json(body)
    entries = value.get("data") if isinstance(value, Mapping) else value
    if not isinstance(entries, list):
        return []
    return [entry for entry in entries if isinstance(entry, Mapping) and "id" in entry]


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
