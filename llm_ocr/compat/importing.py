"""Import a dataset of the predecessor as pages of a workspace, as if Extract had run here.

The plan comes first, with a document for each row. Then the pages are imported by units, with the descriptions, if any,
under a separate Describe key. Everything is published as by a stage: an interrupted import continues, and a finished
one does nothing.
"""

import asyncio
import contextlib
import hashlib
import io
import json
import math
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
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
from llm_ocr.config.models import InputCommand
from llm_ocr.errors import UsageError
from llm_ocr.results.markdown import IMAGE as IMAGE_LINK
from llm_ocr.results.markdown import figure_link, target_id, unescape
from llm_ocr.results.schema import figures_from_parquet, figures_to_parquet, pages_to_parquet, release_memory
from llm_ocr.stages import Progress
from llm_ocr.stages.job import Job
from llm_ocr.stages.loop import stepwise
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
from llm_ocr.workspace.publish import find_marker, is_done, iter_markers, publish, read_data
from llm_ocr.workspace.summaries import figures_summary, pages_summary

#: Engine of imported rows.
ENGINE = "predecessor"

#: Only mode of the predecessor's descriptions.
_MODE = "describe"
_WHOLE_PAGE = Box(0.0, 0.0, 1.0, 1.0)
_LEGACY = "Figure "
_SIGNS = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"RIFF": "image/webp"}
_CORNERS = ("x1", "y1", "x2", "y2")


#: Page, and Describe's rows of its figures: `failed` for those without a description.
TakenOver = tuple[PageRecord, Sequence[FigureRecord]]


def page_of(part: DocumentPart, index: int, row: Row) -> TakenOver:
    """Return the page of a row; `index` is its dataset index. Never raises for any row content.

    Ids, links, and boxes get our form; all other values stay unchanged. A row that violates the predecessor's format is
    `degraded` if it has Markdown or an image, otherwise `failed`. `detail` has the violations, `reason` the first one.
    """
    number = part.pages[0]
    page = page_id(part.document_id, number)
    problems: list[tuple[Reason, str]] = []
    image = _image(row.get(IMAGE))
    if image is None:
        problems.append((Reason.UNREADABLE, "the row has no readable page image"))
    markdown = row.get(MARKDOWN)
    markdown = markdown if isinstance(markdown, str) else ""
    has_text = bool(markdown.strip())
    if not has_text:
        problems.append((Reason.EMPTY, "the row has no Markdown"))

    pictures, entries = _items(row.get(FIGURES)), _items(row.get(METADATA))
    if len(pictures) != len(entries):
        problems.append((Reason.MALFORMED, f"{len(pictures)} figures with {len(entries)} descriptions of figures"))
    figures: list[Figure] = []
    descriptions: list[FigureRecord] = []
    new_ids: dict[str, str] = {}
    for place, picture in enumerate(pictures, 1):
        crop = _image(picture)
        if crop is None:
            problems.append((Reason.UNREADABLE, f"figure {place} is not a readable image"))
            continue
        about = _metadata(entries[place - 1]) if place <= len(entries) else {}
        if about is None:
            problems.append((Reason.MALFORMED, f"the metadata of figure {place} is damaged"))
            about = {}
        box = _box(about.get("bounding_box_pixels"), image)
        if box is None and about and image is not None:
            problems.append((Reason.MALFORMED, f"the box of figure {place} is damaged"))
        label, old_id = about.get("label"), about.get("figure_id")
        figure = Figure(
            figure_id(page, len(figures) + 1), label if isinstance(label, str) else "", box or _WHOLE_PAGE, crop
        )
        figures.append(figure)
        # If figures share an id, links lead to the first of them.
        new_ids.setdefault(old_id if isinstance(old_id, str) and old_id else f"{row.get(ID)}_fig{place:02d}", figure.id)
        description = _description(about)
        descriptions.append(
            FigureRecord(
                figure_id=figure.id,
                page_id=page,
                document_id=part.document_id,
                status=Status.OK if description else Status.FAILED,
                mode=_MODE,
                reason=None if description else Reason.EMPTY,
                detail="" if description else "the dataset has no description of the figure",
                description=description,
                engine=ENGINE,
            )
        )

    def link(match: re.Match[str]) -> str:
        """Replace the id in a link: `![id](figure:id)`, and the older `![Figure id](path)`."""
        old = target_id(match["target"])
        if old is None:
            alt = unescape(match["alt"])
            old = alt.removeprefix(_LEGACY).strip() if alt.startswith(_LEGACY) else None
        return figure_link(new_ids[old]) if old is not None and old in new_ids else match[0]

    status = Status.DEGRADED if problems else Status.OK
    record = PageRecord(
        page_id=page,
        document_id=part.document_id,
        source=part.source,
        page_number=number,
        dataset_index=index,
        status=status if image is not None or has_text else Status.FAILED,
        reason=problems[0][0] if problems else None,
        detail="; ".join(detail for _, detail in problems),
        engine=ENGINE,
        text_source="model",
        blank=not has_text and not figures,
        image=image,
        markdown=IMAGE_LINK.sub(link, markdown) if new_ids else markdown,
        blocks=tuple(
            Block(BlockKind.FIGURE, figure.box, label=figure.label, figure_id=figure.id) for figure in figures
        ),
        figures=tuple(figures),
    )
    return record, descriptions


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


