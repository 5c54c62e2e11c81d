"""The dots.ocr batch pipeline's run on Modal: documents of a manifest to two files of lines, one a page.

Reads pages with Extract; the run is kept in a workspace, so that the same command goes on after an interruption.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from llm_ocr.api import open as open_run
from llm_ocr.launch.modal.flags import Batch, batch_from
from llm_ocr.launch.modal.functions import run_command
from llm_ocr.results.dots_records import as_line, dots_record

#: Of Extract: all is read; all is read, and more pages failed than --max-failed-rate.
_READ = (0, 3)


def run_batch(
    flags: Mapping[str, Any],
    *,
    environment: Mapping[str, str] | None = None,
    limit: float = 0,
    commits: Iterable[Callable[[], None]] = (),
) -> dict[str, int]:
    """Read every page and write both files; how many lines each has: `succeeded`, `failed`.

    `commits` are called when it is over, however it ended. Raises `UsageError` for flags, `RuntimeError` with Extract's
    last words when pages are left unread: the files are not written then.
    """
    batch = batch_from(flags)
    for folder in batch.folders:
        Path(folder).mkdir(parents=True, exist_ok=True)
    try:
        ended = run_command(batch.argv, {**(environment or {}), **batch.environment}, limit=limit)
        if ended.exit_code not in _READ:
            raise RuntimeError(f"exit code {ended.exit_code}: {ended.last}. The same command goes on.")
        return write_lines(batch, model=str(flags.get("model_name") or ""))
    finally:
        for commit in commits:
            commit()


def write_lines(batch: Batch, *, model: str = "") -> dict[str, int]:
    """Both files of a batch that was read, each replaced as a whole."""
    targets = {True: Path(batch.output), False: Path(batch.errors)}
    counts = {True: 0, False: 0}
    with ExitStack() as stack:
        files = {}
        for success, path in targets.items():
            files[success] = stack.enter_context(_beside(path).open("w", encoding="utf-8"))
        for page in open_run(batch.workspace).pages(images=False):
            record = dots_record(page, batch.content, model=model)
            files[record["success"]].write(as_line(record))
            counts[record["success"]] += 1
    for path in targets.values():
        _beside(path).replace(path)
    return {"succeeded": counts[True], "failed": counts[False]}


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")
