"""Import a dataset of the predecessor as pages of a workspace."""

import asyncio
import hashlib
import io
import json
import math
import random
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from llm_ocr.compat.datasets import (
    FIGURES,
    ID,
    IMAGE,
    MARKDOWN,
    METADATA,
    InputDataset,
    InputFile,
    InputRows,
    Row,
    into,
)
from llm_ocr.config.groups import InputSettings
from llm_ocr.config.models import FigureCommand, InputCommand
from llm_ocr.engines import FigureReader, noop
from llm_ocr.errors import UsageError
from llm_ocr.results.markdown import IMAGE as IMAGE_LINK
from llm_ocr.results.markdown import figure_link, target_id, unescape
from llm_ocr.results.schema import figures_from_parquet, figures_to_parquet, pages_to_parquet, release_memory
from llm_ocr.stages import Progress
from llm_ocr.stages.job import Job
from llm_ocr.stages.loop import stepwise
from llm_ocr.stages.readers import Describing
from llm_ocr.storage.local import LocalStore
from llm_ocr.types import (
    Block,
    BlockKind,
    Box,
    Counts,
    DocumentPart,
    EncodedImage,
    Figure,
    FigureRecord,
    PageRecord,
    Reason,
    Status,
    Unit,
    figure_id,
    page_id,
    plural,
)
from llm_ocr.workspace import Workspace, codec
from llm_ocr.workspace.generations import generations, read_units
from llm_ocr.workspace.keys import DESCRIBE, EXTRACT, claim_key, stage_keys
from llm_ocr.workspace.plan import PlannedDocument, Planner
from llm_ocr.workspace.publish import figures_summary, is_done, iter_markers, pages_summary, publish, read_data

# Conversion of a row of the predecessor's dataset into a page: ids, links, and boxes in our form, all other values
# unchanged. A row that violates the predecessor's format is `degraded` if it has Markdown, otherwise `failed`; `detail`
# has the violations.


#: Engine of imported rows.
ENGINE = "predecessor"

_PAGE = Box(0.0, 0.0, 1.0, 1.0)
_LEGACY = "Figure "
_SIGNS = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"RIFF": "image/webp"}
_CORNERS = ("x1", "y1", "x2", "y2")


@dataclass(frozen=True, slots=True)
class TakenOver:
    """Page, and Describe's rows of its figures: `failed` for those without a description."""

    page: PageRecord
    descriptions: tuple[FigureRecord, ...]


@dataclass(slots=True)
class _Problems:
    """Violations in a row, first reason first."""

    found: list[tuple[Reason, str]] = field(default_factory=list)

    def add(self, reason: Reason, detail: str) -> None:
        self.found.append((reason, detail))

    @property
    def reason(self) -> Reason | None:
        return self.found[0][0] if self.found else None

    @property
    def detail(self) -> str:
        return "; ".join(detail for _, detail in self.found)


@dataclass(frozen=True, slots=True)
class _Crop:
    """Figure, its original id, and its description; empty without one."""

    figure: Figure
    old_id: str
    description: str


def described(entry: object) -> bool:
    """Return whether an entry of the figures' metadata has a description."""
    return bool(_description(_metadata(entry) or {}))


def page_of(part: DocumentPart, index: int, row: Row) -> TakenOver:
    """Return the page of a row; `index` is its dataset index. Never raises for any row content."""
    number = part.pages[0]
    page = page_id(part.document_id, number)
    problems = _Problems()
    image = _image(row.get(IMAGE))
    if image is None:
        problems.add(Reason.UNREADABLE, "the row has no readable page image")
    markdown = row.get(MARKDOWN)
    markdown = markdown if isinstance(markdown, str) else ""
    if not markdown.strip():
        problems.add(Reason.EMPTY, "the row has no Markdown")
    crops = _crops(page, row, image, problems)
    usable = image is not None or bool(markdown.strip())
    record = PageRecord(
        page_id=page,
        document_id=part.document_id,
        source=part.source,
        page_number=number,
        dataset_index=index,
        status=_status(problems) if usable else Status.FAILED,
        reason=problems.reason,
        detail=problems.detail,
        engine=ENGINE,
        text_source="model",
        blank=not markdown.strip() and not crops,
        image=image,
        markdown=_relinked(markdown, {crop.old_id: crop.figure.id for crop in reversed(crops)}),
        blocks=tuple(_block(crop.figure) for crop in crops),
        figures=tuple(crop.figure for crop in crops),
    )
    return TakenOver(record, tuple(_described(record, crop) for crop in crops))


