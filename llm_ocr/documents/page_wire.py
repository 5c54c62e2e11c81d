"""Convert pages and attempts to JSON values and bytes for the transfer between processes, as compact lists."""

from collections.abc import Mapping, Sequence
from typing import Any

from llm_ocr.types import (
    Attempt,
    Block,
    BlockKind,
    Box,
    EncodedImage,
    Evidence,
    InkMap,
    Line,
    OcrLine,
    OcrText,
    Page,
    PageContent,
    Path,
    Raster,
    Reason,
    Script,
    Status,
    Tag,
    Word,
)

#: Decimal places of coordinates: a hundredth of a point is finer than any printer.
_DIGITS = 2
_BOLD, _ITALIC, _MONO, _RECURS, _STACKED = 1, 2, 4, 8, 16
#: Factor of the number of a word's font beside its flags.
_FONT = 4


def page_to_wire(page: Page) -> dict[str, Any]:
    """Return a page as JSON values and `bytes`; of its evidence, only the ink."""
    return {
        "id": page.id,
        "document_id": page.document_id,
        "number": page.number,
        "source": page.source,
        "image": image_to_wire(page.image),
        "content": content_to_wire(page.content) if page.content else None,
        "evidence": evidence_to_wire(Evidence(page.evidence.ink)) if page.evidence and page.evidence.ink else None,
    }


def page_from_wire(wire: Mapping[str, Any]) -> Page:
    """Convert the result of `page_to_wire` back; coordinates are rounded to 1/100."""
    content = wire["content"]
    return Page(
        id=wire["id"],
        document_id=wire["document_id"],
        number=wire["number"],
        image=image_from_wire(wire["image"]),
        content=content_from_wire(content) if content else None,
        source=wire["source"],
        evidence=evidence_from_wire(wire["evidence"]) if wire["evidence"] else None,
    )


def image_to_wire(image: EncodedImage) -> list[Any]:
    """Return bytes, media type, width, and height."""
    return [image.data, image.media_type, image.width, image.height]


def image_from_wire(wire: Sequence[Any]) -> EncodedImage:
    """Convert the result of `image_to_wire` back."""
    data, media_type, width, height = wire
    return EncodedImage(data, media_type, width, height)


def evidence_to_wire(evidence: Evidence) -> dict[str, Any]:
    """Return the evidence that answers are judged by, as JSON values and one `bytes`."""
    return {
        "ink": _ink_to_wire(evidence.ink),
        "lines": [[text, *_rounded(box, 4)] for text, box in evidence.lines],
        "pictured": round(evidence.pictured, 4),
        "undrawn": round(evidence.undrawn, 4),
        "invisible": evidence.invisible,
        "ocr": ocr_to_wire(evidence.ocr) if evidence.ocr else None,
    }


def _ink_to_wire(ink: InkMap | None) -> list[Any] | None:
    return [ink.width, ink.height, ink.packed, ink.blank, ink.pale] if ink else None


def evidence_from_wire(wire: Mapping[str, Any]) -> Evidence:
    """Convert the result of `evidence_to_wire` back; relative coordinates are rounded to 1/10000."""
    lines = tuple((text, Box(*sides)) for text, *sides in wire["lines"])
    counts = wire["pictured"], wire["undrawn"], wire["invisible"]
    ocr = ocr_from_wire(wire["ocr"]) if wire["ocr"] else None
    return Evidence(InkMap(*wire["ink"]) if wire["ink"] else None, lines, *counts, ocr)


def ocr_to_wire(ocr: OcrText) -> dict[str, Any]:
    """Return the text that OCR found as JSON values; relative coordinates are rounded to 1/10000."""
    lines = [
        [line.text, _rounded(line.box, 4), line.confidence, line.words, [_rounded(box, 4) for box in line.boxes]]
        for line in ocr.lines
    ]
    return {"lines": lines, "scripts": sorted(ocr.scripts), "skew": round(ocr.skew, 4)}


def ocr_from_wire(wire: Mapping[str, Any]) -> OcrText:
    """Convert the result of `ocr_to_wire` back."""
    lines = tuple(
        OcrLine(text, Box(*sides), sure, tuple(words), tuple(Box(*box) for box in boxes))
        for text, sides, sure, words, boxes in wire["lines"]
    )
    return OcrText(lines, frozenset(wire["scripts"]), wire["skew"])


