"""Table of the variables of GLM-OCR's RunPod worker with their effect here.

Names with `LLM_OCR_` have precedence. MAX_MODEL_LEN, GPU_MEMORY_UTILIZATION, TENSOR_PARALLEL_SIZE, and MODEL_ID are in
`config.legacy`, since all commands read them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from llm_ocr.config.fields import PREFIX
from llm_ocr.config.legacy import bare_for
from llm_ocr.errors import UsageError
from llm_ocr.models.profiles.regions import GLM_OCR


@dataclass(frozen=True, slots=True)
class Variable:
    """Variable: `setting` is the field that takes its value, `flag` the argument of `vllm serve`."""

    name: str
    setting: str
    flag: str = ""
    count: bool = True  # an integer


#: docs/migrating.md has the same table. Of two variables for one setting, the smaller value applies.
TABLE = (
    Variable("GLMOCR_MAX_WORKERS", "max_inflight_requests"),
    Variable("GLMOCR_CONNECTION_POOL_SIZE", "max_inflight_requests"),  # each concurrent request has a connection
    Variable("MAX_NUM_SEQS", "vllm_arg", "--max-num-seqs"),
    Variable("MAX_NUM_BATCHED_TOKENS", "vllm_arg", "--max-num-batched-tokens"),
    Variable("WORKER_MAX_CONCURRENCY", "worker_concurrency"),
    Variable("MODEL_REVISION", "revision", count=False),
)


def translated(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables, with `LLM_OCR_` names added from the table.

    Raises:
        UsageError: A number is invalid.
    """
    held: dict[str, str] = {}
    for variable in TABLE:
        value = variables.get(variable.name, "").strip()
        if value and variable.count and not (value.isascii() and value.isdigit()):
            raise UsageError(f"{variable.name}={value}: must be a whole number, 1 or more")
        if value:
            held[variable.name] = value
    # Server arguments: from `LLM_OCR_` variables, otherwise from all others; then defaults of the table.
    given = variables.get(PREFIX + "VLLM_ARG", "")
    if not given:
        bare = (legacy.read(variables[legacy.name]) for legacy in bare_for("vllm_arg") if variables.get(legacy.name))
        given = "\n".join(text for text in bare if text)
    arguments = [given] if given else []
    for variable in TABLE:
        if variable.flag and variable.name in held and variable.flag not in given:
            arguments.append(f"{variable.flag}={held[variable.name]}")
    found = {PREFIX + "VLLM_ARG": "\n".join(arguments)}
    for setting in ("max_inflight_requests", "worker_concurrency", "revision"):
        name = PREFIX + setting.upper()
        values = [held[variable.name] for variable in TABLE if variable.setting == setting and variable.name in held]
        if values and not variables.get(name):
            found[name] = min(values, key=int) if len(values) > 1 else values[0]
    return {**variables, **{name: value for name, value in found.items() if value}}


def usual_model(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the default model: that of the worker that this one replaces."""
    if any(variables.get(name) for name in (PREFIX + "MODEL", "MODEL_ID", PREFIX + "WEIGHTS")):
        return {}
    return {"model": GLM_OCR.name, **({"revision": GLM_OCR.revision} if GLM_OCR.revision else {})}