def unreadable(part: DocumentPart, index: int, detail: str) -> TakenOver:
    """Return the page of a missing row."""
    record = PageRecord(
        page_id=page_id(part.document_id, part.pages[0]),
        document_id=part.document_id,
        source=part.source,
        page_number=part.pages[0],
        dataset_index=index,
        status=Status.FAILED,
        reason=Reason.NOT_FOUND,
        detail=detail,
        engine=ENGINE,
    )
    return TakenOver(record, ())


def _status(problems: _Problems) -> Status:
    return Status.DEGRADED if problems.found else Status.OK


def _crops(page: str, row: Row, image: EncodedImage | None, problems: _Problems) -> list[_Crop]:
    pictures, entries = _items(row.get(FIGURES)), _items(row.get(METADATA))
    if len(pictures) != len(entries):
        problems.add(Reason.MALFORMED, f"{len(pictures)} figures with {len(entries)} descriptions of figures")
    crops: list[_Crop] = []
    for number, picture in enumerate(pictures, 1):
        crop = _image(picture)
        if crop is None:
            problems.add(Reason.UNREADABLE, f"figure {number} is not a readable image")
            continue
        about = _metadata(entries[number - 1]) if number <= len(entries) else {}
        if about is None:
            problems.add(Reason.MALFORMED, f"the metadata of figure {number} is damaged")
        crops.append(_crop(figure_id(page, len(crops) + 1), number, crop, row, about or {}, image, problems))
    return crops


def _crop(
    new_id: str,
    number: int,
    crop: EncodedImage,
    row: Row,
    about: Mapping[str, Any],
    image: EncodedImage | None,
    problems: _Problems,
) -> _Crop:
    box = _box(about.get("bounding_box_pixels"), image)
    if box is None and about and image is not None:
        problems.add(Reason.MALFORMED, f"the box of figure {number} is damaged")
    given = about.get("figure_id")
    old_id = given if isinstance(given, str) and given else f"{row.get(ID)}_fig{number:02d}"
    label = about.get("label")
    figure = Figure(new_id, label if isinstance(label, str) else "", box or _PAGE, crop)
    return _Crop(figure, old_id, _description(about))


def _items(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _metadata(entry: object) -> Mapping[str, Any] | None:
    """Parse an entry of the metadata, which is JSON; None if it is damaged."""
    if isinstance(entry, str):
        try:
            entry = json.loads(entry)
        except (ValueError, RecursionError):
            return None
    return entry if isinstance(entry, Mapping) else None


def _description(about: Mapping[str, Any]) -> str:
    text = about.get("description")
    return text.strip() if isinstance(text, str) else ""


def _box(corners: object, image: EncodedImage | None) -> Box | None:
    """Return the box, relative to the page; None if it is unknown."""
    if image is None or not isinstance(corners, Mapping):
        return None
    sides = [corners.get(name) for name in _CORNERS]
    numbers = [float(side) for side in sides if isinstance(side, int | float) and math.isfinite(side)]
    if len(numbers) < len(_CORNERS):
        return None
    return Box(*numbers).scaled(1 / image.width, 1 / image.height).clipped()


def _image(value: object) -> EncodedImage | None:
    """Return the unmodified bytes, with type and size from their header; None for other types than PNG, JPEG, or WebP.

    A path without bytes gives None: files that a dataset names are not opened.
    """
    from PIL import Image

    data = value.get("bytes") if isinstance(value, Mapping) else value
    if not isinstance(data, bytes):
        return None
    media_type = next((kind for sign, kind in _SIGNS.items() if data.startswith(sign)), "")
    if not media_type:
        return None
    try:
        with Image.open(io.BytesIO(data), formats=("PNG", "JPEG", "WEBP")) as opened:
            return EncodedImage(data, media_type, opened.width, opened.height)
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError):
        return None


def _relinked(markdown: str, new_ids: Mapping[str, str]) -> str:
    """Replace the figure ids in links: `![id](figure:id)`, and the older `![Figure id](path)`."""

    def link(match: re.Match[str]) -> str:
        old = target_id(match["target"])
        if old is None:
            alt = unescape(match["alt"])
            old = alt.removeprefix(_LEGACY).strip() if alt.startswith(_LEGACY) else None
        return figure_link(new_ids[old]) if old is not None and old in new_ids else match[0]

    return IMAGE_LINK.sub(link, markdown) if new_ids else markdown