def imported_key(workspace: Workspace, mode: str) -> str:
    """Return the key of Describe with the imported descriptions; "" if there are none in this mode.

    With `input`, only the missing descriptions are requested, as the predecessor does. Without `input`, all figures are
    described again.
    """
    keys = stage_keys(workspace, DESCRIBE) if mode == _MODE else ()
    return next((key.key for key in keys if key.settings.get("imported", {}).get("described")), "")


def with_descriptions(
    workspace: Workspace, key: str, unit: str, pages: Iterable[PageRecord], *, keep: bool
) -> list[PageRecord]:
    """Return the pages of a unit with the imported descriptions of their figures.

    Args:
        workspace: the workspace.
        key: the key of the imported descriptions.
        unit: the unit. A repair, which was not imported, has none.
        pages: its pages.
        keep: whether other figures keep the description from when their page was read.
    """
    marker = find_marker(workspace, DESCRIBE, key, unit)
    data = read_data(workspace, marker) if marker and marker.figures.ok else None
    records = figures_from_parquet(io.BytesIO(data)) if data else ()
    known = {record.figure_id: record.description for record in records if record.status is Status.OK}

    def described(figure: Figure) -> Figure:
        return replace(figure, described=known.get(figure.id, figure.described if keep else ""))

    return [replace(page, figures=tuple(map(described, page.figures))) for page in pages]


#: Increased when the same rows give other pages.
RESULT_VERSION = 1
#: Pages of a unit.
PAGES_PER_UNIT = 64


async def take_over(job: Job[InputCommand], dataset: InputDataset) -> None:
    """Import the missing part of the dataset: this worker's share first, then the units that others have not finished.

    Raises:
        WorkspaceMismatch: the workspace has other pages.
    """
    workspace, progress = job.workspace, job.progress
    with contextlib.closing(InputRows(dataset, workspace.spool)) as rows:
        imported = await asyncio.to_thread(into, workspace, dataset)
        if imported is None:
            imported = await _planned(workspace, dataset, rows, progress)
        extract, describe = await asyncio.to_thread(_claimed, workspace, imported)
        missing = await asyncio.to_thread(_begin, job, extract, progress)
        if missing is None:
            return
        # One unit is written while the next is read; each needs several times its images in memory.
        slot = asyncio.Semaphore(1)

        async def published(unit: Unit, pages: list[TakenOver]) -> None:
            try:
                await asyncio.to_thread(_publish, workspace, extract, describe, unit, pages)
            finally:
                slot.release()
            for page, _ in pages:
                progress.count(page.status)

        async with asyncio.TaskGroup() as tasks:
            async for unit in stepwise(missing):
                await slot.acquire()
                tasks.create_task(published(unit, await asyncio.to_thread(_read, workspace, dataset, rows, unit)))
    progress.end()


def _claimed(workspace: Workspace, imported: Mapping[str, Any]) -> tuple[str, str]:
    """Claim the keys of Extract and Describe; the latter is empty without descriptions.

    A dataset without figures counts as described.
    """
    extract = claim_key(workspace, EXTRACT, {"imported": dict(imported)})
    if imported["figures"] and not imported["described"]:
        return extract, ""
    return extract, claim_key(workspace, DESCRIBE, {"extract": extract, "imported": dict(imported)})


