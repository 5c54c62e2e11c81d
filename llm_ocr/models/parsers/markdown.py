"""Markdown answers with images, and with conventions of single model families."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

from llm_ocr.models.parsers.coordinates import WHOLE_PAGE, from_1000, from_pixel_sizes
from llm_ocr.models.parsers.labels import kind_of, known_kind, read_box, unreadable, without_cut
from llm_ocr.models.parsers.latex import with_html_tables, with_markdown_headings
from llm_ocr.models.parsers.layout_json import read_loosely
from llm_ocr.models.parsers.plain import (
    ImageLink,
    Insert,
    figure_insert,
    image_links,
    plain_body,
    with_inserts,
)
from llm_ocr.models.profile import NO_FRAME, Frame, PageNotes, Parsed
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


def parse_lighton2_plain(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of an answer of weights without boxes: as `parse_lighton2`, without places."""
    return parse_lighton2(text, frame)


def _of_link(link: ImageLink, lost: list[str]) -> Insert | None:
    """Return the block for a link; None for a link of the page itself, with other words and without a box."""
    target = link.target
    ours = known_kind(link.alt) is BlockKind.FIGURE
    label, words = (link.alt, "") if ours else ("image", link.alt)
    if not (ours or target["box"] or target["bad"]):
        return None
    box = read_box(target["box"], from_1000) if target["box"] else None
    if box is None and (target["box"] or target["bad"]):
        lost.append(unreadable(label))
    return figure_insert(link.start, target.end(), label, words, box)