def content_to_wire(content: PageContent) -> dict[str, Any]:
    """Return a page's text and objects as JSON values."""
    return {
        "size": [content.width, content.height],
        "unmapped": content.unmapped,
        "unread": content.unread,
        "invisible": content.invisible,
        "with_invisible": content.with_invisible,
        "links": content.links,
        "undrawn": content.undrawn,
        "lines": [_line_to_wire(line) for line in content.lines],
        "tags": [[tag.kind, tag.parent, tag.rows, tag.columns] for tag in content.tags],
        "rasters": [_rounded(raster.box) for raster in content.rasters],
        "paths": [
            [*_rounded(path.box), path.stroke, path.fill, path.segments, round(path.slant, 2)] for path in content.paths
        ],
    }


def content_from_wire(wire: Mapping[str, Any]) -> PageContent:
    """Convert the result of `content_to_wire` back."""
    width, height = wire["size"]
    return PageContent(
        width,
        height,
        tuple(_line_from_wire(line) for line in wire["lines"]),
        tuple(Raster(Box(*box)) for box in wire["rasters"]),
        tuple(
            Path(Box(x0, y0, x1, y1), tuple(stroke) if stroke else None, tuple(fill) if fill else None, segments, slant)
            for x0, y0, x1, y1, stroke, fill, segments, slant in wire["paths"]
        ),
        wire["unmapped"],
        wire["unread"],
        tuple(wire["links"]),
        wire["invisible"],
        wire["undrawn"],
        wire["with_invisible"],
        tuple(Tag(*tag) for tag in wire["tags"]),
    )


def _rounded(box: Box, digits: int = _DIGITS) -> list[float]:
    return [round(side, digits) for side in (box.x0, box.y0, box.x1, box.y1)]


def _line_to_wire(line: Line) -> list[Any]:
    flags = _BOLD * line.bold | _ITALIC * line.italic | _MONO * line.mono | _STACKED * line.stacked
    flags |= _RECURS * line.recurs
    words = [_rounded(word.box) for word in line.words]
    texts = [word.text for word in line.words]
    # Nearly always the words are those of the line's text; then only their boxes are sent.
    own = None if texts == line.text.split(" ") or not texts else texts
    scripts = [[script.start, script.end, script.lowered] for script in line.scripts]
    doubtful = [[index, word.doubtful] for index, word in enumerate(line.words) if word.doubtful]
    faces = [_BOLD * word.bold | _ITALIC * word.italic | _FONT * word.font for word in line.words]
    faces = faces[: len(set(faces))] if len(set(faces)) < 2 else faces  # usually one for all words
    parts = [[part.text, *_rounded(part.box), part.doubtful] for part in line.parts]
    links = [[index, word.link] for index, word in enumerate(line.words) if word.link]
    texts_of_words = [own, scripts, doubtful, faces, links, parts]
    places = line.drawn, line.tag
    return [line.text, *_rounded(line.box), line.size, flags, line.confidence, *places, words, *texts_of_words]


def _line_from_wire(wire: Sequence[Any]) -> Line:
    text, x0, y0, x1, y1, size, flags, confidence, drawn, tag, boxes, *texts_of_words = wire
    own, scripts, doubtful, faces, links, pieces = texts_of_words
    texts = own if own is not None else text.split(" ")
    places, linked = {index: tuple(places) for index, places in doubtful}, dict(links)
    faces = faces * len(texts) if len(faces) == 1 else faces
    words = tuple(
        Word(
            *(word, Box(*box), places.get(index, ()), bool(face & _BOLD), bool(face & _ITALIC), linked.get(index, 0)),
            font=face // _FONT,
        )
        for index, (word, box, face) in enumerate(zip(texts, boxes, faces, strict=False))
    )
    bold, italic, mono, stacked, recurs = (bool(flags & bit) for bit in (_BOLD, _ITALIC, _MONO, _STACKED, _RECURS))
    raised = tuple(Script(*script) for script in scripts)
    parts = tuple(Word(part, Box(*box), tuple(unknown)) for part, *box, unknown in pieces)
    faces_of_line = bold, italic, mono, stacked, recurs
    return Line(text, Box(x0, y0, x1, y1), size, words, *faces_of_line, confidence, raised, parts, drawn, tag)


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
        "ink": _ink_to_wire(attempt.ink),
        "ocr": ocr_to_wire(attempt.ocr) if attempt.ocr else None,
        "reread": [[word, text, *_rounded(box, 4)] for box, word, text in attempt.reread],
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
        ink=InkMap(*wire["ink"]) if wire["ink"] else None,
        ocr=ocr_from_wire(wire["ocr"]) if wire["ocr"] else None,
        reread=tuple((Box(*sides), word, text) for word, text, *sides in wire["reread"]),
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