def _block(figure: Figure) -> Block:
    return Block(BlockKind.FIGURE, figure.box, label=figure.label, figure_id=figure.id)


def _described(record: PageRecord, crop: _Crop) -> FigureRecord:
    found = bool(crop.description)
    return FigureRecord(
        figure_id=crop.figure.id,
        page_id=record.page_id,
        document_id=record.document_id,
        status=Status.OK if found else Status.FAILED,
        mode="describe",
        reason=None if found else Reason.EMPTY,
        detail="" if found else "the dataset has no description of the figure",
        description=crop.description,
        engine=ENGINE,
    )


# Imported descriptions: Describe with `input` requests only the missing ones, as the predecessor does. They are in
# a file on the local disk, because the order of their figures is unknown.


_MODE = "describe"


async def keeping(job: Job[FigureCommand], ready: Describing) -> Describing:
    """Return `ready`, extended by the descriptions of the command's input, if there are any in the requested mode.

    Without `input`, all figures are described again.
    """
    settings = job.settings
    if not (isinstance(settings, InputSettings) and settings.input) or settings.describe_mode != _MODE:
        return ready
    key = await asyncio.to_thread(_imported_key, job.workspace)
    if not key:
        return ready
    kept = await asyncio.to_thread(_Kept, job.workspace, key)

    async def close() -> None:
        kept.close()
        await ready.close()

    return replace(ready, reader=_KeepingReader(ready.reader, kept, key), close=close)


def _imported_key(workspace: Workspace) -> str:
    """Return the key of the imported descriptions; empty without any."""
    for one in stage_keys(workspace, DESCRIBE):
        if one.settings.get("imported", {}).get("described"):
            return one.key
    return ""


class _Kept:
    """Imported descriptions by figure id."""

    def __init__(self, workspace: Workspace, key: str) -> None:
        self._path: Path = workspace.spool / "kept.sqlite"
        self._path.unlink(missing_ok=True)
        self._table = sqlite3.connect(self._path, check_same_thread=False)  # one thread at a time: first this one
        self._table.execute("CREATE TABLE kept (figure TEXT PRIMARY KEY, engine TEXT, description TEXT) WITHOUT ROWID")
        with self._table:
            for marker in iter_markers(workspace, DESCRIBE, key):
                if marker.figures.ok:
                    records = figures_from_parquet(io.BytesIO(read_data(workspace, marker)))
                    self._table.executemany(
                        "INSERT OR IGNORE INTO kept VALUES (?, ?, ?)",
                        [(one.figure_id, one.engine, one.description) for one in records if one.status is Status.OK],
                    )

    def find(self, figure: str) -> tuple[str, str] | None:
        """Return engine and description."""
        found: tuple[str, str] | None = self._table.execute(
            "SELECT engine, description FROM kept WHERE figure = ?", (figure,)
        ).fetchone()
        return found

    def close(self) -> None:
        self._table.close()
        self._path.unlink(missing_ok=True)


class _KeepingReader:
    """Requests descriptions that are not imported from the reader."""

    def __init__(self, reader: FigureReader, kept: _Kept, key: str) -> None:
        self._reader = reader
        self._kept = kept
        self._key = key

    @property
    def name(self) -> str:
        """Name of the reader."""
        return self._reader.name

    def identity(self) -> Mapping[str, Any]:
        """Return the reader's identity, extended by the imported key."""
        return {**self._reader.identity(), "kept": self._key}

    async def describe(
        self, figure: Figure, page_id: str, document_id: str, on_dispatched: Callable[[], None] = noop
    ) -> FigureRecord:
        """Return the imported description, otherwise the reader's."""
        found = self._kept.find(figure.id)
        if found is None:
            return await self._reader.describe(figure, page_id, document_id, on_dispatched)
        engine, description = found
        return FigureRecord(
            figure_id=figure.id,
            page_id=page_id,
            document_id=document_id,
            status=Status.OK,
            mode=_MODE,
            description=description,
            engine=engine,
        )

    async def close(self) -> None:
        """Close the reader."""
        await self._reader.close()


# Import of a dataset that the predecessor wrote: its rows become pages of the workspace, as if Extract had run here.
# The plan comes first, with a document for each row. Then the pages are imported by units, with the descriptions, if
# any, under a separate Describe key. Everything is published as by a stage, so an interrupted import continues, and a
# finished one does nothing.


