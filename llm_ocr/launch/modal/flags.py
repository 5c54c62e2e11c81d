"""The flags of the dots.ocr batch pipeline on Modal, as arguments and variables of `llm-ocr extract`.

The pipeline's flags have defaults for its model server. They travel as variables: a variable that the engine cannot use
is a warning, and a flag is an error.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from llm_ocr.errors import UsageError
from llm_ocr.results.dots_records import Content

#: Their flag -> our variable, where the value stays as it is.
SAME: Mapping[str, str] = {
    "model_name": "LLM_OCR_MODEL",
    "log_path": "LLM_OCR_LOG_FILE",
    "model_cache_dir": "LLM_OCR_MODEL_CACHE",
    "vllm_port": "LLM_OCR_VLLM_PORT",
    "prompt_mode": "LLM_OCR_MODE",
    "workers": "LLM_OCR_WORKERS",
    "max_concurrent_docs": "LLM_OCR_MAX_CONCURRENT_DOCUMENTS",
    "max_inflight_requests": "LLM_OCR_MAX_INFLIGHT_REQUESTS",
    "max_page_concurrency": "LLM_OCR_MAX_PAGE_CONCURRENCY",
    "max_pages_per_doc": "LLM_OCR_MAX_PAGES_PER_DOCUMENT",
    "request_timeout": "LLM_OCR_REQUEST_TIMEOUT",
    "batch_id": "LLM_OCR_BATCH_ID",
    "tensor_parallel_size": "LLM_OCR_TENSOR_PARALLEL_SIZE",
    "gpu_memory_utilization": "LLM_OCR_GPU_MEMORY_UTILIZATION",
    "max_model_len": "LLM_OCR_MAX_MODEL_LEN",
}
#: Their prompt modes, and what a line's content is then.
MODES: Mapping[str, Content] = {"layout-all": "layout", "layout-only": "layout-only", "ocr": "markdown"}


@dataclass(frozen=True, slots=True)
class Batch:
    """What is to be done: the command, its variables, and where the two files of lines go."""

    argv: tuple[str, ...]
    workspace: str
    output: str
    errors: str
    content: Content
    folders: tuple[str, ...] = ()  # to be made first
    environment: Mapping[str, str] = field(default_factory=dict)


def batch_from(flags: Mapping[str, Any]) -> Batch:
    """Flags by their names with underscores; None and "" are flags that were not given.

    `workspace` is ours: the folder or URL that the run is kept in, so that the same command goes on after an
    interruption; beside the output file unless it is given. Raises `UsageError`.
    """
    given = {name: value for name, value in flags.items() if value not in (None, "")}
    unknown = sorted(given.keys() - SAME.keys() - _OWN)
    if unknown:
        raise UsageError(f"unknown flag --{unknown[0].replace('_', '-')}")
    for name in ("manifest", "output_path", "error_path"):
        if name not in given:
            raise UsageError(f"no --{name.replace('_', '-')} given")
    mode = given.setdefault("prompt_mode", "layout-all")
    if mode not in MODES:
        raise UsageError(f"--prompt-mode {mode}: must be one of {', '.join(MODES)}")
    workspace = given.get("workspace") or str(PurePosixPath(given["output_path"]).with_suffix(".llm-ocr"))
    argv = ["python", "-m", "llm_ocr.stages", "extract", str(given["manifest"]), "-w", workspace]
    argv += [f"--only={name.strip()}" for name in str(given.get("pdf_filenames", "")).split(",") if name.strip()]
    environment = {variable: str(given[name]) for name, variable in SAME.items() if name in given}
    if "max_retries" in given:
        environment["LLM_OCR_MAX_PAGE_ATTEMPTS"] = str(int(given["max_retries"]) + 1)  # theirs exclude the first try
    if "download_dir" in given:  # where documents are fetched to
        environment["TMPDIR"] = str(given["download_dir"])
    return Batch(
        tuple(argv),
        workspace,
        given["output_path"],
        given["error_path"],
        content=MODES[mode],
        folders=tuple(_folders(given)),
        environment=environment,
    )


_OWN = frozenset({"manifest", "output_path", "error_path", "download_dir", "pdf_filenames", "max_retries", "workspace"})


def _folders(given: Mapping[str, Any]) -> list[str]:
    files = [
        str(PurePosixPath(given[name]).parent) for name in ("log_path", "output_path", "error_path") if name in given
    ]
    folders = [str(given[name]) for name in ("download_dir", "model_cache_dir") if name in given]
    return list(dict.fromkeys((*files, *folders)))
