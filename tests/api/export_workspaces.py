"""Workspaces for exports: output of the stages with synthetic pages, so that no OCR is necessary."""

import asyncio
import io
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

import llm_ocr
from llm_ocr import exporting
from llm_ocr.results.schema import figures_to_parquet, pages_to_parquet
from llm_ocr.storage import StoreOptions
from llm_ocr.storage.local import LocalStore
from llm_ocr.types import (
    Block,
    BlockKind,
    Box,
    DocumentPart,
    EncodedImage,
    Figure,
    FigureRecord,
    PageRecord,
    Reason,
    Status,
    figure_id,
    page_id,
)
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import read_units
from llm_ocr.workspace.keys import DESCRIBE, EXTRACT, claim_key
from llm_ocr.workspace.plan import PlannedDocument
from llm_ocr.workspace.publish import done_units, publish
from llm_ocr.workspace.retry import plan_retry
from llm_ocr.workspace.summaries import figures_summary, pages_summary
from tests.fakes.crash import Crash, CrashingStore, CrashPoint
from tests.fakes.planning import plan_documents

#: Pages of a document and of a unit. A unit's dataset file has slightly more than 1 MB.
PAGES = 3
SETTINGS = {"engine": "vllm", "model": "deepseek-ocr", "pages_per_unit": PAGES, "password": "of nobody"}
_READER = {"engine": "model", "model": "deepseek-ai/DeepSeek-OCR", "revision": "0123abcd"}
Rows = Callable[[DocumentPart, int, int], tuple[PageRecord, list[FigureRecord]]]


def noise(seed: str, side: int = 400) -> EncodedImage:
    """Return an image that no format compresses."""
    data = random.Random(seed).randbytes(side * side)
    out = io.BytesIO()
    Image.frombytes("L", (side, side), data).save(out, "PNG")
    return EncodedImage(out.getvalue(), "image/png", side, side)


def record(part: DocumentPart, number: int, index: int, *, fails: bool) -> tuple[PageRecord, list[FigureRecord]]:
    """Return the rows of a page and of its figure."""
    page = page_id(part.document_id, number)
    common = (page, part.document_id, part.source, number, index)
    if fails:
        return PageRecord(*common, Status.FAILED, Reason.ENGINE_TIMEOUT, "too slow"), []
    figure = Figure(figure_id(page, 1), "chart", Box(0.1, 0.5, 0.9, 0.9), noise(page, 40))
    described = (figure.id, page, part.document_id, Status.OK, "describe")
    return PageRecord(
        *common,
        Status.OK,
        engine="deepseek-ocr",
        image=noise(page),
        markdown=f"Page {number} of {part.relative}\n\n![{figure.id}](figure:{figure.id})",
        blocks=(Block(BlockKind.FIGURE, figure.box, figure_id=figure.id, label="chart"),),
        figures=(figure,),
        tokens_in=100,
        tokens_out=50,
    ), [FigureRecord(*described, description=f"a chart on {page}")]


def make(url: str, documents: int = 6, *, fails: frozenset[str] = frozenset(), pages: int = PAGES, **settings) -> str:
    """Plan and read documents; pages of those named in `fails` fail. Describe and assemble them."""
    options = StoreOptions(endpoint=settings.get("workspace_endpoint"))
    with Workspace.open(url, create=True, options=options) as workspace:
        workspace.create_json("plan/settings.json", {"settings": SETTINGS})
        planned = [_planned(f"{number}.pdf", pages) for number in range(documents)]
        plan_documents(workspace, planned, pages_per_unit=PAGES)
        read(workspace, fails)
    llm_ocr.assemble(workspace=url, **settings)
    return url


def _planned(name: str, pages: int) -> PlannedDocument:
    return PlannedDocument(f"/in/{name}", name, f"sha of {name}", None, tuple(range(1, pages + 1)), pages)


def read(workspace: Workspace, fails: frozenset[str] = frozenset()) -> None:
    """Extract and Describe every unfinished unit."""
    publish_units(workspace, lambda part, number, index: record(part, number, index, fails=part.relative in fails))


def publish_units(workspace: Workspace, rows: Rows) -> None:
    """Publish the rows of Extract and Describe of every unfinished unit; `rows(part, page, index)` makes a page's."""
    extract = claim_key(workspace, EXTRACT, {"reader": _READER, "render": {"image_size": 200}})
    reader = {"engine": "model", "model": "Qwen/Qwen3-VL-8B-Instruct", "mode": "describe"}
    describe = claim_key(workspace, DESCRIBE, {"extract": extract, "reader": reader})
    done = done_units(workspace, EXTRACT, extract)
    for unit in read_units(workspace):
        if unit.id in done:
            continue
        made = [rows(part, n, part.first_index + at) for part in unit.parts for at, n in enumerate(part.pages)]
        pages, figures = [page for page, _ in made], [figure for _, described in made for figure in described]
        publish(workspace, EXTRACT, extract, unit.id, pages_to_parquet(pages), pages_summary(unit, pages))
        summary = figures_summary(len(figures), figures)
        publish(workspace, DESCRIBE, describe, unit.id, figures_to_parquet(figures), summary)


def retry(url: str, *, read_again: bool = True) -> None:
    """Read the failed pages again, with success, and assemble the affected documents; otherwise only plan them."""

    async def reopen(part: DocumentPart) -> PlannedDocument:
        return _planned(part.relative, part.page_total)

    with Workspace.open(url) as workspace:
        key = claim_key(workspace, EXTRACT, {"reader": _READER, "render": {"image_size": 200}})
        asyncio.run(plan_retry(workspace, key, reopen=reopen, pages_per_unit=PAGES))
        if read_again:
            read(workspace)
    if read_again:
        llm_ocr.assemble(workspace=url)


def exported_with(point: CrashPoint, monkeypatch: pytest.MonkeyPatch, workspace: Path, output: Path, **form) -> bool:
    """Return whether an export to a folder, during which a write may crash, was completed."""
    with monkeypatch.context() as patch:
        patch.setattr(exporting, "open_store", lambda url, _: CrashingStore(LocalStore(Path(url)), point))
        try:
            llm_ocr.export(workspace=workspace, output=output, **form)
        except Crash:
            return False
    return True


def loaded(folder: Path, **options):
    from datasets import load_dataset

    return load_dataset(str(folder), split="train", cache_dir=str(folder.parent / "cache"), **options)


def raw(dataset) -> list[dict]:
    """Return all rows, with images as the stored bytes."""
    return dataset.with_format("arrow")[:].to_pylist()


def shards(folder: Path) -> dict[str, int]:
    """Return the inodes of the shards by name."""
    return {path.name: path.stat().st_ino for path in sorted((folder / "data").iterdir())}


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def noted_batches(output: Path) -> dict[str, dict[str, int]]:
    """Return the batches of an export that have a note, with their files' inodes: a rewritten file has another."""
    notes = {path.name: json.loads(path.read_text()) for path in (output / "_llm-ocr/batches").glob("*.json")}
    return {batch: {name: (output / name).stat().st_ino for name in note["files"]} for batch, note in notes.items()}
