"""Pages as records of the dots.ocr batch pipeline, field by field: a line of JSON a page, failures apart."""

import json
from typing import Any, Literal

from llm_ocr.types import Block, BlockKind, EncodedImage, PageRecord, Status

#: What `content` holds: the page's Markdown; blocks with boxes and text as JSON; the same without text.
Content = Literal["markdown", "layout", "layout-only"]


def dots_record(page: PageRecord, content: Content = "markdown", *, model: str = "") -> dict[str, Any]:
    """One page. A degraded page is a success: it was read, if otherwise than asked for.

    `page` counts from 1 and is null for a document that could not be opened. `model` stands for pages that no model
    answered for. `latency` in seconds.
    """
    failed = page.status is Status.FAILED
    return {
        "document_id": page.document_id,
        "page": page.page_number,
        "page_index": page.page_number,
        "pdf_path": page.source,
        "model": page.engine or model,
        "success": not failed,
        "latency": round(page.seconds, 3),
        "usage": {} if failed else _usage(page),
        "content": None if failed else _content(page, content),
        "error": _error(page) if failed else None,
    }


def as_line(record: dict[str, Any]) -> str:
    """A record as one line, newline included."""
    return json.dumps(record, ensure_ascii=False) + "\n"


def _usage(page: PageRecord) -> dict[str, int]:
    return {
        "prompt_tokens": page.tokens_in,
        "completion_tokens": page.tokens_out,
        "total_tokens": page.tokens_in + page.tokens_out,
    }


def _error(page: PageRecord) -> str:
    reason = page.reason.value.replace(" ", "_") if page.reason else "failed"
    return f"{reason}: {page.detail}" if page.detail else reason


def _content(page: PageRecord, content: Content) -> str:
    if content == "markdown":
        return page.markdown
    blocks = [_block(block, page.image, text=content == "layout") for block in page.blocks]
    return json.dumps(blocks, ensure_ascii=False)


def _block(block: Block, image: EncodedImage | None, *, text: bool) -> dict[str, Any]:
    """As the model writes it: no text for pictures. The box is in pixels of the page's image as it was sent, which the
    model's own may differ from by a few, and text has none of its Markdown marks of headings.
    """
    width, height = (image.width, image.height) if image else (1000, 1000)
    box = block.box.scaled(width, height)
    value: dict[str, Any] = {
        "bbox": [round(side) for side in (box.x0, box.y0, box.x1, box.y1)],
        "category": block.label or block.kind.value,
    }
    if text and block.kind is not BlockKind.FIGURE:
        value["text"] = block.text
    return value
