"""Data of a page for the site."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm_ocr.results.balance import has_unread_ink, has_unsupported_text
from llm_ocr.results.dataset import DatasetRow
from llm_ocr.results.figure_text import figure_words
from llm_ocr.results.markdown import clean, one_line
from llm_ocr.types import BlockKind, Box, EncodedImage, FieldsRecord, Ledger, PageRecord
from llm_ocr.workspace.summaries import RANKS
from llm_ocr_outputs.places import Unsupported, lines_of_blocks, unsupported_texts
from llm_ocr_outputs.viewer.index import visible_text
from llm_ocr_outputs.viewer.rendering import Places, render, render_unsupported

#: Characters of a page's text in its row of the list.
EXCERPT = 240
#: Upper limit of characters shown of an attempt's detail.
_DETAIL = 4000


@dataclass(frozen=True, slots=True)
class PageView:
    """Reading of a page. `name` is the document's path below its source root, `total` its pages (0: unknown).

    `readings` has all rows of a page that was read again, oldest first. `fields` is the row of its document,
    whose first page is `first`.
    """

    row: DatasetRow
    name: str
    total: int
    html: str
    text: str
    unsupported: Sequence[Unsupported] = ()
    readings: Sequence[PageRecord] = ()
    fields: FieldsRecord | None = None
    first: int = 1

    @property
    def record(self) -> PageRecord:
        """Row of Extract."""
        return self.row.record

    @property
    def quality(self) -> float | None:
        """Quality score 0..1; None without a score."""
        value = self.record.quality
        return None if value is None else round(value, 4)


def page_view(
    row: DatasetRow,
    name: str,
    total: int,
    readings: Sequence[PageRecord] = (),
    fields: FieldsRecord | None = None,
    first: int = 1,
) -> PageView:
    """Render a page. `readings` has all its rows if it was read again; `fields` and `first` as in `PageView`."""
    markdown = clean(row.final_markdown)
    figures = {clean(figure.id): place for place, figure in enumerate(row.record.figures)}
    places = Places(lines_of_blocks(markdown, row.record.blocks), figures)
    unsupported = unsupported_texts(row, markdown)
    html = render_unsupported(markdown, places, unsupported) if unsupported else render(markdown, places)
    return PageView(row, name, total, html, visible_text(html), unsupported, readings, fields, first)


def badness(view: PageView) -> float:
    """Return the sort key, worst first: by status, then by ink and text unaccounted for, then by quality.

    This is the order in which a repair chooses pages and keeps rows. The shares count in steps of 0.01 %.
    """
    record = view.record
    imbalance = record.ledger.imbalance if record.ledger else 0.0
    quality = 1.0 if view.quality is None else view.quality
    return 10.0 * RANKS.index(record.status) - round(imbalance, 4) + 1e-5 * quality


def flags(view: PageView) -> str:
    """Return a page's properties: t(able), f(igure), m(ath), b(lank), r: fallback, u(nread), x: unsupported text."""
    record = view.record
    kinds = {block.kind for block in record.blocks}
    has = {
        "t": BlockKind.TABLE in kinds or "<table" in view.html,
        "f": bool(record.figures),
        "m": 'class="math' in view.html,
        "b": record.blank,
        "r": record.is_fallback,
        "u": has_unread_ink(record.ledger, record.reason),
        "x": has_unsupported_text(record.ledger, record.reason),
    }
    return "".join(flag for flag, holds in has.items() if holds)


def page_content(view: PageView, images: Mapping[str, str]) -> dict[str, Any]:
    """Return the data of the opened page; `images` has the files of the page (key "") and of its figures."""
    record, figures = view.record, view.row.figures
    return {
        "source": record.source,
        "total": view.total,
        "detail": record.detail[:_DETAIL],
        "textSource": record.text_source,
        "tokens": [record.tokens_in, record.tokens_out],
        "seconds": round(record.seconds, 3),
        "probe": record.probe,
        "rotation": record.rotation,
        "attempts": [_pairs(attempt) for attempt in record.attempts],
        "readings": [_reading(reading) for reading in view.readings],
        "notes": _pairs(record.notes),
        "quality": [[name, round(share, 4)] for name, share in record.quality_parts.items()],
        "image": _image(record.image, images.get("")),
        "ledger": _ledger(record.ledger, record.invisible_chars),
        "unread": _boxes(record.ledger.unread) if record.ledger else [],
        "unsupported": [[text.block, *_utf16(clean(view.row.final_markdown), text)] for text in view.unsupported],
        "blocks": [[block.kind.value, block.label, _boxes([block.box, *block.continued])] for block in record.blocks],
        "figures": [
            {
                "image": _image(figure.image, images.get(figure.id)),
                "label": figure.label,
                "caption": figure.caption,
                "description": one_line(figure_words(described)) if (described := figures.get(figure.id)) else "",
            }
            for figure in record.figures
        ],
        "fields": _fields(view),
        "html": view.html,
        "markdown": view.row.final_markdown,
    }


def _fields(view: PageView) -> list[list[Any]]:
    """Return path, value, quote, whether it is true, and box of the fields of a page.

    Fields without a page are shown with the first page.
    """
    number = view.record.page_number or 1
    return [
        [one["path"], _short(one["value"]), one["quote"][:_DETAIL], one["quoted"], box and _boxes([Box(**box)])[0]]
        for one in (view.fields.fields if view.fields else ())
        if (one["page"] or view.first) == number
        for box in [one["box"]]
    ]


def _short(value: Any) -> str:
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))[:_DETAIL]


def _ledger(ledger: Ledger | None, invisible: int) -> list[Any] | None:
    """Return the shares of ink, unread ink, unsupported text, and furniture, the invisible characters, the evidence."""
    if ledger is None:
        return None
    shares = (ledger.ink, ledger.unread_share, ledger.unsupported_share, ledger.furniture_share)
    return [*(round(share, 4) for share in shares), invisible, ledger.verified_by]


def _utf16(markdown: str, text: Unsupported) -> list[int | None]:
    """Return the place of a text in UTF-16, as JavaScript counts."""
    ends = (text.start, text.end)
    return [None if end is None else len(markdown[:end].encode("utf-16-le")) // 2 for end in ends]


def _image(image: EncodedImage | None, file: str | None) -> list[Any] | None:
    return [file, image.width, image.height] if image and file else None


def _boxes(boxes: Sequence[Box]) -> list[list[float]]:
    clipped = [box.clipped() for box in boxes]
    return [[round(side, 4) for side in (box.x0, box.y0, box.x1, box.y1)] for box in clipped]


def _reading(record: PageRecord) -> list[list[str]]:
    """Return result and settings of one of several readings of a page."""
    last = record.attempts[-1] if record.attempts else {}
    quality = None if record.quality is None else round(record.quality, 2)
    values = {"status": record.status.value, "reason": record.reason and record.reason.value, "quality": quality}
    values |= {"engine": record.engine, "text from": record.text_source}
    return _pairs({**values, "settings": last.get("settings"), "repair": last.get("repair")})


def _pairs(values: Mapping[str, Any]) -> list[list[str]]:
    """Return keys and values as texts; the keys are the engines', so they are not used as object keys."""
    texts = {
        str(name): value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in values.items()
        if value not in (None, "", [])
    }
    return [[name, text[:_DETAIL]] for name, text in texts.items()]
