"""Describe figures without a model: report the sentences inside a figure."""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any

from llm_ocr.engines import noop
from llm_ocr.errors import UsageError
from llm_ocr.types import EncodedImage, Figure, FigureRecord, Status

#: Returns the text inside a picture, one line per row; "" without text.
ReadInside = Callable[[EncodedImage], Awaitable[str]]

#: Modes of the Describe stage; this engine supports only the first.
MODES = ("describe", "parse", "classify")
_RESULT = 2  # increased when the description of the same figure changes
_LONGEST_INSIDE = 1000  # characters
_NO_SENTENCES = "no sentences inside"

#: Beginning of a description that is text inside the figure.
INSIDE = "Text inside the figure: "
# Fewest words of a row of prose. Labels of axes, legends, and parts have fewer words, or no end mark follows.
_ROW_WORDS = 5
_END_MARK = re.compile(r"[.!?…。！？][\"'”’»)\]]*$")
_WORD = re.compile(r"[^\W\d_]{2,}")
# Scripts without spaces between words (Chinese, Japanese, Thai): two characters are about one word.
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff]")


class EmbeddedFigureReader:
    """`FigureReader` without a model: quotes sentences inside the figure.

    The caption is text of the page and is not repeated. All text inside the figure is in the record's `data`, as
    `{"inside": text}` with one line per row.
    """

    def __init__(
        self,
        mode: str = "describe",
        prompt: str = "",
        read_inside: ReadInside | None = None,
        ocr_models: Mapping[str, str] | None = None,
    ) -> None:
        """Configure the reader.

        Args:
            mode: Must be `describe`.
            prompt: Must be empty, because no model would use it.
            read_inside: Reads figures whose text Extract does not have (pictures in PDFs).
            ocr_models: See `EmbeddedReader.ocr_models`.

        Raises:
            UsageError: Another mode, or a prompt.
        """
        if mode != MODES[0]:
            raise UsageError(
                f"the embedded engine cannot {mode} figures: it has no vision model",
                hint="Use `describe_mode=describe`.",
            )
        if prompt:
            raise UsageError(
                "the embedded engine does not use a prompt for figures: it has no vision model",
                hint="Remove `describe_prompt`.",
            )
        self._read_inside = read_inside
        self._ocr_models = ocr_models or {}

    @property
    def name(self) -> str:
        """Name stored with each figure."""
        return "embedded"

    def identity(self) -> Mapping[str, Any]:
        """Return the settings that change the descriptions."""
        return {
            "engine": self.name,
            "mode": MODES[0],
            "reads_inside": self._read_inside is not None,
            "result": _RESULT,
            **self._ocr_models,
        }

    async def describe(
        self, figure: Figure, page_id: str, document_id: str, on_dispatched: Callable[[], None] = noop
    ) -> FigureRecord:
        """Describe a figure; always `ok`. A detail explains an empty description."""
        started = perf_counter()
        inside = figure.inside
        if not (figure.described or inside) and self._read_inside is not None:
            inside = await self._read_inside(figure.image)
        description = figure.described or sentences_inside(inside)
        return FigureRecord(
            figure_id=figure.id,
            page_id=page_id,
            document_id=document_id,
            status=Status.OK,
            mode=MODES[0],
            detail="" if description else _NO_SENTENCES,
            description=description,
            data=_data(inside),
            engine=self.name,
            seconds=perf_counter() - started,
        )

    async def close(self) -> None:
        """Do nothing: there are no resources."""


def sentences_inside(inside: str) -> str:
    """Return the prose inside a figure as a description; "" without prose.

    Prose is rows of at least five words up to a row with an end mark, which may be shorter. Tick marks, labels,
    legends, and recognition errors have no such rows. Without the drawing, they are not readable.
    """
    prose: list[str] = []
    passage: list[str] = []
    for row in (" ".join(line.split()) for line in inside.splitlines()):
        ends = bool(_END_MARK.search(row))
        passage = [*passage, row] if _words(row) >= _ROW_WORDS or (passage and ends) else []
        if passage and ends:
            prose += passage
            passage = []
    return f"{INSIDE}{_shortened(' '.join(prose))}" if prose else ""


def _words(row: str) -> int:
    return len(_WORD.findall(_UNSPACED.sub(" ", row))) + len(_UNSPACED.findall(row)) // 2


def _data(inside: str) -> str:
    return json.dumps({"inside": inside.strip()}, ensure_ascii=False) if inside.strip() else ""


# Descriptions of older versions repeat the caption and list all text inside the figure.
_OLD = re.compile(r'(?:Caption: ".*?")?(?: ?Text inside the figure: "(?P<inside>.*)")?', re.DOTALL)


def current_form(record: FigureRecord) -> FigureRecord:
    """Return a row of Describe of an older version in the form of this version; other rows unchanged."""
    old = None if record.data or not record.description else _OLD.fullmatch(record.description)
    if old is None:
        return record
    inside = (old["inside"] or "").replace("; ", "\n")
    return replace(record, description=sentences_inside(inside), data=_data(inside))


def known_text(caption: str, inside: str) -> str:
    """Return `Caption: "…" Text inside the figure: "…"` for a model's prompt, without unknown parts.

    Rows are joined by `; `.
    """
    rows = [" ".join(row.split()) for row in inside.splitlines()]
    parts = {
        "Caption": " ".join(caption.split()),
        "Text inside the figure": _shortened("; ".join(row for row in rows if row)),
    }
    return " ".join(f'{name}: "{text}"' for name, text in parts.items() if text)


def _shortened(text: str) -> str:
    if len(text) <= _LONGEST_INSIDE:
        return text
    cut = text.rfind(" ", 0, _LONGEST_INSIDE)
    return text[: cut if cut > 0 else _LONGEST_INSIDE].rstrip("; ") + " …"
