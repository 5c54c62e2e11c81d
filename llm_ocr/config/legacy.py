"""Environment variables of the predecessor (llm-lab's batch-ocr-inference) and the settings that they map to."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import quote

from llm_ocr.config.groups import without_credentials
from llm_ocr.errors import UsageError


def _zero_is_no_limit(text: str) -> str | None:
    return None if text.strip() == "0" else text


def _log_level(text: str) -> str | None:
    name = text.strip().lower()
    return {"warn": "warning", "critical": "error", "fatal": "error", "notset": "debug"}.get(name, name)


@dataclass(frozen=True, slots=True)
class Bare:
    """Predecessor variable; `setting` is the field that takes its value.

    A `weak` variable counts only if no other variable sets that field.
    """

    name: str
    setting: str
    convert: Callable[[str], str | None] = str  # None: the setting's "not set"; ValueError: invalid value
    weak: bool = False

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


def _repository(text: str) -> str:
    """Return the URL of a Hub dataset from its name."""
    if "/" not in text.strip().strip("/"):
        raise ValueError("must be OWNER/NAME")
    return _on("hf://datasets/", text.rstrip("/"))


def _on(root: str, text: str) -> str:
    """Prefix a name with the root, unless the name is a URL. The result is never a local folder."""
    place = text.strip()
    if not place:
        raise ValueError("must not be blank")
    return place if "://" in place else root + place


#: Variables without an effect here, which are worth a warning. docs/migrating.md has the remedies.
WITHOUT_EFFECT = (
    *("EXTRACT_BATCH_SIZE", "DESCRIBE_BATCH_SIZE", "EXTRACT_MAX_CONCURRENCY", "DESCRIBE_MAX_CONCURRENCY"),
    *("EXTRACT_MAX_RETRIES", "DESCRIBE_MAX_RETRIES", "EXTRACT_RETRY_BACKOFF", "DESCRIBE_RETRY_BACKOFF", "HEALTH_URL"),
    *("DESCRIBE_REQUEST_TIMEOUT", "DATALOADER_WORKERS", "DATALOADER_PREFETCH", "HF_PATH_IN_REPO", "MODEL_NAME"),
    *("STREAM_DATASET", "HF_COMMIT_MESSAGE", "JOB_CODE_REPO", "JOB_CODE_REPO_TYPE", "JOB_CODE_REVISION"),
    *("JOB_CODE_LOCAL_DIR", "NUM_SAMPLES"),
)

#: Variables that set a field; docs/migrating.md explains them.
TABLE = (
    Bare("LOG_LEVEL", "log_level", _log_level),
    Bare("MAX_SAMPLES", "max_samples", _zero_is_no_limit),
    Bare("DATASET_NAME", "dataset"),
    Bare("DATASET_CONFIG", "dataset_config"),
    Bare("DATASET_SPLIT", "dataset_split"),
    Bare("S3_OUTPUT_URI", "workspace", partial(_on, "s3://")),
    Bare("GCS_OUTPUT_URI", "workspace", partial(_on, "gs://")),
    Bare("HF_REPO_ID", "workspace", _repository),
    Bare("HF_REPO", "workspace", _repository),
    Bare("OUTPUT_DIR", "workspace", weak=True),
    Bare("S3_INPUT_URI", "input", partial(_on, "s3://")),
    Bare("GCS_INPUT_URI", "input", partial(_on, "gs://")),
    Bare("SOURCE_REPO_ID", "input", _repository),
    Bare("SKIP_SERVER_LAUNCH", "engine", _launched_elsewhere),
    Bare("BASE_URL", "server_url", _server),
    Bare("SERVED_MODEL_NAME", "server_model"),
    Bare("VLLM_STARTUP_TIMEOUT", "server_timeout"),
    Bare("MODEL_ID", "model"),
    Bare("TENSOR_PARALLEL_SIZE", "tensor_parallel_size"),
    Bare("MAX_MODEL_LEN", "max_model_len"),
    Bare("GPU_MEMORY_UTILIZATION", "gpu_memory_utilization"),
    Bare("MM_PROCESSOR_CACHE_GB", "vllm_arg", _cache_size),
    Bare("LOGITS_PROCESSORS", "vllm_arg", _logits_processors),
    Bare("EXTRA_VLLM_ARGS", "vllm_arg", _words),
    Bare("DOC_PROMPT", "prompt", _without_image),
    Bare("DOC_MAX_TOKENS", "max_tokens"),
    Bare("DOC_TEMPERATURE", "temperature"),
    Bare("FIGURE_PROMPT", "describe_prompt", _without_image),
    Bare("FIGURE_MAX_TOKENS", "describe_max_tokens"),
    Bare("FIGURE_TEMPERATURE", "describe_temperature"),
    Bare("EXTRACT_REQUEST_TIMEOUT", "request_timeout"),
)

#: Names that are read from a `.env` file. HF_BRANCH is the branch of `HF_REPO_ID`.
NAMES = frozenset({"HF_BRANCH", *WITHOUT_EFFECT, *(bare.name for bare in TABLE)})


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

    def on_branch(text: str) -> str:
        url = _repository(text)
        return url if "@" in url else f"{url}@{quote(branch, safe='')}"

    return replace(bare, convert=on_branch)


def notices(present: Iterable[str]) -> tuple[str, ...]:
    """Return the warning for variables that are set and have no effect; empty without such variables."""
    found = set(present)
    without = [name for name in WITHOUT_EFFECT if name in found]
    return (f"ignored variables: {', '.join(without)} (see docs/migrating.md)",) if without else ()
