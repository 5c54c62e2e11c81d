"""Describe figures without a model: report the sentences inside a figure."""

from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any

from llm_ocr.engines import noop
from llm_ocr.engines.descriptions import MODES, data_inside, sentences_inside
from llm_ocr.errors import UsageError
from llm_ocr.types import EncodedImage, Figure, FigureRecord, Status

#: Returns the text inside a picture, one line per row; "" without text.
ReadInside = Callable[[EncodedImage], Awaitable[str]]

_RESULT = 2  # increased when the description of the same figure changes
_NO_SENTENCES = "no sentences inside"


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
            data=data_inside(inside),
            engine=self.name,
            seconds=perf_counter() - started,
        )
