"""Convert attempts to JSON values and bytes for the transfer from a worker process."""

from collections.abc import Mapping, Sequence
from typing import Any

from llm_ocr.documents.page_wire import image_from_wire, image_to_wire, ocr_from_wire, ocr_to_wire
from llm_ocr.types import Attempt, Block, BlockKind, Box, Reason, Status


def attempt_to_wire(attempt: Attempt) -> dict[str, Any]:
    """Return the fields of an attempt without those of requests: raw answer, times, tokens, and notes."""
    return {
        "source": attempt.source,
        "status": attempt.status.value,
        "reason": attempt.reason.value if attempt.reason else None,
        "detail": attempt.detail,
        "rotation": attempt.rotation,
        "probe": attempt.probe,
        "confidence": attempt.confidence,
        "image": image_to_wire(attempt.image) if attempt.image else None,
        "ocr": ocr_to_wire(attempt.ocr) if attempt.ocr else None,
        "blocks": [block_to_wire(block) for block in attempt.blocks],
    }


def attempt_from_wire(wire: Mapping[str, Any], *, engine: str, seconds: float = 0.0) -> Attempt:
    """Return the attempt; the caller knows the engine, and has measured `seconds`."""
    return Attempt(
        engine=engine,
        source=wire["source"],
        status=Status(wire["status"]),
        blocks=tuple(block_from_wire(block) for block in wire["blocks"]),
        reason=Reason(wire["reason"]) if wire["reason"] else None,
        detail=wire["detail"],
        rotation=wire["rotation"],
        probe=wire["probe"],
        confidence=wire["confidence"],
        image=image_from_wire(wire["image"]) if wire["image"] else None,
        ocr=ocr_from_wire(wire["ocr"]) if wire["ocr"] else None,
        seconds=seconds,
    )


def block_to_wire(block: Block) -> list[Any]:
    """Return the fields of a block without the ID that a figure gets with its crop."""
    box = block.box
    continued = [[more.x0, more.y0, more.x1, more.y1] for more in block.continued]
    about = [block.text, block.label, block.level, block.inside, block.caption, block.described, continued]
    return [block.kind.value, box.x0, box.y0, box.x1, box.y1, *about]


def block_from_wire(wire: Sequence[Any]) -> Block:
    """Convert the result of `block_to_wire` back."""
    kind, x0, y0, x1, y1, text, label, level, inside, caption, described, continued = wire
    return Block(
        BlockKind(kind),
        Box(x0, y0, x1, y1),
        text=text,
        label=label,
        level=level,
        inside=inside,
        caption=caption,
        described=described,
        continued=tuple(Box(*box) for box in continued),
    )
