"""Describe figures without a model: report the document's text about a figure."""

from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any

from llm_ocr.engines import noop
from llm_ocr.errors import UsageError
from llm_ocr.types import EncodedImage, Figure, FigureRecord, Status

#: Returns the text inside a picture, one line per row; "" without text.
ReadInside = Callable[[EncodedImage], Awaitable[str]]

#: Modes of the Describe stage; this engine supports only the first.
MODES = ("describe", "parse", "classify")
_RESULT = 1  # increased when the description of the same figure changes
_LONGEST_INSIDE = 1000  # characters
_NOTHING_KNOWN = "no caption and no text inside"


class EmbeddedFigureReader:
    """`FigureReader` without a model: quotes the caption and the text inside the figure."""

    def __init__(self, mode: str = "describe", prompt: str = "", read_inside: ReadInside | None = None) -> None:
        """Configure the reader.

        Args:
            mode: Must be `describe`.
            prompt: Must be empty, because no model would use it.
            read_inside: Reads figures whose text Extract does not have (pictures in PDFs).

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
        }

    async def describe(
        self, figure: Figure, page_id: str, document_id: str, on_dispatched: Callable[[], None] = noop
    ) -> FigureRecord:
        """Describe a figure; always `ok`. An empty description has a detail that nothing is known."""
        started = perf_counter()
        inside = figure.inside
        if not (figure.described or inside) and self._read_inside is not None:
            inside = await self._read_inside(figure.image)
        description = figure.described or known_text(figure.caption, inside)
        return FigureRecord(
            figure_id=figure.id,
            page_id=page_id,
            document_id=document_id,
            status=Status.OK,
            mode=MODES[0],
            detail="" if description else _NOTHING_KNOWN,
            description=description,
            engine=self.name,
            seconds=perf_counter() - started,
        )

    async def close(self) -> None:
        """Do nothing: there are no resources."""


def known_text(caption: str, inside: str) -> str:
    """Return `Caption: "…" Text inside the figure: "…"` without unknown parts; rows are joined by `; `."""
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
