"""GET /metrics: the gauges and counters that vLLM has under the same names, in Prometheus' text form."""

from collections.abc import Mapping, Sequence

from llm_ocr.testing.simulator.engine import EngineModel


def metrics_text(model: EngineModel, name: str, finished: Mapping[str, int]) -> str:
    """`name` is the served model's; `finished` counts ended requests by finish reason."""
    labels = f'engine="0",model_name="{name}"'
    waiting = f'reason="capacity",{labels}'
    lines = [
        *_metric("num_requests_running", "gauge", [(labels, model.running)]),
        *_metric("num_requests_waiting", "gauge", [(labels, model.waiting)]),
        *_metric("num_requests_waiting_by_reason", "gauge", [(waiting, model.waiting)]),
        *_metric("kv_cache_usage_perc", "gauge", [(labels, round(model.kv_usage, 6))]),
        *_metric("prefix_cache_hits_total", "counter", [(labels, 0)]),
        *_metric("mm_cache_hits_total", "counter", [(labels, 0)]),
        *_metric("num_preemptions_total", "counter", [(labels, model.preemptions)]),
        *_metric("prompt_tokens_total", "counter", [(labels, model.prompt_tokens)]),
        *_metric("generation_tokens_total", "counter", [(labels, model.generated)]),
    ]
    reasons = [
        (f'finished_reason="{reason}",{labels}', finished.get(reason, 0)) for reason in ("stop", "length", "abort")
    ]
    lines += _metric("request_success_total", "counter", reasons)
    cache = f'block_size="{model.limits.block_size}",engine="0",num_gpu_blocks="{model.limits.blocks}"'
    lines += _metric("cache_config_info", "gauge", [(cache, 1)])
    return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, values: Sequence[tuple[str, float]]) -> list[str]:
    family = name.removesuffix("_total") if kind == "counter" else name
    head = [f"# HELP vllm:{family} of the simulated engine.", f"# TYPE vllm:{family} {kind}"]
    return head + [f"vllm:{name}{{{labels}}} {float(value)}" for labels, value in values]
