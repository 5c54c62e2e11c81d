"""The dots.ocr batch pipeline on Modal: documents of a manifest to two files, with one line of JSON per page.

Extract reads the pages into a workspace, so that the same command continues after an interruption. The flags of that
pipeline have defaults for its model server. They are passed as variables: a variable without a meaning for the engine
is a warning, but a flag would be an error.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import llm_ocr
from llm_ocr.errors import UsageError
from llm_ocr.types import BlockKind, PageRecord, Status
from llm_ocr_platforms.modal.functions import run_command

#: Form of `content`: the page's Markdown; blocks with boxes and text as JSON; the same without text.
Content = Literal["markdown", "layout", "layout-only"]


def dots_record(page: PageRecord, content: Content = "markdown", *, model: str = "") -> dict[str, Any]:
    """Return the record of a page. A degraded page is a success: it was read, possibly in another way than requested.

    `page` counts from 1 and is null for a document that could not be opened. `model` is for pages without a model's
    answer. `latency` is in seconds.
    """
    record: dict[str, Any] = {
        "document_id": page.document_id,
        "page": page.page_number,
        "page_index": page.page_number,
        "pdf_path": page.source,
        "model": page.engine or model,
        "success": page.status is not Status.FAILED,
        "latency": round(page.seconds, 3),
        "usage": {},
        "content": None,
        "error": None,
    }
    if page.status is Status.FAILED:
        reason = page.reason.value.replace(" ", "_") if page.reason else "failed"
        record["error"] = f"{reason}: {page.detail}" if page.detail else reason
        return record
    record["usage"] = {
        "prompt_tokens": page.tokens_in,
        "completion_tokens": page.tokens_out,
        "total_tokens": page.tokens_in + page.tokens_out,
    }
    if content == "markdown":
        record["content"] = page.markdown
        return record
    # Blocks as the model writes them: boxes in pixels of the page's image as sent, and no text for pictures. The
    # model's own boxes may differ by a few pixels, and its text has no Markdown heading marks.
    width, height = (page.image.width, page.image.height) if page.image else (1000, 1000)
    blocks = []
    for block in page.blocks:
        box = block.box.scaled(width, height)
        value: dict[str, Any] = {
            "bbox": [round(side) for side in (box.x0, box.y0, box.x1, box.y1)],
            "category": block.label or block.kind.value,
        }
        if content == "layout" and block.kind is not BlockKind.FIGURE:
            value["text"] = block.text
        blocks.append(value)
    record["content"] = json.dumps(blocks, ensure_ascii=False)
    return record


def as_line(record: dict[str, Any]) -> str:
    """Return a record as one line, newline included."""
    return json.dumps(record, ensure_ascii=False) + "\n"


#: Flags of the pipeline, with our variables of the same values.
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
#: Prompt modes of the pipeline, with the content of a line.
MODES: Mapping[str, Content] = {"layout-all": "layout", "layout-only": "layout-only", "ocr": "markdown"}
_OTHERS = frozenset(
    {"manifest", "output_path", "error_path", "download_dir", "pdf_filenames", "max_retries", "workspace"}
)
#: Exit codes of Extract after which every page is read; 3: more pages failed than `max_failed_rate` allows.
_READ = (0, 3)


@dataclass(frozen=True, slots=True)
class Batch:
    """Command of a batch with its variables, and the two files of lines."""

    argv: tuple[str, ...]
    workspace: str
    output: str
    errors: str
    content: Content
    folders: tuple[str, ...] = ()  # to be created first
    environment: Mapping[str, str] = field(default_factory=dict)


def run_batch(
    flags: Mapping[str, Any],
    *,
    limit: float = 0,
    commits: Iterable[Callable[[], None]] = (),
) -> dict[str, int]:
    """Read every page and write both files.

    Args:
        flags: Flags of the pipeline by their names with underscores.
        limit: The platform's time limit in seconds; 0 for none.
        commits: Called at the end, whatever the result.

    Returns:
        The number of lines in each file: `succeeded`, `failed`.

    Raises:
        UsageError: A flag is wrong.
        RuntimeError: Pages are left unread. The message is Extract's own; no file is written.
    """
    batch = batch_from(flags)
    for folder in batch.folders:
        Path(folder).mkdir(parents=True, exist_ok=True)
    try:
        ended = run_command(batch.argv, batch.environment, limit=limit)
        if ended.exit_code not in _READ:
            raise RuntimeError(f"exit code {ended.exit_code}: {ended.last}. The same command continues.")
        targets, counts = {True: Path(batch.output), False: Path(batch.errors)}, {True: 0, False: 0}
        # Each file is replaced as a whole.
        parts = {success: path.with_name(f".{path.name}.part") for success, path in targets.items()}
        with ExitStack() as stack:
            files = {success: stack.enter_context(part.open("w", encoding="utf-8")) for success, part in parts.items()}
            for page in llm_ocr.open(batch.workspace).pages(images=False):
                record = dots_record(page, batch.content, model=str(flags.get("model_name") or ""))
                files[record["success"]].write(as_line(record))
                counts[record["success"]] += 1
        for success, path in targets.items():
            parts[success].replace(path)
        return {"succeeded": counts[True], "failed": counts[False]}
    finally:
        for commit in commits:
            commit()


def batch_from(flags: Mapping[str, Any]) -> Batch:
    """Return the batch that flags describe.

    Args:
        flags: Flags by their names with underscores; None and "" are flags that were not given. `workspace` is ours:
            the folder or URL of the run, by default next to the output file.

    Raises:
        UsageError: A flag is unknown, missing, or wrong.
    """
    given = {name: value for name, value in flags.items() if value not in (None, "")}
    unknown = sorted(given.keys() - SAME.keys() - _OTHERS)
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
        environment["LLM_OCR_MAX_PAGE_ATTEMPTS"] = str(int(given["max_retries"]) + 1)  # theirs exclude the first one
    if "download_dir" in given:  # of documents
        environment["TMPDIR"] = str(given["download_dir"])
    paths = [given[name] for name in ("log_path", "output_path", "error_path") if name in given]
    folders = [str(PurePosixPath(path).parent) for path in paths]
    folders += [str(given[name]) for name in ("download_dir", "model_cache_dir") if name in given]
    return Batch(
        tuple(argv),
        workspace,
        given["output_path"],
        given["error_path"],
        content=MODES[mode],
        folders=tuple(dict.fromkeys(folders)),
        environment=environment,
    )
