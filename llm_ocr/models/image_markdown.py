"""Markdown with the places of figures in it -> blocks: LightOnOCR-2 and Qwen-VL.

LightOnOCR-2 writes `![image](image_3.png)118,240,860,512` (weights without boxes leave the numbers out), Qwen-VL
`<!-- Image (x1, y1, x2, y2) -->`, and `<!-- Table (x1, y1, x2, y2) -->` before a table; 0 to 1000 over each side.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from llm_ocr.models.coordinates import from_1000
from llm_ocr.models.inserts import ImageLink, Insert, image_links, placeless, with_inserts
from llm_ocr.models.labels import kind_of, known_kind
from llm_ocr.models.latex_tables import with_html_tables
from llm_ocr.models.plain import plain_body
from llm_ocr.models.profile import NO_FRAME, Frame, Parsed
from llm_ocr.models.splitting import read_box, unreadable, without_cut
from llm_ocr.types import Block, BlockKind

_INTEGERS = r"\d{1,6}(?:[ \t]{0,4},[ \t]{0,4}\d{1,6}){3}(?![ \t]{0,4},?\d)"
_LINK_END = re.compile(
    rf"\]\((?P<name>[^()\s]{{0,200}})\)(?:\s{{0,4}}(?P<box>{_INTEGERS})|(?P<bad>\d{{1,9}}(?:(?:,\d{{0,9}}){{1,8}}|\Z)))?"
)
_LINK_CUT = re.compile(r"!\[[^\[\]\n]{0,80}(?:\](?:\([^()\s]{0,200})?)?\Z")
_COMMENT = re.compile(
    r"<!--\s{0,4}(?P<label>[A-Za-z][\w -]{0,40}?)\s{0,4}\(\s{0,4}(?P<box>[-\d.,\s]{0,120})\)\s{0,4}-->"
)
_COMMENT_CUT = re.compile(r"<!(?:-(?:-[^>\n]{0,200})?)?\Z")


def parse_lighton2(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Blocks of an answer of LightOnOCR-2, of weights with boxes or without. Never raises; linear in the length."""
    lost: list[str] = []
    body, cut = without_cut(plain_body(text), _LINK_CUT)
    if cut:
        lost.append("the answer ends within a figure")
    inserts = [insert for link in image_links(body, _LINK_END) if (insert := _of_link(link, lost)) is not None]
    return Parsed(tuple(with_inserts(body, inserts)), tuple(lost))


def _of_link(link: ImageLink, lost: list[str]) -> Insert | None:
    """None for a link of the page's own: one with other words, and without a box."""
    target = link.target
    ours = known_kind(link.alt) is BlockKind.FIGURE
    label, words = (link.alt, "") if ours else ("image", link.alt)
    if target["bad"]:
        lost.append(unreadable(label))
    box = read_box(target["box"], from_1000) if target["box"] else None
    if target["box"] and box is None:
        lost.append(unreadable(label))
    if box is not None:
        return Insert(link.start, target.end(), Block(BlockKind.FIGURE, box, label=label, described=words))
    if not (ours or target["box"] or target["bad"]):
        return None
    return Insert(link.start, target.end(), placeless(label, words), words)


def parse_qwen_markdown(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Blocks of an answer of Qwen-VL to `qwenvl markdown`; LaTeX tables become HTML. Never raises; linear."""
    lost: list[str] = []
    body, cut = without_cut(plain_body(text), _COMMENT_CUT)
    if cut:
        lost.append("the answer ends within a comment")
    body = with_html_tables(body)
    inserts = [_of_comment(comment, lost) for comment in _COMMENT.finditer(body)]
    return Parsed(tuple(_with_places(with_inserts(body, inserts), lost)), tuple(lost))


def _of_comment(comment: re.Match[str], lost: list[str]) -> Insert:
    label = comment["label"]
    box = read_box(comment["box"], from_1000)
    if box is None:
        lost.append(unreadable(label))
        return Insert(comment.start(), comment.end())
    return Insert(comment.start(), comment.end(), Block(_marker_kind(label), box, label=label))


def _marker_kind(label: str) -> BlockKind:
    """Only figures are blocks of their own; the others stay empty until the block behind them takes their place."""
    kind = kind_of(label)
    return kind if kind in (BlockKind.FIGURE, BlockKind.TABLE) else BlockKind.CAPTION


def _with_places(blocks: Sequence[Block], lost: list[str]) -> list[Block]:
    """The blocks, each with the box of the comment before it; a table may have words between the two."""
    kept: list[Block] = []
    place: Block | None = None
    for block in blocks:
        if block.kind is not BlockKind.FIGURE and not block.text:
            _unused(place, lost)
            place = block
            continue
        if place is not None and _fits(place, block):
            block, place = replace(block, box=place.box, label=place.label), None
        elif block.kind is not BlockKind.TEXT:
            _unused(place, lost)
            place = None
        kept.append(block)
    _unused(place, lost)
    return kept


def _fits(place: Block, block: Block) -> bool:
    if place.kind is BlockKind.TABLE:
        return block.kind in (BlockKind.TABLE, BlockKind.CODE)
    return block.kind is not BlockKind.FIGURE


def _unused(place: Block | None, lost: list[str]) -> None:
    if place is not None:
        lost.append(f"{place.label}: no text")
