"""The environment of a server's process."""

from llm_ocr.engines.vllm.command import ServeOptions
from llm_ocr.settings.environment import server_environment

_SECRET = ("TOKEN", "KEY", "SECRET", "PASSWORD")


def surroundings(options: ServeOptions, *, key: str = "", devices: str = "") -> dict[str, str]:
    """What the server sees of our environment, and what is for it alone.

    `devices` for CUDA_VISIBLE_DEVICES, "" leaves it as it is. Usage reports of vLLM are off.
    """
    # One thread per process for image preprocessing: more of them only get into each other's way.
    made = {"OMP_NUM_THREADS": "1"} | server_environment()
    made |= {"PYTHONUNBUFFERED": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    if key:
        made["VLLM_API_KEY"] = key
    if devices:
        made["CUDA_VISIBLE_DEVICES"] = devices
    if options.model_cache:
        # Weights, tokenizers and configurations; --download-dir would move the weights only.
        made["HF_HUB_CACHE"] = str(options.model_cache.absolute())
    if options.compile_cache:
        made["VLLM_CACHE_ROOT"] = str(options.compile_cache.absolute())
    if options.offline:
        made |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    return made


def secrets_of(environment: dict[str, str]) -> list[str]:
    """Values that must not reach a log."""
    return [value for name, value in environment.items() if name.upper().endswith(_SECRET)]
