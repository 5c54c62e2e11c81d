"""What vLLM tells of itself under /metrics, in Prometheus' text format.

Names as vLLM 0.32 gives them; `gpu_cache_usage_perc` is what `kv_cache_usage_perc` was called before 0.10.
"""

import math
import re
from dataclasses import dataclass

_VALUE = re.compile(
    r"^vllm:(num_requests_running|num_requests_waiting|kv_cache_usage_perc|gpu_cache_usage_perc|num_preemptions_total"
    r"|prompt_tokens_total|generation_tokens_total|request_success_total)(?:\{.*\})? (\S+)",
    re.MULTILINE,
)
_CACHE = re.compile(r"^vllm:cache_config_info\{(.*)\} ", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_COUNT = re.compile("[0-9]{1,12}")  # Python reads no number of thousands of digits


@dataclass(frozen=True, slots=True)
class Gauges:
    """The numbers of a vLLM server now, summed over its engines; `kv_usage` is their mean, 0..1.

    From `preemptions` on they are counted since the server began. `finished` leaves aborted requests out.
    """

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0
    preemptions: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    finished: int = 0


def parse(text: str) -> Gauges | None:
    """The gauges in the text of /metrics; None when it is not vLLM's."""
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
    """Tokens that fit into the KV cache, summed over the engines; None when the text of /metrics does not say it."""
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
