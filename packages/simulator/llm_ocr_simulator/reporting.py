"""Metrics, log lines, and the request log of the simulator."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm_ocr_simulator import engine
from llm_ocr_simulator.engine import EngineModel, RunningSequence

#: Error of requests after the end of vLLM's engine process.
ENGINE_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."


#: What vLLM writes after its worker was killed, and CUDA's out-of-memory error with its traceback.
ENGINE_DIED = (
    "ERROR 11-20 12:00:02 [core_client.py:600] Engine core proc EngineCore_0 died unexpectedly, shutting down."
)
OUT_OF_MEMORY = (
    "ERROR 11-20 12:00:02 [core.py:936] EngineCore failed to start.\n"
    "Traceback (most recent call last):\n"
    '  File "vllm/v1/engine/core.py", line 927, in run_engine_core\n'
    "    engine_core = EngineCoreProc(*args, **kwargs)\n"
    '  File "vllm/v1/worker/gpu_model_runner.py", line 4012, in _dummy_run\n'
    "    hidden_states = self.model(input_ids, positions)\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 39.49 "
    "GiB of which 1.21 GiB is free."
)


def say(text: str) -> None:
    """Write to standard output at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def metrics_text(model: EngineModel, name: str, finished: Mapping[str, int]) -> str:
    """Return the metrics; `name` is that of the served model, `finished` counts ended requests by finish reason."""
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


@dataclass(eq=False, slots=True)
class Entry:
    """One request. Times are in seconds since the server's start; `asked` counts earlier requests with its image."""

    image: str
    asked: int
    arrival: float
    fault: str = ""
    status: int = 0  # HTTP status; 0: none
    finish: str = ""  # stop, length, abort, or error
    temperature: float = 0.0
    end: float | None = None
    produced: int = 0  # generated tokens
    sequence: RunningSequence | None = None  # None: never reached the engine

    def as_json(self, oracle_end: float | None) -> dict[str, Any]:
        """Return the log entry; times are None for states that the request did not reach."""
        own = self.sequence
        return {
            "image": self.image,
            "asked": self.asked,
            "arrival": self.arrival,
            "queued": own.queued if own else None,
            "admitted": own.admitted if own else None,
            "first_token": own.first if own else None,
            "end": self.end,
            "prompt_tokens": own.prompt if own else 0,
            "output_tokens": self.produced,
            "preemptions": own.preemptions if own else 0,
            "temperature": self.temperature,
            "fault": self.fault,
            "status": self.status,
            "finish": self.finish,
            "oracle_end": oracle_end,
        }


def log_json(entries: list[Entry], model: EngineModel) -> dict[str, Any]:
    """Return all requests in order of arrival, with measured and oracle makespan of completed requests with tokens.

    The oracle uses the order in which they reached the engine.
    """
    worked = [(one.sequence, one) for one in entries if one.sequence and one.produced and one.end is not None]
    worked.sort(key=lambda pair: pair[0].number)
    work = [(own.prompt, one.produced, own.images) for own, one in worked]
    ideal = engine.ends(work, model.costs, model.limits)
    by_entry = {id(one): end for (_, one), end in zip(worked, ideal, strict=True)}
    starts, ends = [one.arrival for _, one in worked], [one.end or 0.0 for _, one in worked]
    measured = max(ends, default=0.0) - min(starts, default=0.0)
    best = max(ideal, default=0.0)
    return {
        "requests": [one.as_json(by_entry.get(id(one))) for one in entries],
        "measured": measured,
        "oracle": best,
        "overhead": measured / best - 1 if best else 0.0,
        "generated_tokens": model.generated,
        "preemptions": model.preemptions,
        "gpu_busy": model.gpu_busy,
        "core_busy": model.core_busy,
    }
