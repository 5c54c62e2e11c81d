"""One row of the predecessor's dataset as a page of ours: ids, links and boxes in our form, everything else as it was.

A row that is not as the predecessor writes it is `degraded` as long as its Markdown is there, else `failed`; what is
wrong with it stands in `detail`.
"""

import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llm_ocr.api.import_files import FIGURES, ID, IMAGE, MARKDOWN, METADATA, Row
from llm_ocr.results.figure_links import IMAGE as IMAGE_LINK
from llm_ocr.results.figure_links import figure_link, target_id, unescape
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

#: What stands for an engine in the rows.
ENGINE = "predecessor"

_PAGE = Box(0.0, 0.0, 1.0, 1.0)
_LEGACY = "Figure "
_SIGNS = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"RIFF": "image/webp"}
_CORNERS = ("x1", "y1", "x2", "y2")


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A page, and Describe's rows of its figures: `failed` for those without a description."""

    page: PageRecord
    descriptions: tuple[FigureRecord, ...]


@dataclass(slots=True)
class _Problems:
    """What is wrong with a row, the first reason first."""

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
    """A figure, what it was called there, and its description; None where there is none."""

    figure: Figure
    old_id: str
    description: str


def described(entry: object) -> bool:
    """Whether an entry of the figures' metadata has a description."""
    return bool(_description(_metadata(entry) or {}))


def page_of(part: DocumentPart, index: int, row: Row) -> TakenOver:
    """The page that a row makes; `index` is its dataset index. Never raises for what stands in the row."""
    number = part.pages[0]
    page = page_id(part.document_id, number)
    problems = _Problems()
    image = _image(row.get(IMAGE))
    if image is None:
        problems.add(Reason.UNREADABLE, "the row has no page image that can be read")
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
    """The page of a row that is not there."""
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
            problems.add(Reason.UNREADABLE, f"figure {number} is no image that can be read")
            continue
        about = _metadata(entries[number - 1]) if number <= len(entries) else {}
        if about is None:
            problems.add(Reason.MALFORMED, f"the metadata of figure {number} are damaged")
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
    """An entry of the metadata, which is JSON; None when it is damaged."""
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
    """The box, relative to the page; None when it cannot be told."""
    if image is None or not isinstance(corners, Mapping):
        return None
    sides = [corners.get(name) for name in _CORNERS]
    numbers = [float(side) for side in sides if isinstance(side, int | float) and math.isfinite(side)]
    if len(numbers) < len(_CORNERS):
        return None
    return Box(*numbers).scaled(1 / image.width, 1 / image.height).clipped()


def _image(value: object) -> EncodedImage | None:
    """The bytes as they are, with type and size from their head; None for what is no PNG, JPEG or WebP.

    A path without bytes is nothing: files that a dataset names are not opened.
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
    """The Markdown with our figures' ids in its links: `![id](figure:id)`, and the older `![Figure id](path)`."""

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
        detail="" if found else "the dataset has no description of it",
        description=crop.description,
        engine=ENGINE,
    )