#: Increased when the same rows give other pages.
RESULT_VERSION = 1
#: Pages of a unit.
PAGES_PER_UNIT = 64
#: Units that are written while the next is read; each needs several times its images in memory.
_SIDE_BY_SIDE = 1
#: Name of the import in progress and messages.
STAGE = "import"


async def take_over(job: Job[InputCommand], dataset: InputDataset) -> None:
    """Import the missing part of the dataset: this worker's share first, then the units that others have not finished.

    Raises:
        WorkspaceMismatch: the workspace has other pages.
    """
    workspace, progress = job.workspace, job.progress
    with InputRows(dataset, workspace.spool) as rows:
        imported = await asyncio.to_thread(into, workspace, dataset)
        if imported is None:
            imported = await _planned(workspace, dataset, rows, progress)
        keys = await asyncio.to_thread(_claimed, workspace, imported)
        todo = await asyncio.to_thread(_begin, job, keys, progress)
        if todo is None:
            return
        importer = _Importer(workspace, dataset, rows, keys)
        slots = asyncio.Semaphore(_SIDE_BY_SIDE)

        async def published(unit: Unit, pages: list[TakenOver]) -> None:
            try:
                await asyncio.to_thread(importer.publish, unit, pages)
            finally:
                slots.release()
            for one in pages:
                progress.count(one.page.status)

        async with asyncio.TaskGroup() as tasks:
            async for unit in stepwise(todo):
                await slots.acquire()
                tasks.create_task(published(unit, await asyncio.to_thread(importer.read, unit)))
    progress.end()


@dataclass(frozen=True, slots=True)
class _Keys:
    """Keys of an import; `describe` is empty without descriptions."""

    extract: str
    describe: str

    def done(self, workspace: Workspace, unit: str) -> bool:
        # Extract's marker is the last: it shows that both are published.
        return is_done(workspace, EXTRACT, self.extract, unit)


def _claimed(workspace: Workspace, imported: Mapping[str, Any]) -> _Keys:
    """Claim the keys. A dataset without figures counts as described."""
    extract = claim_key(workspace, EXTRACT, {"imported": dict(imported)})
    if imported["figures"] and not imported["described"]:
        return _Keys(extract, "")
    return _Keys(extract, claim_key(workspace, DESCRIBE, {"extract": extract, "imported": dict(imported)}))


@dataclass(slots=True)
class _Survey:
    """Summary of a dataset's rows, from their texts alone."""

    dataset: InputDataset
    rows: int = 0
    figures: int = 0
    described: int = 0
    _seen: set[bytes] = field(default_factory=set)  # 8 bytes of a hash of each id

    def documents(self, file: InputFile, first: int, batch: list[dict[str, Any]]) -> list[PlannedDocument]:
        """Return the documents of a batch of rows that begins at row `first` of the file."""
        return [self._document(file, first + at, row) for at, row in enumerate(batch)]

    def _document(self, file: InputFile, number: int, row: Row) -> PlannedDocument:
        given = row.get(METADATA)
        entries = given if isinstance(given, list) else []
        self.figures += len(entries)
        self.described += sum(map(described, entries))
        given = row.get(ID)
        name = given if isinstance(given, str) and given.strip() else f"row_{self.rows:05d}"
        self.rows += 1
        plain = self._unique(f"{file.split}-{name}" if file.split else name)
        address = f"{self.dataset.name(file)}#{number}"
        relative = f"{file.split}/{name}" if file.split else name
        version = hashlib.sha256(f"{self.dataset.version}\0{file.key}\0{number}".encode()).hexdigest()[:16]
        return PlannedDocument(address, relative, version, plain, (1,), 1)

    def _unique(self, name: str) -> str:
        """Return the id, with a number appended if an earlier row has the same id."""
        chosen, count = name, 1
        while (digest := hashlib.sha256(chosen.encode("utf-8", "surrogatepass")).digest()[:8]) in self._seen:
            count += 1
            chosen = f"{name}-{count}"
        self._seen.add(digest)
        return chosen


