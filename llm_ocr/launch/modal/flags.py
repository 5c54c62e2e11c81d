"""The flags of the dots.ocr batch pipeline on Modal, as arguments of `llm-ocr extract`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from llm_ocr.errors import UsageError
from llm_ocr.results.dots_records import Content

#: Theirs -> ours, where the value stays as it is.
SAME: Mapping[str, str] = {
    "model_name": "--model",
    "log_path": "--log-file",
    "model_cache_dir": "--model-cache",
    "vllm_port": "--vllm-port",
    "prompt_mode": "--mode",
    "workers": "--workers",
    "max_concurrent_docs": "--max-concurrent-documents",
    "max_inflight_requests": "--max-inflight-requests",
    "max_page_concurrency": "--max-page-concurrency",
    "max_pages_per_doc": "--max-pages-per-document",
    "request_timeout": "--request-timeout",
    "batch_id": "--batch-id",
    "tensor_parallel_size": "--tensor-parallel-size",
    "gpu_memory_utilization": "--gpu-memory-utilization",
    "max_model_len": "--max-model-len",
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
    argv += [f"{flag}={given[name]}" for name, flag in SAME.items() if name in given]
    argv += [f"--only={name.strip()}" for name in str(given.get("pdf_filenames", "")).split(",") if name.strip()]
    if "max_retries" in given:
        argv.append(f"--max-page-attempts={int(given['max_retries']) + 1}")  # theirs do not count the first try
    downloads = given.get("download_dir")
    return Batch(
        tuple(argv),
        workspace,
        given["output_path"],
        given["error_path"],
        content=MODES[mode],
        folders=tuple(_folders(given)),
        environment={"TMPDIR": str(downloads)} if downloads else {},  # where documents are fetched to
    )


_OWN = frozenset({"manifest", "output_path", "error_path", "download_dir", "pdf_filenames", "max_retries", "workspace"})


def _folders(given: Mapping[str, Any]) -> list[str]:
    files = [
        str(PurePosixPath(given[name]).parent) for name in ("log_path", "output_path", "error_path") if name in given
    ]
    folders = [str(given[name]) for name in ("download_dir", "model_cache_dir") if name in given]
    return list(dict.fromkeys((*files, *folders)))
