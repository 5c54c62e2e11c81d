"""Markdown answers with images, and with conventions of single model families."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from llm_ocr.models.parsers.coordinates import WHOLE_PAGE, from_1000
from llm_ocr.models.parsers.labels import kind_of, known_kind, read_box, unreadable, without_cut
from llm_ocr.models.parsers.latex import with_html_tables
from llm_ocr.models.parsers.plain import (
    ImageLink,
    Insert,
    image_links,
    parse_plain,
    plain_body,
    with_inserts,
    without_position,
)
from llm_ocr.models.parsers.repetition import LONGEST_PERIOD, whole_run
from llm_ocr.models.profile import NO_FRAME, Frame, Parsed
from llm_ocr.types import Block, BlockKind

# Markdown with places of figures to blocks: LightOnOCR-2, OvisOCR2, and Qwen-VL. LightOnOCR-2 writes
# `![image](image_3.png)118,240,860,512` (weights without boxes omit the numbers). OvisOCR2 writes
# `<img src="images/bbox_118_240_860_512.jpg" />`. Qwen-VL writes `<!-- Image (x1, y1, x2, y2) -->`, and
# `<!-- Table (x1, y1, x2, y2) -->` before a table. All count 0 to 1000 over each side.


_INTEGERS = r"\d{1,6}(?:[ \t]{0,4},[ \t]{0,4}\d{1,6}){3}(?![ \t]{0,4},?\d)"
_LINK_END = re.compile(
    rf"\]\((?P<name>[^()\s]{{0,200}})\)(?:\s{{0,4}}(?P<box>{_INTEGERS})|(?P<bad>\d{{1,9}}(?:(?:,\d{{0,9}}){{1,8}}|\Z)))?"
)
_LINK_CUT = re.compile(r"!\[[^\[\]\n]{0,80}(?:\](?:\([^()\s]{0,200})?)?\Z")
_BOX_TAG = re.compile(r"<img\s{1,4}src=[\"']images/bbox_(?P<box>[-\d_]{0,60})\.jpg[\"']\s{0,4}/?>", re.IGNORECASE)
_BOX_TAG_CUT = re.compile(r"<im?(?:g[^<>\n]{0,100})?\Z", re.IGNORECASE)
_COMMENT = re.compile(
    r"<!--\s{0,4}(?P<label>[A-Za-z][\w -]{0,40}?)\s{0,4}\(\s{0,4}(?P<box>[-\d.,\s]{0,120})\)\s{0,4}-->"
)
_COMMENT_CUT = re.compile(r"<!(?:-(?:-[^>\n]{0,200})?)?\Z")


def parse_lighton2(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of a LightOnOCR-2 answer, with or without boxes. Never raises; linear in the length."""
    lost: list[str] = []
    body, cut = without_cut(plain_body(text), _LINK_CUT)
    if cut:
        lost.append("the answer ends within a figure")
    inserts = [insert for link in image_links(body, _LINK_END) if (insert := _of_link(link, lost)) is not None]
    return Parsed(tuple(with_inserts(body, inserts)), tuple(lost))


def _of_link(link: ImageLink, lost: list[str]) -> Insert | None:
    """Return the block for a link; None for a link of the page itself, with other words and without a box."""
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
    return Insert(link.start, target.end(), without_position(label, words), words)


