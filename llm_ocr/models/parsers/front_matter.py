"""olmOCR's answers to blocks and notes: a head of `name: value` lines between `---`, then Markdown.

Figures are links `![words](page_x_y_w_h.png)`: left, top, width, and height in pixels of the image as sent.
"""

import re
from dataclasses import fields
from typing import Any

from llm_ocr.models.parsers.coordinates import WHOLE_PAGE, from_pixel_sizes
from llm_ocr.models.parsers.labels import read_box, without_cut
from llm_ocr.models.parsers.loose_json import read_loosely
from llm_ocr.models.parsers.plain import Insert, figure_insert, image_links, plain_body, with_inserts
from llm_ocr.models.profile import NO_FRAME, Frame, PageNotes, Parsed
from llm_ocr.types import Block, BlockKind

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
_LABEL = "image"
_TEXT_KEY = "natural_text"  # of the first olmOCR, which answered in JSON
_LINK_END = re.compile(
    r"\]\([ \t]{0,4}(?P<name>[^()\s/:]{1,200}\.(?:png|jpe?g|webp|gif|svg))[ \t]{0,4}\)", re.IGNORECASE
)
_PLACE = re.compile(r"page_(?P<box>[-\d._]{1,100})\.\w{3,4}")
_LINK_CUT = re.compile(r"\]\((?:[^()\s]{0,200})\Z")


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
    page, cut = without_cut(body, _LINK_CUT)
    inserts: list[Insert] = []
    for link in image_links(page, _LINK_END):
        place = _PLACE.fullmatch(link.target["name"])
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
    whole = read_loosely(text).values[:1] if text.startswith("{") and _TEXT_KEY in text else []
    if whole and isinstance(whole[0], dict) and isinstance(written := whole[0].get(_TEXT_KEY, ""), str | None):
        values = {name: _value(name, str(whole[0][name])) for name in _NAMES & whole[0].keys()}
        return PageNotes(**values), (written or "").strip()
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
    return PageNotes(**values), "\n".join(lines[at:]).strip()


def _value(name: str, value: str) -> str | bool | int | None:
    """Return the value of a line of the head; None for a value that means nothing, or that cannot be read."""
    if name == "primary_language":
        return value if value.lower() not in _NOTHING and _LANGUAGE.fullmatch(value) else None
    if name == "rotation_correction":
        # Clockwise. olmOCR counts counterclockwise: its own client turns the page so.
        degrees = -int(value) % 360 if _DEGREES.fullmatch(value) else None
        return degrees if degrees in (0, 90, 180, 270) else None
    return _BOOLEANS.get(value.lower())
