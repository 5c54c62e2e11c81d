"""The lines of vLLM's log that a supervisor reads, on standard output."""

import sys

#: What requests get when vLLM's engine process is gone.
ENGINE_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."


def starting(model: str, version: str) -> None:
    """The first line."""
    _say(f"INFO 11-20 12:00:00 [api_server.py:1978] vLLM API server version {version}, model {model}")


def cache(tokens: int, max_model_len: int) -> None:
    """The size of the KV cache, as it is printed after profiling."""
    _say(f"INFO 11-20 12:00:01 [kv_cache_utils.py:1087] GPU KV cache size: {tokens:,} tokens")
    _say(
        f"INFO 11-20 12:00:01 [kv_cache_utils.py:1091] Maximum concurrency for {max_model_len:,} tokens per request: "
        f"{tokens / max_model_len:.2f}x"
    )


def ready() -> None:
    """Startup is complete: it listens."""
    _say("INFO:     Application startup complete.")


def stopping() -> None:
    """After SIGTERM."""
    _say("INFO:     Shutting down")


def engine_died() -> None:
    """The worker was killed."""
    _say("ERROR 11-20 12:00:02 [core_client.py:600] Engine core proc EngineCore_0 died unexpectedly, shutting down.")


def out_of_memory() -> None:
    """CUDA out of memory, with its traceback."""
    _say(
        "ERROR 11-20 12:00:02 [core.py:936] EngineCore failed to start.\n"
        "Traceback (most recent call last):\n"
        '  File "vllm/v1/engine/core.py", line 927, in run_engine_core\n'
        "    engine_core = EngineCoreProc(*args, **kwargs)\n"
        '  File "vllm/v1/worker/gpu_model_runner.py", line 4012, in _dummy_run\n'
        "    hidden_states = self.model(input_ids, positions)\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 39.49 "
        "GiB of which 1.21 GiB is free."
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