def parse_ovis(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of an OvisOCR2 answer. Never raises; linear in the length."""
    lost: list[str] = []
    body, cut = without_cut(plain_body(text), _BOX_TAG_CUT)
    if cut:
        lost.append("the answer ends within a figure")
    inserts = [_of_box_tag(tag, lost) for tag in _BOX_TAG.finditer(body)]
    return Parsed(tuple(with_inserts(body, inserts)), tuple(lost))


def _of_box_tag(tag: re.Match[str], lost: list[str]) -> Insert:
    box = read_box(tag["box"].replace("_", " "), from_1000)
    if box is None:
        lost.append(unreadable("image"))
        return Insert(tag.start(), tag.end())
    return Insert(tag.start(), tag.end(), Block(BlockKind.FIGURE, box, label="image"))


def parse_qwen_markdown(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of Qwen-VL's answer to `qwenvl markdown`, LaTeX tables as HTML. Never raises; linear."""
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
    """Return the kind for a marker: figures are blocks; others stay empty until the next block takes their place."""
    kind = kind_of(label)
    return kind if kind in (BlockKind.FIGURE, BlockKind.TABLE) else BlockKind.CAPTION


def _with_places(blocks: Sequence[Block], lost: list[str]) -> list[Block]:
    """Return the blocks, each with the box of the preceding comment; words may be between a table and its comment."""
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


# Plain Markdown with conventions of one family each: Nanonets' tags, and final repetitions of GLM-OCR and HunyuanOCR.


_TAG = re.compile(r"<(?P<close>/?)(?P<name>img|watermark|page_number)>", re.IGNORECASE)
_TAG_CUT = re.compile(r"</?(?:im?g?|w[a-z]{0,8}|p[a-z_]{0,10})?\Z", re.IGNORECASE)
_TABLE_MARKS = ("<t", "</t", "|", "&")
#: Number of equal characters that starts the search for a repetition.
_NEEDLE = 20
#: Number of repetitions at the end of an answer at which the clients of GLM-OCR and HunyuanOCR cut. GLM's client
#: requires a unit of ten characters, Hunyuan's an answer of eight thousand.
_REPEATS = 10
_GLM_UNIT = 10
_HUNYUAN_LENGTH = 8000


def parse_nanonets(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of a Nanonets-OCR2 answer. Never raises; linear in the length.

    `<img>` contains a figure's caption or description, without a place: a text with the label `image`. `<watermark>`
    and `<page_number>` are furniture.
    """
    body, _ = without_cut(plain_body(text), _TAG_CUT)
    return Parsed(tuple(with_inserts(body, list(_tags(body)))))


def _tags(text: str) -> Iterator[Insert]:
    """Yield one insert per pair of tags; a tag without an end extends to the end of its line, or to the next tag."""
    opened: re.Match[str] | None = None
    for tag in _TAG.finditer(text):
        if opened is not None:
            pair = tag["close"] and tag["name"].lower() == opened["name"].lower()
            if pair:
                yield _tagged(opened, text[opened.end() : tag.start()], tag.end())
                opened = None
                continue
            yield _open_tag(text, opened, tag.start())
            opened = None
        if tag["close"]:
            yield Insert(tag.start(), tag.end())
        else:
            opened = tag
    if opened is not None:
        yield _open_tag(text, opened, len(text))


def _open_tag(text: str, opened: re.Match[str], end: int) -> Insert:
    line = text.find("\n", opened.end(), end)
    end = end if line < 0 else line
    return _tagged(opened, text[opened.end() : end], end)


def _tagged(opened: re.Match[str], inner: str, end: int) -> Insert:
    words = " ".join(inner.split())
    if not words:
        return Insert(opened.start(), end)
    match opened["name"].lower():
        case "img":
            return Insert(opened.start(), end, without_position("image", words), words)
        case "watermark":
            return Insert(opened.start(), end, Block(BlockKind.HEADER, WHOLE_PAGE, words, "watermark"))
        case _:
            return Insert(opened.start(), end, Block(BlockKind.PAGE_NUMBER, WHOLE_PAGE, words, "page_number"))


def parse_glm(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of a GLM-OCR answer without a repetition at its end. Never raises; linear in the length."""
    return _without_repetition(text, 0, _GLM_UNIT)


def parse_hunyuan(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of a HunyuanOCR answer, a long one without a repetition at its end. Never raises; linear."""
    return _without_repetition(text, _HUNYUAN_LENGTH, 1)


def _without_repetition(text: str, least_length: int, least_unit: int) -> Parsed:
    """Return the blocks without a final repetition of words; the loops are shorter than in `repetition.py`.

    Only words count, since table rows may repeat.
    """
    body = plain_body(text)
    end = _first_of_run(body, least_unit) if len(body) >= least_length else None
    if end is None:
        return parse_plain(body)
    parsed = parse_plain(body[:end])
    return replace(parsed, lost=(*parsed.lost, f"the answer repeats itself after {end} characters; this was cut off"))


def _first_of_run(text: str, least_unit: int) -> int | None:
    """Return the end of the text with only the first of the final repetitions; None for too few repetitions."""
    start = len(text) - _NEEDLE
    before = text.rfind(text[start:], max(0, start - LONGEST_PERIOD), len(text) - 1) if start > 0 else -1
    if before < 0:
        return None
    period = start - before
    unit = text[-period:]
    run = whole_run(text, period)
    if run < _REPEATS * max(period, least_unit) or not _words(unit):
        return None
    return len(text) - (run // period - 1) * period


def _words(unit: str) -> bool:
    """Return whether a unit consists of words: table rows, leaders, and blank lines of forms may repeat on a page."""
    if any(mark in unit * 2 for mark in _TABLE_MARKS):
        return False
    letters = sum(map(str.isalpha, unit))
    return 2 * letters > len("".join(unit.split()))