async def _planned(
    workspace: Workspace, dataset: InputDataset, rows: InputRows, progress: Progress
) -> Mapping[str, Any]:
    """Write the plan; return the import's entry for the keys. The key comes first, to mark the plan as an import."""
    progress.say(f"Input: {dataset.url} (version {dataset.version[:12]})")
    pages = figures = described_figures = 0
    known_ids: set[bytes] = set()  # 8 bytes of a hash of each id
    with Planner(workspace, pages_per_unit=PAGES_PER_UNIT) as planner:
        for file in dataset.files:
            number = 0
            async for batch in stepwise(rows.texts(file)):
                for row in batch:
                    entries = _items(row.get(METADATA))
                    figures += len(entries)
                    described_figures += sum(bool(_description(_metadata(entry) or {})) for entry in entries)
                    given = row.get(ID)
                    name = given if isinstance(given, str) and given.strip() else f"row_{pages:05d}"
                    document_id = _unique(f"{file.split}-{name}" if file.split else name, known_ids)
                    address = f"{dataset.name(file)}#{number}"
                    relative = f"{file.split}/{name}" if file.split else name
                    version = hashlib.sha256(f"{dataset.version}\0{file.key}\0{number}".encode()).hexdigest()[:16]
                    planner.add(PlannedDocument(address, relative, version, document_id, (1,), 1))
                    pages += 1
                    number += 1
        if not pages:
            raise UsageError(f"`input={dataset.url}` has no rows", hint="First run Extract of the predecessor.")
        imported = {
            "from": dataset.url,
            "version": dataset.version,
            "figures": figures,
            "described": described_figures,
            "result_version": RESULT_VERSION,
        }
        await asyncio.to_thread(_claimed, workspace, imported)
        if not await asyncio.to_thread(generations, workspace):
            await asyncio.to_thread(planner.finish)
    known = f"{described_figures} of {figures} figures described" if figures else "no figures"
    progress.say(f"Input: {plural(pages, 'page')}, {known}")
    return imported


def _unique(name: str, known_ids: set[bytes]) -> str:
    """Return the id, with a number appended if an earlier row has the same id."""
    chosen, count = name, 1
    while (digest := hashlib.sha256(chosen.encode("utf-8", "surrogatepass")).digest()[:8]) in known_ids:
        count += 1
        chosen = f"{name}-{count}"
    known_ids.add(digest)
    return chosen


def _begin(job: Job[InputCommand], extract: str, progress: Progress) -> Iterator[Unit] | None:
    """Return the missing units, from this worker's share on and then from the start; None if there are none."""
    workspace, settings = job.workspace, job.settings
    done = Counts()
    finished = set[str]()
    for marker in iter_markers(workspace, EXTRACT, extract):
        done += marker.counts
        finished.add(marker.unit)
    expected = total = 0
    for unit in read_units(workspace):
        expected += unit.expected
        total += 1
    if len(finished) >= total:
        return None
    progress.begin("import", expected, done)
    # Workers that start together must not process the same units.
    if settings.shard_count > 1 or isinstance(workspace.store, LocalStore):
        start = int(total * settings.shard_index // settings.shard_count)
    else:
        start = random.randrange(total)
    # Extract's marker is the last of a unit: it shows that both results are published.
    return (
        unit
        for later in (False, True)
        for place, unit in enumerate(read_units(workspace))
        if (place < start) is later and unit.id not in finished and not is_done(workspace, EXTRACT, extract, unit.id)
    )


def _read(workspace: Workspace, dataset: InputDataset, rows: InputRows, unit: Unit) -> list[TakenOver]:
    """Return the unit's pages. Not thread-safe."""
    files = {dataset.name(file): file for file in dataset.files}
    places: list[tuple[InputFile, int, DocumentPart]] = []
    for part in unit.parts:
        name, _, number = part.source.rpartition("#")
        if name not in files or not number.isdecimal():
            raise codec.damaged(f"the plan of {workspace.url}", f"{dataset.url} has no row {part.source}")
        places.append((files[name], int(number), part))
    pages: list[TakenOver] = []
    # Rows that are consecutive in a file are read at once.
    for (file, _), group in groupby(enumerate(places), key=lambda place: (place[1][0], place[1][1] - place[0])):
        members = [member for _, member in group]
        first = members[0][1]
        consecutive = rows.rows(file, first, first + len(members))
        for _, _, part in members:
            row, index = next(consecutive, None), part.index_of(0)
            if row is not None:
                pages.append(page_of(part, index, row))
                continue
            missing = PageRecord(
                page_id=page_id(part.document_id, part.pages[0]),
                document_id=part.document_id,
                source=part.source,
                page_number=part.pages[0],
                dataset_index=index,
                status=Status.FAILED,
                reason=Reason.NOT_FOUND,
                detail="no such row",
                engine=ENGINE,
            )
            pages.append((missing, ()))
    return pages


def _publish(workspace: Workspace, extract: str, describe: str, unit: Unit, pages: list[TakenOver]) -> None:
    """Publish the descriptions, then the pages."""
    records = [page for page, _ in pages]
    summary = pages_summary(unit, records)
    if describe:
        figures = [record for _, descriptions in pages for record in descriptions]
        about = figures_summary(summary.figures.expected, figures)
        publish(workspace, DESCRIBE, describe, unit.id, figures_to_parquet(figures), about)
    publish(workspace, EXTRACT, extract, unit.id, pages_to_parquet(records), summary)
    release_memory()
