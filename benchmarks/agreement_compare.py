"""What two readings of one answer agree on: text, labels, boxes, tables, notes."""

import re
from collections.abc import Sequence
from typing import Any

Reading = dict[str, Any]

#: By format: what is compared.
ASPECTS = {
    **dict.fromkeys(
        ("chandra", "surya", "dots", "deepseek", "unlimited", "doctags", "glm-regions"),
        ("text", "labels", "boxes", "tables"),
    ),
    "surya-layout": ("labels", "boxes"),
    "mineru-layout": ("labels", "boxes", "notes"),
    "olmocr": ("text", "boxes", "tables", "notes"),
    "glm": ("text", "tables"),
    "otsl-mineru": ("tables",),
    "otsl-paddle": ("tables",),
}
NORMALISED = (
    "text: white space in a row is one space; Markdown's escapes, marks of emphasis, headings, list items, code and "
    "centring and delimiters of formulas are taken off",
    "tables: grids of texts, a cell that covers several places in each of them",
    "boxes: corners in 0..1, equal within 0.0015",
    "labels: the model's own where both keep them, else kinds; blocks of one piece of an answer count once",
)
_TOLERANCE = 0.0015
_DELIMITERS = re.compile(r"(?<!\\)\${1,2}|\\[\[\]()]")
_ESCAPED = re.compile(r"\\([_*#<>$~`|+-])")
_MARKS = re.compile(r"\*{1,3}|```\w*|`|</?center>|~~", re.IGNORECASE)
_LINE_MARKS = re.compile(r"^[ \t]*(?:#{1,6}[ \t]+|[-*+][ \t]+|\d{1,3}\.[ \t]+)", re.MULTILINE)
_LINK = re.compile(r"!\[([^\]]*)\]\(page_(\d+)_(\d+)_(\d+)_(\d+)\.png\)")
_KINDS = {
    "section_header": "heading",
    "page_header": "header",
    "page_footer": "footer",
    "paragraph": "text",
    "document_index": "table",
}


def compared(form: str, ours: Reading, theirs: Reading) -> dict[str, bool]:
    """By aspect, whether the two agree; all False where the other program raised."""
    if "error" in theirs:
        return dict.fromkeys(ASPECTS[form], False)
    return {aspect: _AGREE[aspect](form, ours, theirs) for aspect in ASPECTS[form]}


def text_of(reading: Reading) -> str:
    """All words of a reading, plain."""
    said = "\n\n".join(piece["text"] for piece in reading.get("pieces", ()))
    return plain(_LINK.sub(r"\1", said))


def plain(text: str) -> str:
    """Words without what only shows how they look."""
    text = _LINE_MARKS.sub("", _DELIMITERS.sub(" ", text))
    return " ".join(_MARKS.sub("", _ESCAPED.sub(r"\1", text)).split())


def labels_of(reading: Reading) -> list[str]:
    return [_KINDS.get(piece["label"], piece["label"]) for piece in reading.get("pieces", ())]


def boxes_of(reading: Reading) -> list[list[float] | None]:
    """Boxes in order; those that olmOCR's Markdown names, which its own client leaves in the text."""
    found = []
    for piece in reading.get("pieces", ()):
        links = [tuple(map(int, link[1:])) for link in _LINK.findall(piece["text"])]
        found += [[x / 1000, y / 1000, (x + w) / 1000, (y + h) / 1000] for x, y, w, h in links]
        if not links:
            found.append(piece["box"])
    return found


def tables_of(reading: Reading) -> list[Any]:
    return [
        [[plain(cell) for cell in row] for row in grid]
        for piece in reading.get("pieces", ())
        for grid in piece["grids"]
    ]


def notes_of(reading: Reading) -> Any:
    return reading.get("notes")


def _boxes(form: str, ours: Reading, theirs: Reading) -> bool:
    mine, other = boxes_of(ours), boxes_of(theirs)
    if form == "olmocr":
        mine, other = [box for box in mine if box], [box for box in other if box]
    return len(mine) == len(other) and all(map(_same_box, mine, other))


def _same_box(mine: Sequence[float] | None, other: Sequence[float] | None) -> bool:
    if mine is None or other is None:
        return mine is other
    return all(abs(a - b) <= _TOLERANCE for a, b in zip(mine, other, strict=True))


def _notes(form: str, ours: Reading, theirs: Reading) -> bool:
    mine, other = notes_of(ours), notes_of(theirs)
    if form == "olmocr" and mine:
        # We count clockwise, its client against the clock.
        mine = {**mine, "rotation_correction": -(mine["rotation_correction"] or 0) % 360}
    return mine == other


_AGREE = {
    "text": lambda form, ours, theirs: text_of(ours) == text_of(theirs),
    "labels": lambda form, ours, theirs: labels_of(ours) == labels_of(theirs),
    "boxes": _boxes,
    "tables": lambda form, ours, theirs: tables_of(ours) == tables_of(theirs),
    "notes": _notes,
}