async def _planned(
    workspace: Workspace, dataset: InputDataset, rows: InputRows, progress: Progress
) -> Mapping[str, Any]:
    """Write the plan; return the import's entry for the keys. The key comes first, to mark the plan as an import."""
    progress.say(f"Input: {dataset.url} (version {dataset.version[:12]})")
    survey = _Survey(dataset)
    with Planner(workspace, pages_per_unit=PAGES_PER_UNIT) as planner:
        for file in dataset.files:
            first = 0
            async for batch in stepwise(rows.texts(file)):
                for document in survey.documents(file, first, batch):
                    planner.add(document)
                first += len(batch)
        if not survey.rows:
            raise UsageError(f"`input={dataset.url}` has no rows", hint="First run Extract of the predecessor.")
        imported = {
            "from": dataset.url,
            "version": dataset.version,
            "figures": survey.figures,
            "described": survey.described,
            "result_version": RESULT_VERSION,
        }
        await asyncio.to_thread(_claimed, workspace, imported)
        if not await asyncio.to_thread(generations, workspace):
            await asyncio.to_thread(planner.finish)
    known = f"{survey.described} of {survey.figures} figures described" if survey.figures else "no figures"
    progress.say(f"Input: {plural(survey.rows, 'page')}, {known}")
    return imported


def _begin(job: Job[InputCommand], keys: _Keys, progress: Progress) -> Iterator[Unit] | None:
    """Return the missing units, from this worker's share on and then from the start; None if there are none."""
    workspace = job.workspace
    done = Counts()
    finished = set[str]()
    for marker in iter_markers(workspace, EXTRACT, keys.extract):
        done += marker.counts
        finished.add(marker.unit)
    expected = total = 0
    for unit in read_units(workspace):
        expected += unit.expected
        total += 1
    if len(finished) >= total:
        return None
    progress.begin(STAGE, expected, done)
    start = _start(job, total)
    return (
        unit
        for later in (False, True)
        for place, unit in enumerate(read_units(workspace))
        if (place < start) is later and unit.id not in finished and not keys.done(workspace, unit.id)
    )


def _start(job: Job[InputCommand], total: int) -> int:
    """Return this worker's first unit: workers that start together must not process the same units."""
    index, count = job.settings.shard_index, job.settings.shard_count
    if count > 1 or isinstance(job.workspace.store, LocalStore):
        return int(total * index // count)
    return random.randrange(total)


class _Importer:
    """Converts units to published rows."""

    def __init__(self, workspace: Workspace, dataset: InputDataset, rows: InputRows, keys: _Keys) -> None:
        self._workspace = workspace
        self._rows = rows
        self._keys = keys
        self._files = {dataset.name(file): file for file in dataset.files}
        self._url = dataset.url

    def read(self, unit: Unit) -> list[TakenOver]:
        """Return the unit's pages. Not thread-safe."""
        return [page for run in self._runs(unit) for page in self._pages(*run)]

    def publish(self, unit: Unit, pages: list[TakenOver]) -> None:
        """Publish the descriptions, then the pages."""
        records = [one.page for one in pages]
        summary = pages_summary(unit, records)
        if self._keys.describe:
            figures = [record for one in pages for record in one.descriptions]
            about = figures_summary(summary.figures.expected, figures)
            publish(self._workspace, DESCRIBE, self._keys.describe, unit.id, figures_to_parquet(figures), about)
        publish(self._workspace, EXTRACT, self._keys.extract, unit.id, pages_to_parquet(records), summary)
        release_memory()

    def _runs(self, unit: Unit) -> Iterator[tuple[InputFile, int, list[DocumentPart]]]:
        """Yield parts whose rows are consecutive in a file, with the first row's number."""
        places = [(*self._place(part), part) for part in unit.parts]
        for (file, offset), group in groupby(enumerate(places), key=lambda one: (one[1][0], one[1][1] - one[0])):
            members = list(group)
            yield file, offset + members[0][0], [part for _, (_, _, part) in members]

    def _place(self, part: DocumentPart) -> tuple[InputFile, int]:
        name, _, row = part.source.rpartition("#")
        if name not in self._files or not row.isdecimal():
            raise codec.damaged(f"the plan of {self._workspace.url}", f"{self._url} has no row {part.source}")
        return self._files[name], int(row)

    def _pages(self, file: InputFile, first: int, parts: list[DocumentPart]) -> Iterator[TakenOver]:
        rows = self._rows.rows(file, first, first + len(parts))
        for part in parts:
            row = next(rows, None)
            index = part.index_of(0)
            yield unreadable(part, index, "no such row") if row is None else page_of(part, index, row)
