"""Pieces of a page that go on in another column or behind a figure, joined."""

import re
from collections.abc import Iterable, Sequence

from llm_ocr.models.labels import kind_of, normal
from llm_ocr.models.splitting import Marked
from llm_ocr.types import BlockKind

_HEADINGS = (BlockKind.TITLE, BlockKind.HEADING)
_TABLE = re.compile(r"<table\b[^<>]{0,200}>", re.IGNORECASE)
_TABLE_END = "</table>"
#: What begins a construct of Markdown rather than the next line of a paragraph.
_CONSTRUCT = re.compile(
    r"[ \t]{0,8}(?:[-*+•][ \t]|\d{1,9}[.)][ \t]|#{1,6}[ \t]|\||\$\$|\\\[|<table|```)", re.IGNORECASE
)
# Scripts that put no spaces between words: Han, Kana, full-width forms; Hangul does.
_NO_SPACES = re.compile("[\u2e80-\u312f\u3190-\uabff\uf900-\ufaff\uff00-\uffef]")
_HYPHENS = ("-", "\u00ad", "\u2010")


def with_continued(pieces: Iterable[Marked]) -> list[Marked]:
    """The pieces, those marked `more` joined to the last one before them of the same label.

    Figures, tables and furniture may stand between the two, a heading may not: behind it nothing goes on. One that has
    nothing before it (it goes on from another page) stands for itself.
    """
    kept: list[Marked] = []
    last: dict[str, Marked] = {}
    joined: dict[int, Marked] = {}
    for piece in pieces:
        kind = kind_of(piece.label or "")
        if kind in _HEADINGS:
            last.clear()
        before = last.get(normal(piece.label or "")) if piece.more else None
        if before is not None:
            before.boxes += piece.boxes
            before.parts.append(piece.text)
            joined[id(before)] = before
            continue
        kept.append(piece)
        if piece.label is not None and kind is not BlockKind.FIGURE:
            piece.parts = [piece.text]
            last[normal(piece.label)] = piece
    for piece in joined.values():
        piece.parts = [_whole(kind_of(piece.label or ""), [part.strip() for part in piece.parts])]
    return kept


def _whole(kind: BlockKind, parts: Sequence[str]) -> str:
    if kind is BlockKind.TABLE:
        return _table(parts)
    made: list[str] = []
    for part in filter(None, parts):
        if made:
            made[-1], between = _seam(kind, made[-1], part)
            made.append(between)
        made.append(part)
    return "".join(made)


def _seam(kind: BlockKind, before: str, after: str) -> tuple[str, str]:
    """The text before without the hyphen that parts a word, and what stands between the two."""
    if kind in (BlockKind.CODE, BlockKind.FORMULA):
        return before, "\n"
    if _CONSTRUCT.match(after):
        return before, "\n" if kind is BlockKind.LIST_ITEM else "\n\n"
    if before.endswith(_HYPHENS) and before[-2:-1].isalpha() and after[0].islower():
        return before[:-1], ""
    apart = not (_NO_SPACES.match(before[-1]) and _NO_SPACES.match(after[0]))
    return before, " " if apart else ""


def _table(parts: Sequence[str]) -> str:
    """The rows of all HTML tables in one; what is no HTML table stands below the one before it."""
    made: list[str] = []
    for part in filter(None, parts):
        begin = _TABLE.match(part)
        if made and begin and made[-1].lower().endswith(_TABLE_END):
            made[-1] = made[-1][: -len(_TABLE_END)]
            made.append(part[begin.end() :])
        else:
            made += ["\n\n", part] if made else [part]
    return "".join(made)
