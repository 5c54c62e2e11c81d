"""The dataset before Assemble: the predecessor's notebooks show the pages after each stage.

A workspace in a dataset repository of the Hub has a preview, which its card names until Assemble is finished:

preview/train-<hash>-00000.parquet   <hash>: 12 hex digits of the keys and the plan of the pages
"""

import glob
import hashlib
import json
from asyncio import to_thread
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Never

from llm_ocr.config.groups import Group
from llm_ocr.errors import ObjectNotFound, StageMissing
from llm_ocr.results.dataset import CARD, FOLDER, DatasetRow, DatasetWriter, named_files, with_configs
from llm_ocr.results.schema import Images
from llm_ocr.runs import Run
from llm_ocr.scheduling.scanner import PlannedUnits
from llm_ocr.stages.job import Job
from llm_ocr.stages.loop import stepwise
from llm_ocr.storage.hf import parse
from llm_ocr.types import plural
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import generations
from llm_ocr.workspace.items import Item, items
from llm_ocr.workspace.keys import DESCRIBE, EXTRACT, key_settings, newest_key, required_key
from llm_ocr.workspace.publish import Marker, markers
from llm_ocr.workspace.published import extracted_pages, finished_pages, published_figures

if TYPE_CHECKING:
    from datasets import Dataset


_DATASET = f"{FOLDER}/*.parquet"
_PREVIEW = "preview/"
#: Commands that do not write a dataset.
_STAGES = frozenset({EXTRACT, DESCRIBE})
#: Size in bytes of a preview file: one file at a time is on the local disk.
_FILE_BYTES = 500_000_000


def load_stage_dataset(uri: str, split: str = "train") -> "Dataset":
    """Return the pages of a run as a dataset, after any of its stages.

    Before Assemble, `document_final_markdown` is empty.

    Args:
        uri: URL of the workspace. The predecessor's `/dataset` at its end may stay.
        split: Without effect, as in the predecessor: a run has one split.

    Raises:
        WorkspaceError: There is no workspace at this URL.
        StageMissing: Extract has not begun.
    """
    with Workspace.open(uri.rstrip("/").removesuffix("/dataset")) as workspace:
        try:
            return Run(workspace).to_dataset()
        except StageMissing:
            return _extracted(workspace)


