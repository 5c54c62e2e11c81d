"""The environment variables of the predecessor (llm-lab's batch-ocr-inference), and what each of them does here.

One table: reading, the warnings at start and docs/migrating.md are made from it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum


class Effect(Enum):
    """What becomes of a variable of the predecessor; the value is the text of the documentation."""

    READ = "read"
    NONE = "no effect, one warning"
    LATER = "not in this version, one warning"
    IGNORED = "ignored without a word"


def _same(text: str) -> str | None:
    return text


def _zero_is_no_limit(text: str) -> str | None:
    return None if text.strip() == "0" else text


def _log_level(text: str) -> str | None:
    name = text.strip().lower()
    return {"warn": "warning", "critical": "error", "fatal": "error", "notset": "debug"}.get(name, name)


@dataclass(frozen=True, slots=True)
class Bare:
    """One variable: `setting` is the field that takes its value, empty where none does."""

    name: str
    effect: Effect
    note: str
    setting: str = ""
    convert: Callable[[str], str | None] = _same  # None: the setting's "not set"


_ENGINE = "the vLLM engine"
_DATASETS = "Hugging Face data sets as a source"
_STORES = "the remote stores"
_LAUNCHERS = "the launchers"

#: For later parts: what a variable belongs to.
_LATER = {
    _ENGINE: (
        "SKIP_SERVER_LAUNCH BASE_URL HEALTH_URL VLLM_STARTUP_TIMEOUT MODEL_ID SERVED_MODEL_NAME TENSOR_PARALLEL_SIZE "
        "MAX_MODEL_LEN GPU_MEMORY_UTILIZATION MM_PROCESSOR_CACHE_GB LOGITS_PROCESSORS EXTRA_VLLM_ARGS DOC_PROMPT "
        "DOC_MAX_TOKENS DOC_TEMPERATURE FIGURE_PROMPT FIGURE_MAX_TOKENS FIGURE_TEMPERATURE EXTRACT_REQUEST_TIMEOUT "
        "DESCRIBE_REQUEST_TIMEOUT"
    ),
    _DATASETS: "DATASET_NAME DATASET_CONFIG DATASET_SPLIT STREAM_DATASET",
    _STORES: (
        "HF_REPO_ID HF_REPO SOURCE_REPO_ID HF_BRANCH HF_COMMIT_MESSAGE S3_OUTPUT_URI S3_INPUT_URI GCS_OUTPUT_URI "
        "GCS_INPUT_URI"
    ),
    _LAUNCHERS: "JOB_CODE_REPO JOB_CODE_REPO_TYPE JOB_CODE_REVISION JOB_CODE_LOCAL_DIR",
}

_WINDOW = "how much is in flight follows the engine"
_UNUSED = "the predecessor read it and never used it"
_NONE = {
    "EXTRACT_BATCH_SIZE": f"there are no batches: {_WINDOW}",
    "DESCRIBE_BATCH_SIZE": f"there are no batches: {_WINDOW}",
    "EXTRACT_MAX_CONCURRENCY": f"{_UNUSED}; {_WINDOW}",
    "DESCRIBE_MAX_CONCURRENCY": f"{_UNUSED}; {_WINDOW}",
    "EXTRACT_MAX_RETRIES": _UNUSED,
    "DESCRIBE_MAX_RETRIES": _UNUSED,
    "EXTRACT_RETRY_BACKOFF": _UNUSED,
    "DESCRIBE_RETRY_BACKOFF": _UNUSED,
    "DATALOADER_WORKERS": "no torch here; renderer processes: `--render-workers`",
    "DATALOADER_PREFETCH": "no torch here; the queue of rendered pages is bounded in bytes",
    "HF_PATH_IN_REPO": _UNUSED,
    "MODEL_NAME": "documented by the predecessor, configured nothing",
    "NUM_SAMPLES": "documented by the predecessor, configured nothing; `MAX_SAMPLES` does",
}

#: Set on many machines for other programs: a warning at each start would be noise.
_IGNORED = {
    "HOST": f"belongs to {_ENGINE}",
    "PORT": f"belongs to {_ENGINE}",
    "HF_TOKEN": "read by huggingface_hub itself where it is needed",
    "FORCE_COLOR": "honoured by rich, which draws the progress",
    "SM_MODEL_DIR": f"set by SageMaker; belongs to {_LAUNCHERS}",
}

_READ = (
    Bare("PIPELINE_STAGE", Effect.READ, "`python -m llm_ocr` without a command runs this stage; no default"),
    Bare("LOG_LEVEL", Effect.READ, "any case; the default is `warning`, no longer `INFO`", "log_level", _log_level),
    Bare("MAX_SAMPLES", Effect.READ, "`0`: no limit; `1k` is an error now", "max_samples", _zero_is_no_limit),
    Bare("OUTPUT_DIR", Effect.READ, "the workspace: all stages share one", "workspace"),
)

TABLE: tuple[Bare, ...] = (
    *_READ,
    *(Bare(name, Effect.NONE, note) for name, note in _NONE.items()),
    *(Bare(name, Effect.LATER, f"comes with {part}") for part, names in _LATER.items() for name in names.split()),
    *(Bare(name, Effect.IGNORED, note) for name, note in _IGNORED.items()),
)

BY_NAME = {bare.name: bare for bare in TABLE}


def bare_for(setting: str) -> tuple[Bare, ...]:
    """The predecessor's variables that give this setting its value."""
    return tuple(bare for bare in TABLE if bare.setting == setting)


def notices(present: Iterable[str]) -> tuple[str, ...]:
    """The warnings for those of the variables that are set: at most one for each kind."""
    found = set(present)
    without = [name for name in _NONE if name in found]
    later = [
        f"{', '.join(held)} (with {part})"
        for part, names in _LATER.items()
        if (held := [name for name in names.split() if name in found])
    ]
    lines = []
    if without:
        lines.append(f"without effect here: {', '.join(without)} (see docs/migrating.md)")
    if later:
        lines.append(f"not in this version, ignored: {'; '.join(later)}")
    return tuple(lines)


def markdown_table() -> str:
    """The table of docs/migrating.md."""
    rows = ["| Variable | Here | Our setting | Remark |", "|---|---|---|---|"]
    for bare in TABLE:
        ours = f"`LLM_OCR_{bare.setting.upper()}`" if bare.setting else ""
        rows.append(f"| `{bare.name}` | {bare.effect.value} | {ours} | {bare.note} |")
    return "\n".join(rows)
