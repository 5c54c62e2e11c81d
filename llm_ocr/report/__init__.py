"""`report`: one HTML page about a workspace, from markers and metrics."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from llm_ocr.costs.report import cost_report, spent
from llm_ocr.errors import StorageError, UsageError
from llm_ocr.report.charts import Report, Section, plain
from llm_ocr.report.page import page
from llm_ocr.report.sections import (
    cost_section,
    document_section,
    failure_sections,
    money_tile,
    outcome_section,
    outcome_tiles,
    quality_section,
    time_sections,
    time_tiles,
)
from llm_ocr.workspace import Workspace, library_version
from llm_ocr.workspace.keys import EXTRACT, stage_keys
from llm_ocr.workspace.metrics import Series, all_series
from llm_ocr.workspace.plan import pages_of_documents
from llm_ocr.workspace.status import run_status

# No row is read.


_ENGINES = {"embedded": "embedded: text layer and OCR on the CPU", "model": "a model behind a server"}


@dataclass(frozen=True, slots=True)
class Written:
    """Written report: its path, and its size in bytes."""

    path: Path
    size: int


def write_report(workspace: Workspace, path: Path) -> Written:
    """Write the page, replacing an older one. The run may be empty, in progress, or finished.

    Raises:
        UsageError: the path is a folder.
        StorageError: the file cannot be written, or the store cannot be read.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder", hint=f"Name a file: --output {path / 'report.html'}")
    data = page(report_of(workspace)).encode()
    try:
        _replace(path, data)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}", hint="Name another file.") from error
    return Written(path, len(data))


def report_of(workspace: Workspace) -> Report:
    """Return the content of the page. Raises the errors of `workspace.status.run_status`."""
    status = run_status(workspace)
    found = all_series(workspace)
    jobs = spent(workspace)
    costs = cost_report(status, jobs)
    sections: list[Section | None] = [
        outcome_section(status),
        *failure_sections(status),
        quality_section(status),
        *time_sections(found),
        document_section(pages_of_documents(workspace)),
        cost_section(costs, jobs, found),
    ]
    return Report(
        title=f"OCR run: {_name(workspace.url)}",
        facts=list(_facts(workspace, found)),
        tiles=[*outcome_tiles(status), *time_tiles(status, found), *money_tile(costs)],
        sections=[section for section in sections if section is not None],
        footer=f"Made {_moment(datetime.now(UTC))} by llm-ocr {library_version()} from markers and metrics of "
        f"{workspace.url}. Times are UTC.",
    )


def _replace(path: Path, data: bytes) -> None:
    """Write the file completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{secrets.token_hex(8)}.html")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _facts(workspace: Workspace, found: list[Series]) -> Iterator[tuple[str, str]]:
    keys = stage_keys(workspace, EXTRACT)
    about: Any = keys[-1].settings if keys else {}
    reader = about.get("reader", {}) if isinstance(about, dict) else {}
    reader = reader if isinstance(reader, dict) else {}
    yield "workspace", workspace.url
    engine = str(reader.get("engine") or "")
    yield "engine", _ENGINES.get(engine, engine) or "not begun"
    if model := reader.get("model"):
        yield "model", plain(model)
        yield "revision", plain(reader.get("revision") or "not recorded")
    if found:
        begun = min(one.began for one in found)
        ended = max(one.began + one.seconds for one in found)
        yield "first page asked for", _moment(_datetime(begun))
        yield "last seen at work", _moment(_datetime(ended))
    yield "made with", f"llm-ocr {plain(workspace.run.get('created_by', 'unknown'))}"
    if batches := sorted({one.batch_id for one in found if one.batch_id}):
        yield "batch", ", ".join(batches[:5]) + (" …" if len(batches) > 5 else "")


def _datetime(seconds: float) -> datetime:
    """Return the time of a number in a file; 1970 for an invalid one."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return datetime.fromtimestamp(0, UTC)


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M")


def _name(url: str) -> str:
    """Return the last nonempty part of a URL."""
    return next((part for part in reversed(url.split("/")) if part), url)
