"""Environment variables of the predecessor (llm-lab's batch-ocr-inference) and the settings that they map to."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from urllib.parse import quote

from llm_ocr.config.groups import without_credentials
from llm_ocr.errors import UsageError


class Effect(Enum):
    """Effect of a predecessor variable; the value is the text in the documentation."""

    READ = "read"
    NONE = "no effect, one warning"
    IGNORED = "ignored without a word"


def _zero_is_no_limit(text: str) -> str | None:
    return None if text.strip() == "0" else text


def _log_level(text: str) -> str | None:
    name = text.strip().lower()
    return {"warn": "warning", "critical": "error", "fatal": "error", "notset": "debug"}.get(name, name)


@dataclass(frozen=True, slots=True)
class Bare:
    """Predecessor variable; `setting` is the field that takes its value, empty for no field.

    A `weak` variable counts only if no other variable sets that field.
    """

    name: str
    note: str
    setting: str = ""
    convert: Callable[[str], str | None] = str  # None: the setting's "not set"; ValueError: invalid value
    weak: bool = False
    effect: Effect = Effect.READ

    def read(self, text: str) -> str | None:
        """Return the setting's value for the variable's text.

        Raises:
            UsageError: The text is invalid. The error names the variable.
        """
        try:
            return self.convert(text)
        except ValueError as error:
            raise UsageError(f"{self.name}={without_credentials(text)}: {error}") from None


def _launched_elsewhere(text: str) -> str | None:
    word = text.strip().lower()
    if word in ("1", "true", "yes", "on", "y", "t"):
        return "server"
    if word in ("0", "false", "no", "off", "n", "f"):
        return "auto"
    raise ValueError("must be true or false")


def _cache_size(text: str) -> str | None:
    if not re.fullmatch(r"\d+(\.\d*)?|\.\d+", text.strip(), re.ASCII):
        raise ValueError("must be a number, 0 or more")
    return f"--mm-processor-cache-gb={text.strip()}"


def _logits_processors(text: str) -> str | None:
    return f"--logits-processors={text.strip()}"


def _words(text: str) -> str | None:
    words = text.split()
    if words and not words[0].startswith(("-", "[")):  # a JSON list is parsed as a list
        raise ValueError("must be arguments of `vllm serve`, for example --max-num-seqs=64")
    return "\n".join(words)


def _server(text: str) -> str | None:
    if not re.match(r"https?://[^/]", text.strip(), re.IGNORECASE):
        raise ValueError("must be the URL of a server, for example http://127.0.0.1:8000/v1")
    return text


def _without_image(text: str) -> str | None:
    """Remove the image placeholder: vLLM inserts the placeholder before the text."""
    return text.removeprefix("<image>").lstrip("\n")


def _repository(text: str) -> str | None:
    """Return the URL of a Hub dataset from its name."""
    if "/" not in text.strip().strip("/"):
        raise ValueError("must be OWNER/NAME")
    return _on("hf://datasets/", text.rstrip("/"))


def _in_s3(text: str) -> str | None:
    return _on("s3://", text)


def _in_gcs(text: str) -> str | None:
    return _on("gs://", text)


def _on(root: str, text: str) -> str:
    """Prefix a name with the root, unless the name is a URL. The result is never a local folder."""
    place = text.strip()
    if not place:
        raise ValueError("must not be blank")
    return place if "://" in place else root + place


_WINDOW = "the number of open requests follows the server"
_UNUSED = "the predecessor read it and never used it"
_SHIPPED = "launchers send the library as a wheel with a hash, or use an image"
_NONE = {
    "EXTRACT_BATCH_SIZE": f"there are no batches: {_WINDOW}",
    "DESCRIBE_BATCH_SIZE": f"there are no batches: {_WINDOW}",
    "EXTRACT_MAX_CONCURRENCY": f"{_UNUSED}; {_WINDOW}",
    "DESCRIBE_MAX_CONCURRENCY": f"{_UNUSED}; {_WINDOW}",
    "EXTRACT_MAX_RETRIES": _UNUSED,
    "DESCRIBE_MAX_RETRIES": _UNUSED,
    "EXTRACT_RETRY_BACKOFF": _UNUSED,
    "DESCRIBE_RETRY_BACKOFF": _UNUSED,
    "HEALTH_URL": "a server's own URL tells whether it is ready",
    "DESCRIBE_REQUEST_TIMEOUT": "`--request-timeout` is for both stages, in seconds without progress",
    "DATALOADER_WORKERS": "`--render-workers` sets the renderer processes",
    "DATALOADER_PREFETCH": "the queue of rendered pages is limited in bytes",
    "HF_PATH_IN_REPO": _UNUSED,
    "MODEL_NAME": "documented by the predecessor, without effect",
    "STREAM_DATASET": "rows are always read when they are needed",
    "HF_COMMIT_MESSAGE": "the program writes its own commit messages",
    "JOB_CODE_REPO": _SHIPPED,
    "JOB_CODE_REPO_TYPE": _SHIPPED,
    "JOB_CODE_REVISION": _SHIPPED,
    "JOB_CODE_LOCAL_DIR": _SHIPPED,
    "NUM_SAMPLES": "documented by the predecessor, without effect; use `MAX_SAMPLES`",
}

#: Variables that many machines set for other programs. A warning at each start would be noise.
_IGNORED = {
    "HOST": "our server listens on loopback",
    "PORT": "our server takes a free port, or `--vllm-port`",
    "HF_TOKEN": "read by huggingface_hub itself where it is needed",
    "FORCE_COLOR": "used by rich, which draws the progress",
    "SM_MODEL_DIR": "set by SageMaker",
}

_PLACE = "the workspace: all stages share one; only one such variable may be set"
_INPUT = "the dataset to begin with, or the workspace itself (see below)"
_READ = (
    Bare("PIPELINE_STAGE", "the stage that `llm-ocr` and `main()` run without a command; no default"),
    Bare("LOG_LEVEL", "any case; default `warning`, before `INFO`", "log_level", _log_level),
    Bare("MAX_SAMPLES", "`0`: no limit; `1k` is an error now", "max_samples", _zero_is_no_limit),
    Bare("DATASET_NAME", "no default; the predecessor's was a dataset of its author", "dataset"),
    Bare("DATASET_CONFIG", "no default", "dataset_config"),
    Bare("DATASET_SPLIT", "", "dataset_split"),
    Bare("S3_OUTPUT_URI", _PLACE, "workspace", _in_s3),
    Bare("GCS_OUTPUT_URI", _PLACE, "workspace", _in_gcs),
    Bare("HF_REPO_ID", f"{_PLACE}; a new one is private", "workspace", _repository),
    Bare("HF_REPO", "as `HF_REPO_ID`", "workspace", _repository),
    Bare("HF_BRANCH", "with `HF_REPO_ID`: its branch, which must exist; also for reading"),
    Bare(
        "OUTPUT_DIR",
        "the workspace, if none of the above is set; before, a folder for temporary files",
        "workspace",
        weak=True,
    ),
    Bare("S3_INPUT_URI", _INPUT, "input", _in_s3),
    Bare("GCS_INPUT_URI", _INPUT, "input", _in_gcs),
    Bare("SOURCE_REPO_ID", f"{_INPUT}; without it, `HF_REPO_ID` is not used", "input", _repository),
    Bare(
        "SKIP_SERVER_LAUNCH",
        "true (`1`, `yes`, `on`): the engine `server`; false: `auto`",
        "engine",
        _launched_elsewhere,
    ),
    Bare(
        "BASE_URL",
        "a running server, with or without `/v1`; no server is started. For a server that starts at the same time "
        "as the job, set `VLLM_STARTUP_TIMEOUT` or `LLM_OCR_SERVER_WAIT`. Otherwise, an address without a server is an "
        "error after 5 seconds",
        "server_url",
        _server,
    ),
    Bare("SERVED_MODEL_NAME", "the name to ask a running server for", "server_model"),
    Bare("VLLM_STARTUP_TIMEOUT", "seconds; default 1800, before 600", "server_timeout"),
    Bare("MODEL_ID", "", "model"),
    Bare("TENSOR_PARALLEL_SIZE", "", "tensor_parallel_size"),
    Bare("MAX_MODEL_LEN", "default from the model's profile, before 4096", "max_model_len"),
    Bare("GPU_MEMORY_UTILIZATION", "the default is vLLM's", "gpu_memory_utilization"),
    Bare("MM_PROCESSOR_CACHE_GB", "an argument of `vllm serve`", "vllm_arg", _cache_size),
    Bare("LOGITS_PROCESSORS", "an argument of `vllm serve`", "vllm_arg", _logits_processors),
    Bare("EXTRA_VLLM_ARGS", "split at spaces", "vllm_arg", _words),
    Bare("DOC_PROMPT", "without `<image>`, which vLLM adds", "prompt", _without_image),
    Bare("DOC_MAX_TOKENS", "default from the model's profile, before 2048", "max_tokens"),
    Bare("DOC_TEMPERATURE", "of the first try; retries climb a ladder", "temperature"),
    Bare("FIGURE_PROMPT", "without `<image>`, which vLLM adds", "describe_prompt", _without_image),
    Bare("FIGURE_MAX_TOKENS", "", "describe_max_tokens"),
    Bare("FIGURE_TEMPERATURE", "of the first try", "describe_temperature"),
    Bare("EXTRACT_REQUEST_TIMEOUT", "seconds without progress; the default is 180", "request_timeout"),
)

TABLE: tuple[Bare, ...] = (
    *_READ,
    *(Bare(name, note, effect=Effect.NONE) for name, note in _NONE.items()),
    *(Bare(name, note, effect=Effect.IGNORED) for name, note in _IGNORED.items()),
)

BY_NAME = {bare.name: bare for bare in TABLE}


def bare_for(setting: str) -> tuple[Bare, ...]:
    """Return the predecessor variables that set this field."""
    return tuple(bare for bare in TABLE if bare.setting == setting)


def chosen(setting: str, held: Mapping[str, str]) -> Bare | None:
    """Return the predecessor variable that sets a single-valued field; `held` contains the variables that are set.

    Raises:
        UsageError: Two variables set different values.
    """
    found = [_on_branch(bare, held) for bare in bare_for(setting) if bare.name in held]
    strong = [bare for bare in found if not bare.weak] or found
    if not strong:
        return None
    first = strong[0]
    for other in strong[1:]:
        if other.read(held[other.name]) != first.read(held[first.name]):
            raise UsageError(
                f"{first.name}={held[first.name]} and {other.name}={held[other.name]} set {setting} differently",
                hint=f"Unset one of them, or set LLM_OCR_{setting.upper()}.",
            )
    return first


def _on_branch(bare: Bare, held: Mapping[str, str]) -> Bare:
    """Add the branch from HF_BRANCH to a repository that is written to."""
    branch = held.get("HF_BRANCH", "").strip()
    if not branch or bare.setting != "workspace" or bare.convert is not _repository:
        return bare

    def on_branch(text: str) -> str | None:
        url = _repository(text)
        return url if url is None or "@" in url else f"{url}@{quote(branch, safe='')}"

    return replace(bare, convert=on_branch)


def notices(present: Iterable[str]) -> tuple[str, ...]:
    """Return the warning for variables that are set and have no effect; empty without such variables."""
    found = set(present)
    without = [name for name in _NONE if name in found]
    return (f"ignored variables: {', '.join(without)} (see docs/migrating.md)",) if without else ()


def markdown_table() -> str:
    """Return the table of docs/migrating.md."""
    rows = ["| Variable | Here | Our setting | Remark |", "|---|---|---|---|"]
    for bare in TABLE:
        ours = f"`LLM_OCR_{bare.setting.upper()}`" if bare.setting else ""
        rows.append(f"| `{bare.name}` | {bare.effect.value} | {ours} | {bare.note} |")
    return "\n".join(rows)
