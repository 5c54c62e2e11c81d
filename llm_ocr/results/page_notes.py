"""What is known of a page beside its text, as the dataset shows it: the model's word, else what its blocks show."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from llm_ocr.types import Block, BlockKind, PageRecord

#: More than this share of a page's text or area makes it a page of tables, or of diagrams.
MOST = 0.5
#: Figures with one of these labels are drawings that say something, not pictures.
_DRAWN = frozenset({"chart", "diagram", "flowchart", "graph", "plot"})
_TAG = re.compile(r"<[^<>]*>")


def page_notes(record: PageRecord) -> dict[str, Any]:
    """The dataset's columns primary_language, is_rotation_valid, rotation_correction, rotation, is_table, is_diagram,
    is_fallback; None for what is not known.

    `primary_language` is what the model says, None for models and engines that do not say it.
    `is_rotation_valid` and `rotation_correction` are the model's verdict on the page as it was read at last, `rotation`
    how far it was turned for that, both in degrees clockwise.
    """
    notes, blocks = record.notes, record.blocks
    known = bool(blocks) or record.blank
    return {
        "primary_language": notes.get("primary_language"),
        "is_rotation_valid": notes.get("is_rotation_valid"),
        "rotation_correction": notes.get("rotation_correction"),
        "rotation": record.rotation,
        "is_table": notes.get("is_table", _mostly(blocks, _is_table) if known else None),
        "is_diagram": notes.get("is_diagram", _mostly(blocks, _is_diagram) if known else None),
        "is_fallback": record.is_fallback,
    }


def _is_table(block: Block) -> bool:
    return block.kind is BlockKind.TABLE


def _is_diagram(block: Block) -> bool:
    return block.kind is BlockKind.FIGURE and block.label.strip().casefold() in _DRAWN


def _mostly(blocks: Sequence[Block], wanted: Callable[[Block], bool]) -> bool:
    """Of the text, or of the area that the blocks take; of the page's where the place of some is not known."""
    chosen = [block for block in blocks if wanted(block)]
    area = sum(map(_area, blocks)) if all(map(_area, blocks)) else 1.0
    return sum(map(_words, chosen)) > MOST * sum(map(_words, blocks)) or sum(map(_area, chosen)) > MOST * area


def _area(block: Block) -> float:
    """Relative; 0 for a block whose place is not known: its box is the whole page."""
    area = sum(box.area for box in (block.box, *block.continued))
    return area if block.box.area < 1 else 0.0


def _words(block: Block) -> int:
    """Letters and digits; the marks of tables say nothing."""
    return sum(map(str.isalnum, _TAG.sub("", block.text)))