def parse_ovis(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of an OvisOCR2 answer. Never raises; linear in the length."""
    lost: list[str] = []
    body, cut = without_cut(plain_body(text), _BOX_TAG_CUT)
    if cut:
        lost.append("the answer ends within a figure")
    return Parsed(tuple(with_inserts(body, _placed(body, _BOX_TAG, lost))), tuple(lost))


def parse_qwen_markdown(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of Qwen-VL's answer to `qwenvl markdown`, LaTeX tables as HTML. Never raises; linear."""
    lost: list[str] = []
    body, cut = without_cut(plain_body(text), _COMMENT_CUT)
    if cut:
        lost.append("the answer ends within a comment")
    body = with_markdown_headings(with_html_tables(body))
    blocks = with_inserts(body, _placed(body, _COMMENT, lost))
    return Parsed(tuple(_with_places(blocks, lost)), tuple(lost))


def _placed(text: str, mark: re.Pattern[str], lost: list[str]) -> list[Insert]:
    """Return the inserts of marks with a box, and maybe a label: figures, and others that stay empty for now.

    The next block takes the place of an empty one (`_with_places`).
    """
    inserts: list[Insert] = []
    for found in mark.finditer(text):
        label = found.groupdict().get("label", "image")
        box = read_box(found["box"].replace("_", " "), from_1000)
        if box is None:
            lost.append(unreadable(label))
        kind = kind_of(label) if kind_of(label) in (BlockKind.FIGURE, BlockKind.TABLE) else BlockKind.CAPTION
        inserts.append(Insert(found.start(), found.end(), Block(kind, box, label=label) if box else None))
    return inserts


def _with_places(blocks: Sequence[Block], lost: list[str]) -> list[Block]:
    """Return the blocks, each with the box of the preceding comment; words may be between a table and its comment."""
    kept: list[Block] = []
    place: Block | None = None  # of the last comment, not used so far
    for block in [*blocks, None]:
        is_place = block is not None and block.kind is not BlockKind.FIGURE and not block.text
        if block is not None and place is not None and not is_place:
            is_table = block.kind in (BlockKind.TABLE, BlockKind.CODE)
            fits = is_table if place.kind is BlockKind.TABLE else block.kind is not BlockKind.FIGURE
            if fits:
                kept.append(replace(block, box=place.box, label=place.label))
                place = None
                continue
        if place is not None and (block is None or is_place or block.kind is not BlockKind.TEXT):
            lost.append(f"{place.label}: no text")
            place = None
        if is_place:
            place = block
        elif block is not None:
            kept.append(block)
    return kept


_TAG = re.compile(
    r"(?<!`)<(?P<close>/?)(?:(?P<name>img|watermark|page_number|header|footer|signature|checkbox)"
    r"|(?P<other>watermark|page_number|signature|checkbox)\s[^<>]*+)>(?!`)",
    re.IGNORECASE,
)
_TAG_CUT = re.compile(r"</?(?:im?g?|w[a-z]{0,8}|p[a-z_]{0,10}|head?e?r?|foot?e?r?|[sc][a-z]{0,8})?\Z", re.IGNORECASE)
_FURNITURE = {
    "watermark": BlockKind.HEADER,
    "header": BlockKind.HEADER,
    "footer": BlockKind.FOOTER,
    "page_number": BlockKind.PAGE_NUMBER,
}
#: Place of a figure in an answer of HunyuanOCR (pattern of the vendor's `output_utils.py`). Small numbers are points
#: that the page itself prints.
_CORNER = r"\([ ]?\d{1,4}[ ]?,[ ]?\d{1,4}[ ]?\)"
_PLACE = rf"[ \t,，]{{0,8}}{_CORNER}[ ]?,[ ]?{_CORNER}"
_PLACES = re.compile(rf"(?:{_PLACE}){{1,99}}+(?=[ \t]{{0,8}}$)", re.MULTILINE)
_POINT = re.compile(r"\d+")
_LEAST_POINT = 100


def parse_nanonets(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of a Nanonets-OCR2 answer. Never raises; linear in the length.

    `<img>` contains a figure's caption or description, without a place: a text with the label `image`. `<watermark>`,
    `<header>`, `<footer>`, and `<page_number>` are furniture, `<signature>` and `<checkbox>` are text. Tags in code
    are text of the page.
    """
    body, _ = without_cut(plain_body(text), _TAG_CUT)
    return Parsed(tuple(with_inserts(body, list(_tags(body)))))


def _tags(text: str) -> Iterator[Insert]:
    """Yield one insert per pair of tags; a tag without an end extends to the end of its line, or to the next tag."""
    opened: re.Match[str] | None = None
    for tag in _TAG.finditer(text):
        if opened is not None:
            pair = tag["close"] and _name(tag) == _name(opened)
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


def _name(tag: re.Match[str]) -> str:
    return (tag["name"] or tag["other"]).lower()


def _open_tag(text: str, opened: re.Match[str], end: int) -> Insert:
    line = text.find("\n", opened.end(), end)
    end = end if line < 0 else line
    return _tagged(opened, text[opened.end() : end], end)


def _tagged(opened: re.Match[str], inner: str, end: int) -> Insert:
    words = " ".join(inner.split())
    if not words:
        return Insert(opened.start(), end)
    name = _name(opened)
    if name == "img":
        return figure_insert(opened.start(), end, "image", words)
    if name == "checkbox":
        return Insert(opened.start(), end, words=words)
    kind = _FURNITURE.get(name, BlockKind.TEXT)
    return Insert(opened.start(), end, Block(kind, WHOLE_PAGE, words, name), words if kind is BlockKind.TEXT else "")


def parse_hunyuan(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of a HunyuanOCR answer. Never raises; linear in the length.

    `(x1,y1),(x2,y2)` at the end of a line is the place of a figure, 0 to 1000 over each side, except in tables and
    formulas, where points are content of the page.
    """
    body = plain_body(text)
    inserts: list[Insert] = []
    for places in _PLACES.finditer(body):
        for place in re.finditer(_PLACE, places[0]):
            numbers = [float(number) for number in _POINT.findall(place[0])]
            if max(numbers) >= _LEAST_POINT:
                box = from_1000(*numbers)
                figure = Block(BlockKind.FIGURE, box, label="image") if box else None
                inserts.append(Insert(places.start() + place.start(), places.start() + place.end(), figure))
    kept = (BlockKind.CODE, BlockKind.TABLE, BlockKind.FORMULA)
    return Parsed(tuple(with_inserts(body, inserts, as_written=kept)))


# olmOCR's answers to blocks and notes: a head of `name: value` lines between `---`, then Markdown. Figures are links
# `![words](page_x_y_w_h.png)`: left, top, width, and height in pixels of the image as sent.


#: Maximum length of a head, in lines.
_MOST_LINES = 40
_LINE = re.compile(
    r"[ \t]{0,8}(?:#{1,6}[ \t]+|\*\*)?(?P<name>[A-Za-z_ ]{1,40}?)[ \t]{0,8}(?:\*\*)?:(?:\*\*)?(?P<value>.{0,200})"
)
_LANGUAGE = re.compile(r"[A-Za-z][A-Za-z _-]{0,39}")
_DEGREES = re.compile(r"-?\d{1,4}")
_BOOLEANS = {"true": True, "yes": True, "false": False, "no": False}
_NOTHING = ("", "null", "none", "~")
_NAMES = frozenset(field.name for field in fields(PageNotes))
_TEXT_KEY = "natural_text"  # of the first olmOCR, which answered in JSON
_ANY_NAME = "(?:" + "|".join(sorted(_NAMES)) + ")"
_HEAD_LINES = rf"---[ \t]{{0,8}}\n(?:{_ANY_NAME}:[^\n]{{0,200}}\n){{3,9}}---"
_HEAD_KEY = re.compile(rf'\{{\s*"(?:{_ANY_NAME}|{_TEXT_KEY})"')
#: Head at the end of an answer, one in a single line, and one that is repeated.
_TAIL = re.compile(rf"(?<=\n){_HEAD_LINES}\s*\Z")
_IN_LINE = re.compile(
    rf"---(?:[ \t]{{1,8}}{_ANY_NAME}:[ \t]{{0,8}}[\w-]{{1,40}}){{3,9}}[ \t]{{0,8}}(?:---|$)", re.MULTILINE
)
_BETWEEN = re.compile(rf"[ \t]{{1,8}}(?={_ANY_NAME}:|---)")
_AGAIN = re.compile(rf"{_HEAD_LINES}\s*")
_LABEL = "image"
_FIGURE_END = re.compile(
    r"\]\([ \t]{0,4}(?P<name>[^()\s/:]{1,200}\.(?:png|jpe?g|webp|gif|svg))[ \t]{0,4}\)", re.IGNORECASE
)
_FIGURE_NAME = re.compile(r"page_(?P<box>[-\d._]{1,100})\.\w{3,4}")
_FIGURE_CUT = re.compile(r"\]\((?:[^()\s]{0,200})\Z")


def parse_front_matter(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of an olmOCR answer, and the notes of its head. Never raises; linear in the length.

    The words of a figure go to `described`. Words of a figure whose box is not on the page are kept as text with its
    label. A page that the model calls a diagram, without any text, is this figure.
    """
    lost: list[str] = []
    notes, body = _head(plain_body(text), lost)
    if body.casefold() in _NOTHING:
        body = ""
    scale = from_pixel_sizes(frame)
    page, cut = without_cut(body, _FIGURE_CUT)
    inserts: list[Insert] = []
    for link in image_links(page, _FIGURE_END):
        place = _FIGURE_NAME.fullmatch(link.target["name"])
        box = read_box(place["box"].replace("_", " "), scale) if place else None
        if box is None:
            lost.append(f"{_LABEL}: its box is not on the page")
        inserts.append(figure_insert(link.start, link.target.end(), _LABEL, link.alt, box))
    if cut:
        lost.append("the answer ends within a figure")
        start = page.rfind("![", inserts[-1].end if inserts else 0)
        if start >= 0:
            inserts.append(figure_insert(start, len(page), _LABEL, " ".join(page[start + 2 :].split())))
    blocks = with_inserts(page, inserts)
    if not body and notes is not None and notes.is_diagram and notes.is_rotation_valid is not False:
        blocks = [Block(BlockKind.FIGURE, WHOLE_PAGE, label="diagram")]
    return Parsed(tuple(blocks), tuple(lost), notes)


def _head(text: str, lost: list[str]) -> tuple[PageNotes | None, str]:
    """Return the notes of the head (None without a head), and the text after the head."""
    values: dict[str, Any] = {}
    if _HEAD_KEY.match(text):
        end = len(text)
        with suppress(ValueError, RecursionError):
            end = json.JSONDecoder(strict=False).raw_decode(text)[1]
        whole = next(iter(read_loosely(text[:end]).values), None)
        if isinstance(whole, dict) and isinstance(written := whole.get(_TEXT_KEY, ""), str | None):
            values = {name: _value(name, str(whole[name])) for name in _NAMES & whole.keys()}
            return PageNotes(**values), f"{written or ''}\n\n{text[end:].strip()}".strip()
    if at_end := _TAIL.search(text):
        text = f"{at_end[0].strip()}\n{text[: at_end.start()]}"
    elif in_line := _IN_LINE.match(text):
        text = _BETWEEN.sub("\n", in_line[0]) + "\n" + text[in_line.end() :]
    lines = text.split("\n", _MOST_LINES)
    fenced = lines[0].strip().casefold() in ("```yaml", "```yml", "```")
    ruled = lines[0].strip() == "---" or fenced
    at = 1 if ruled else 0
    if fenced and len(lines) > 1 and lines[1].strip() == "---":
        at = 2
    ended = False
    while at < min(len(lines), _MOST_LINES) and not ended:
        line = lines[at]
        found = _LINE.fullmatch(line)
        name = found["name"].strip().lower().replace(" ", "_") if found else ""
        if line.strip().startswith(("---", "```") if fenced else "---") and values:
            lines[at] = line.strip().lstrip("-`")
            ended = True
        elif found and name in _NAMES:
            values[name] = _value(name, found["value"].strip(" \t\"'*"))
            at += 1
        elif line.strip() and not (found and (values or ruled)):
            break
        else:
            at += 1
    if not values:
        if text:
            lost.append("no front matter: what it says of the page is not known")
        return None, text
    if not ended:
        lost.append("the front matter has no end")
    if fenced and at < len(lines) and lines[at].strip() == "":
        lines[at + 1 : at + 2] = [line for line in lines[at + 1 : at + 2] if line.strip() not in ("```", "---")]
    body = "\n".join(lines[at:]).strip()
    end = 0
    while again := _AGAIN.match(body, end):
        end = again.end()
    return PageNotes(**values), body[end:]


def _value(name: str, value: str) -> str | bool | int | None:
    """Return the value of a line of the head; None for a value that means nothing, or that cannot be read."""
    if name == "primary_language":
        return value if value.lower() not in _NOTHING and _LANGUAGE.fullmatch(value) else None
    if name == "rotation_correction":
        # Clockwise. olmOCR counts counterclockwise: its own client turns the page so.
        degrees = -int(value) % 360 if _DEGREES.fullmatch(value) else None
        return degrees if degrees in (0, 90, 180, 270) else None
    return _BOOLEANS.get(value.lower())