def refused_names(module: str, scheme: str) -> Callable[[str], Never]:
    """Return the `__getattr__` of a module of the predecessor: other names than `load_dataset_from_…` are gone."""

    def refuse(name: str) -> Never:
        if name.startswith("_"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        raise ImportError(
            f"{module} has no {name}. Stages write their results to the workspace themselves "
            f"(-w {scheme}://BUCKET/PREFIX); llm_ocr.open(URL) reads them. See docs/migrating.md."
        )

    return refuse


def _extracted(workspace: Workspace) -> "Dataset":
    from datasets import load_dataset

    extract, describe = required_key(workspace, EXTRACT), newest_key(workspace, DESCRIBE)
    described = markers(workspace, DESCRIBE, describe) if describe else {}
    path = workspace.spool / "stage-dataset.parquet"
    with DatasetWriter(path) as dataset:
        for item in items(workspace):
            for row in _rows(workspace, extract, described, item):
                dataset.add(row)
    return load_dataset("parquet", data_files={"train": glob.escape(str(path))}, split="train")


def _rows(workspace: Workspace, extract: str, described: dict[str, Marker], item: Item) -> Iterator[DatasetRow]:
    """Yield the rows of an item that are read, without final Markdown."""
    figures = published_figures(workspace, [described[unit] for unit in item.unit_ids if unit in described])
    rows = extracted_pages(workspace, extract, item, Images.ALL)
    for page in finished_pages(rows, figures, images=Images.ALL):
        yield replace(page, final_markdown="")


def is_repository(workspace: Workspace) -> bool:
    """Return whether the workspace is a dataset repository of the Hub, with its card."""
    return workspace.url.startswith("hf://datasets/") and not parse(workspace.url).prefix


def name_dataset(job: Job[Group]) -> None:
    """Let `load_dataset(REPOSITORY)` open the dataset of a workspace that is a repository, and remove its preview.

    Without a card, it would open the stages' own files as the dataset.
    """
    store = job.workspace.store
    before = _card(job.workspace)
    after = with_configs(before, _DATASET)
    if after != before:
        store.put(CARD, after.encode())
    elif _DATASET not in before:
        job.progress.say(f"{CARD} names other data files and remains unchanged: add {_DATASET} for load_dataset")
    for info in list(store.list(_PREVIEW)):
        store.delete(info.key)


async def show_pages(job: Job[Group], command: str) -> None:
    """Let `load_dataset(REPOSITORY)` open the pages after a command that has finished Extract or Describe.

    This applies to a workspace that is a repository, until Assemble has finished for the first time. The preview has
    descriptions of figures when all of them are described.
    """
    workspace, progress = job.workspace, job.progress
    wanted = await to_thread(_wanted, job) if command in _STAGES else None
    if wanted is None:
        return
    extract, describe, name = wanted
    described = await to_thread(markers, workspace, DESCRIBE, describe) if describe else {}
    files = _Preview(workspace, name)
    async for item in stepwise(items(workspace)):
        await to_thread(files.add, _rows(workspace, extract, described, item))
    await to_thread(files.end)
    if files.rows:
        progress.say(
            f"Preview of {plural(files.rows, 'page')} before Assemble: {workspace.url}/{_PREVIEW}, named in {CARD}"
        )


def _wanted(job: Job[Group]) -> tuple[str, str, str] | None:
    """Return the keys of Extract and of Describe (empty unless finished), and the name of a preview to write."""
    workspace = job.workspace
    if not is_repository(workspace):
        return None
    named = named_files(_card(workspace))
    if named is None:
        job.progress.say(f"{CARD} names other data files and remains unchanged: load_dataset has no preview")
    extract = newest_key(workspace, EXTRACT)
    if named in (None, _DATASET) or extract is None:
        return None
    units = PlannedUnits(workspace)
    if units.without_marker(EXTRACT, extract):
        return None
    describe = newest_key(workspace, DESCRIBE) or ""
    is_of_pages = key_settings(workspace, DESCRIBE, describe).get("extract") == extract
    if not is_of_pages or units.without_marker(DESCRIBE, describe):
        describe = ""
    about = json.dumps([extract, describe, [one.attempt for one in generations(workspace)]])
    name = f"{_PREVIEW}train-{hashlib.sha256(about.encode()).hexdigest()[:12]}"
    return None if named == f"{name}-*.parquet" else (extract, describe, name)


def _card(workspace: Workspace) -> str:
    try:
        return workspace.store.get(CARD).decode("utf-8", "replace")
    except ObjectNotFound:
        return ""


class _Preview:
    """Writes the files of a preview in order; then the card names them, and files of an older preview are removed."""

    def __init__(self, workspace: Workspace, name: str) -> None:
        self.rows = 0
        self._workspace = workspace
        self._name = name
        self._files = 0
        self._path: Path = workspace.spool / "preview.parquet"
        self._open: DatasetWriter | None = None

    def add(self, rows: Iterator[DatasetRow]) -> None:
        """Add rows."""
        for row in rows:
            self._open = self._open or DatasetWriter(self._path)
            self._open.add(row)
            self.rows += 1
            if self._path.stat().st_size >= _FILE_BYTES:
                self._send()

    def end(self) -> None:
        """Complete the preview."""
        self._send()
        if not self.rows:
            return
        store = self._workspace.store
        store.put(CARD, with_configs(_card(self._workspace), f"{self._name}-*.parquet").encode())
        for info in list(store.list(_PREVIEW)):
            if not info.key.startswith(self._name):
                store.delete(info.key)

    def _send(self) -> None:
        if self._open is None:
            return
        with self._open:  # completes the file
            self._open = None
        self._workspace.store.upload(self._path, f"{self._name}-{self._files:05d}.parquet")
        self._path.unlink()
        self._files += 1
