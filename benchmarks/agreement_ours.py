"""Reads answers with our parsers, in the form in which `agreement_peer.py` gives what another program made of them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from agreement_grids import parted

from llm_ocr.engines.regions.answers import Read, merged
from llm_ocr.engines.regions.detection import DEFAULT_TASKS, FORMULA, SKIP, Assigned, Region
from llm_ocr.models.parsers import parser_named
from llm_ocr.models.parsers.coordinates import WHOLE_PAGE
from llm_ocr.models.parsers.markers import mineru_regions, region_turn
from llm_ocr.models.parsers.otsl import otsl_to_html
from llm_ocr.models.profile import Frame
from llm_ocr.types import Block, BlockKind, Box

Reading = dict[str, Any]

#: By format: the parser's name, and the size of the image. dots.ocr sees 1036 pixels of 1036.
_PARSERS = {
    "dots": ("dots", Frame(1036, 1036)),
    "deepseek": ("grounding", Frame()),
    "unlimited": ("unlimited", Frame()),
    "chandra": ("chandra", Frame()),
    "surya": ("surya", Frame()),
    "surya-layout": ("surya-layout", Frame()),
    "olmocr": ("front-matter", Frame(1000, 1000)),
    "glm": ("glm", Frame()),
    "doctags": ("doctags", Frame()),
}
#: GLM-OCR's client has four labels in the end.
_FOUR = {"figure": "image", "table": "table", "formula": "formula"}
#: Where the other program keeps the model's labels they are compared, elsewhere our kinds.
_RAW_LABELS = frozenset({"chandra", "surya", "surya-layout"})


def reader(form: str) -> Callable[[str], Reading]:
    """Our reader of a format."""
    if form == "mineru-layout":
        return _mineru
    if form == "glm-regions":
        return _regions
    if form.startswith("otsl"):
        return lambda answer: {"pieces": [_piece("table", None, otsl_to_html(answer))]}
    name, frame = _PARSERS[form]
    parse = parser_named(name).parse

    def read(answer: str) -> Reading:
        parsed = parse(answer, frame)
        found: Reading = {"pieces": _pieces(parsed.blocks, form), "lost": list(parsed.lost)}
        if parsed.notes is not None:
            found["notes"] = asdict(parsed.notes)
        return found

    return read


def _mineru(answer: str) -> Reading:
    regions, lost = mineru_regions(answer)
    # The package gives the angle by which its own image library turns, against the clock.
    notes = [{"angle": -region_turn(one) % 360, "continues": bool(one.more)} for one in regions]
    pieces = [_piece((one.label or "").lower(), _corners(one.boxes[0]), "") for one in regions]
    return {"pieces": pieces, "lost": lost, "notes": {"regions": notes}}


def _regions(answer: str) -> Reading:
    read, lost = [], []
    for one in json.loads(answer):
        region = Region(one["label"], Box(*(side / 1000 for side in one["bbox_2d"])))
        task = DEFAULT_TASKS[region.label]
        parsed = parser_named("formula" if task == FORMULA else "glm").parse(one["content"], Frame())
        lost += parsed.lost
        read.append(Read(Assigned(region, task), None if task == SKIP else parsed.blocks))
    found = _pieces(merged(read), "glm-regions")
    for piece in found:
        piece["label"] = _FOUR.get(piece["label"], "text")
    return {"pieces": found, "lost": lost}


def _pieces(blocks: Sequence[Block], form: str) -> list[Reading]:
    """One for each piece of the answer: what was parted into several blocks of one label and place is one again."""
    found: list[Reading] = []
    last: tuple[str, object] | None = None
    for block in blocks:
        box = None if block.box == WHOLE_PAGE else _corners(block.box)
        label = block.label if form in _RAW_LABELS else block.kind.value
        made = _piece(label, box, block.described if block.kind is BlockKind.FIGURE else block.text)
        same = (block.label, block.box)
        if found and same == last and block.kind is not BlockKind.FIGURE:
            found[-1]["text"] += "\n\n" + made["text"]
            found[-1]["grids"] += made["grids"]
        else:
            found.append(made)
        last = same
    return found


def _corners(box: Box) -> list[float]:
    return [box.x0, box.y0, box.x1, box.y1]


def _piece(label: str, box: list[float] | None, text: str) -> Reading:
    words, grids = parted(text)
    return {"label": label, "box": box, "text": words, "grids": grids}
