"""From an attempt to a page's row: figures cropped, Markdown made, every outcome accounted for."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from llm_ocr.documents.remote.urls import shown
from llm_ocr.errors import PageFailure
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.results.quality.scoring import score
from llm_ocr.types import (
    Attempt,
    Block,
    BlockKind,
    Box,
    DocumentPart,
    EncodedImage,
    Figure,
    Page,
    PageRecord,
    Status,
    figure_id,
    page_id,
)


class Cropper(Protocol):
    """Cuts figures out of a page image."""

    async def crop(self, image: EncodedImage, boxes: Sequence[Box]) -> tuple[EncodedImage, ...]:
        """One image for each relative box, in order."""


async def finished_page(
    part: DocumentPart, position: int, page: Page, attempt: Attempt, cropper: Cropper, *, furniture: bool = False
) -> PageRecord:
    """The row of a page that was read. `position` is the page's place in `part.pages`.

    With `furniture`, running heads, feet and page numbers stand in the Markdown.
    """
    image = attempt.image or page.image
    blocks = _named_figures(page.id, attempt.blocks)
    figures = await _figures(blocks, image, cropper)
    # Some milliseconds of Python: the event loop has answers to read.
    quality = await asyncio.to_thread(score, page, attempt)
    return PageRecord(
        page_id=page.id,
        document_id=part.document_id,
        source=shown(part.source),
        page_number=page.number,
        dataset_index=part.index_of(position),
        status=attempt.status,
        reason=attempt.reason,
        detail=attempt.detail,
        engine=attempt.engine,
        text_source=attempt.source,
        rotation=attempt.rotation,
        blank=not blocks,
        image=image,
        markdown=blocks_to_markdown(blocks, furniture=furniture),
        blocks=blocks,
        figures=figures,
        tokens_in=attempt.tokens_in,
        tokens_out=attempt.tokens_out,
        seconds=attempt.seconds,
        probe=attempt.probe,
        attempts=attempt.tries or (_summary(attempt),),
        notes=attempt.notes,
        quality=quality.score,
        quality_parts=quality.parts,
    )


def failed_page(
    part: DocumentPart, position: int, failure: PageFailure, *, engine: str, image: EncodedImage | None = None
) -> PageRecord:
    """The row of a page that could not be read, or of a document that could not be opened."""
    number = part.pages[position] if part.pages else None
    only = {"status": Status.FAILED.value, "reason": failure.reason.value, "detail": failure.detail}
    return PageRecord(
        page_id=page_id(part.document_id, number),
        document_id=part.document_id,
        source=shown(part.source),
        page_number=number,
        dataset_index=part.index_of(position),
        status=Status.FAILED,
        reason=failure.reason,
        detail=failure.detail,
        engine=engine,
        image=image,
        tokens_in=sum(one.get("tokens_in", 0) for one in failure.tries),
        tokens_out=sum(one.get("tokens_out", 0) for one in failure.tries),
        seconds=sum(one.get("seconds", 0.0) for one in failure.tries),
        attempts=failure.tries or (only,),
    )


def _named_figures(page: str, blocks: Sequence[Block]) -> tuple[Block, ...]:
    named: list[Block] = []
    count = 0
    for block in blocks:
        if block.kind is BlockKind.FIGURE:
            count += 1
            block = replace(block, figure_id=figure_id(page, count))
        named.append(block)
    return tuple(named)


async def _figures(blocks: Sequence[Block], image: EncodedImage, cropper: Cropper) -> tuple[Figure, ...]:
    chosen = [block for block in blocks if block.kind is BlockKind.FIGURE]
    if not chosen:
        return ()
    crops = await cropper.crop(image, [block.box for block in chosen])
    return tuple(
        Figure(
            block.figure_id,
            block.label,
            block.box,
            crop,
            caption=block.caption,
            inside=block.inside,
            described=block.described,
        )
        for block, crop in zip(chosen, crops, strict=True)
    )


def _summary(attempt: Attempt) -> dict[str, Any]:
    return {
        "status": attempt.status.value,
        "reason": attempt.reason.value if attempt.reason else None,
        "source": attempt.source,
        "tokens_in": attempt.tokens_in,
        "tokens_out": attempt.tokens_out,
        "seconds": round(attempt.seconds, 4),
    }
