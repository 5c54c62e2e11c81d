"""Reads answers with one other program's post-processor: run by the Python of that program's own environment.

    python agreement_peer.py FORMAT < answers.json > readings.json

Answers are a JSON list of texts; readings a list of objects: `pieces` with label, box in 0..1 (or null), text and the
tables in it as grids; `notes`; or `error` where the program raised. Each is called as it calls itself on an answer of
its model, on an image of 1000 by 1000 pixels (dots.ocr: 1036).
"""

import contextlib
import json
import logging
import re
import sys
import types
from collections.abc import Callable
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

# Tables in HTML as grids: one reader for both sides of `agreement.py`, neither's own. Standard library only.


_TABLE = re.compile(r"<table\b.*?(?:</table\s*>|\Z)", re.DOTALL | re.IGNORECASE)
_MOST_SPAN = 50

Grid = list[list[str]]


def parted(text: str) -> tuple[str, list[Grid]]:
    """The text without its tables, and the tables; one without an end goes to the end of the text."""
    return _TABLE.sub("\n", text), [grid(found.group()) for found in _TABLE.finditer(text)]


def grid(html: str) -> Grid:
    """Rows of texts; a cell that spans several places is repeated in each. All rows have the length of the longest."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    reader.end_cell()
    width = max((x + 1 for _, x in reader.cells), default=0)
    height = max((y + 1 for y, _ in reader.cells), default=0)
    return [[reader.cells.get((y, x), "") for x in range(width)] for y in range(height)]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.cells: dict[tuple[int, int], str] = {}
        self._row = -1
        self._spans = (1, 1)
        self._words: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("td", "th", "tr"):
            self.end_cell()
        if tag == "tr":
            self._row += 1
        elif tag in ("td", "th"):
            self._row = max(self._row, 0)
            given = dict(attrs)
            self._spans = (_count(given.get("colspan")), _count(given.get("rowspan")))
            self._words = []
        elif tag == "br" and self._words is not None:
            self._words.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "tr", "table"):
            self.end_cell()

    def handle_data(self, data: str) -> None:
        if self._words is not None:
            self._words.append(data)

    def end_cell(self) -> None:
        if self._words is None:
            return
        said, self._words = " ".join("".join(self._words).split()), None
        x = 0
        while (self._row, x) in self.cells:
            x += 1
        columns, rows = self._spans
        for down in range(rows):
            for across in range(columns):
                self.cells[self._row + down, x + across] = said


def _count(written: str | None) -> int:
    return min(int(written), _MOST_SPAN) if written and written.isdecimal() and int(written) else 1


# The post-processors.


Reading = dict[str, Any]
Reader = Callable[[str], Reading]


def piece(label: str, box: list[float] | None, text: str, grids: list[Any] | None = None) -> Reading:
    words, found = parted(text)
    return {"label": label, "box": box, "text": words, "grids": found if grids is None else grids}


def bare(*names: str) -> None:
    """Packages whose `__init__` is not run: it would import what only their models need."""
    for name in names:
        parent, _, last = name.rpartition(".")
        places = sys.modules[parent].__path__ if parent else sys.path
        module = types.ModuleType(name)
        module.__path__ = [str(Path(place, last)) for place in places if Path(place, last).is_dir()]
        sys.modules[name] = module


def stub(name: str, **members: Any) -> None:
    """A module that is imported, but that post-processing does not use."""
    module = types.ModuleType(name)
    module.__dict__.update(members)
    sys.modules[name] = module


class _Words(HTMLParser):
    """The words of HTML, blocks apart."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.said: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img":
            self.said.append(f" {dict(attrs).get('alt') or ''} ")
        elif tag in ("p", "li", "div", "br", "h1", "h2", "pre", "math"):
            self.said.append(" ")

    def handle_data(self, data: str) -> None:
        self.said.append(data)


def words(html: str) -> str:
    reader = _Words()
    reader.feed(html)
    reader.close()
    return "".join(reader.said)


def chandra() -> Reader:
    from chandra import output
    from PIL import Image

    page = Image.new("L", (1000, 1000))

    def read(answer: str) -> Reading:
        found = []
        for block in output.parse_layout(answer, page, bbox_scale=1000):
            rest, grids = parted(block.content)
            figure = block.label in ("Image", "Figure", "Diagram")
            said = words(rest) if figure else output.parse_markdown(f'<div data-label="x">{rest}</div>')
            found.append(piece(block.label, [side / 1000 for side in block.bbox], said, grids))
        return {"pieces": found}

    return read


def surya() -> Reader:
    bare("surya", "surya.inference")
    stub("surya.logging", get_logger=logging.getLogger)
    from surya.inference import parsers

    def read(answer: str) -> Reading:
        found = []
        for block in parsers.parse_full_page_html(answer):
            rest, grids = parted(block.html)
            found.append(piece(block.label, [side / 1000 for side in block.bbox], words(rest), grids))
        return {"pieces": found}

    return read


def surya_layout() -> Reader:
    surya()
    from surya.inference import parsers

    def read(answer: str) -> Reading:
        blocks = parsers.parse_layout(answer)
        return {"pieces": [piece(one.label, [side / 1000 for side in one.bbox], "") for one in blocks]}

    return read


def olmocr() -> Reader:
    from olmocr.prompts import PageResponse
    from olmocr.train.front_matter import FrontMatterParser

    parser = FrontMatterParser(front_matter_class=PageResponse)

    def read(answer: str) -> Reading:
        head, text = parser._extract_front_matter_and_text(answer)
        notes = asdict(parser._parse_front_matter(head, text))
        return {"pieces": [piece("", None, notes.pop("natural_text") or "")], "notes": notes}

    return read


def _glm_formatter() -> Any:
    stub("fitz")
    import glmocr
    import yaml
    from glmocr.config import ResultFormatterConfig
    from glmocr.postprocess.result_formatter import ResultFormatter

    settings = yaml.safe_load(Path(glmocr.__file__).with_name("config.yaml").read_text())
    return ResultFormatter(ResultFormatterConfig(**settings["pipeline"]["result_formatter"]))


def glm_regions() -> Reader:
    formatter = _glm_formatter()

    def read(answer: str) -> Reading:
        regions = [{**one, "index": number} for number, one in enumerate(json.loads(answer))]
        (page,) = json.loads(formatter.process([regions])[0])
        found = [piece(one["label"], [side / 1000 for side in one["bbox_2d"]], one["content"] or "") for one in page]
        return {"pieces": found}

    return read


def glm() -> Reader:
    formatter = _glm_formatter()
    return lambda answer: {"pieces": [piece("", None, formatter.format_ocr_result(answer)[1])]}


def _mineru() -> Any:
    from loguru import logger
    from mineru_vl_utils import mineru_client

    logger.remove()
    return mineru_client


def mineru_layout() -> Reader:
    helper = object.__new__(_mineru().MinerUClientHelper)
    helper.debug = False

    def read(answer: str) -> Reading:
        found = helper.parse_layout_output(answer)
        turns = [{"angle": one.angle, "continues": bool(one.get("merge_prev"))} for one in found]
        return {"pieces": [piece(one.type, list(one.bbox), "") for one in found], "notes": {"regions": turns}}

    return read


def otsl_mineru() -> Reader:
    _mineru()
    from mineru_vl_utils.post_process.otsl2html import convert_otsl_to_html

    return lambda answer: {"pieces": [piece("table", None, convert_otsl_to_html(answer))]}


def otsl_paddle() -> Reader:
    above = "paddlex.inference.pipelines"
    bare("paddlex", "paddlex.inference", above, f"{above}.paddleocr_vl", f"{above}.layout_parsing")
    unused = {"calculate_overlap_ratio": None, "calculate_projection_overlap_ratio": None}
    stub(f"{above}.layout_parsing.utils", **unused)
    from paddlex.inference.pipelines.paddleocr_vl import uilts

    return lambda answer: {"pieces": [piece("table", None, uilts.convert_otsl_to_html(answer))]}


def _docling(document: Any, width: float) -> Reading:
    from docling_core.types.doc import ContentLayer, PictureItem, TableItem

    found = []
    for item, _ in document.iterate_items(included_content_layers=set(ContentLayer)):
        if not item.prov:
            continue
        corners = item.prov[0].bbox
        box = [side / width for side in (corners.l, corners.t, corners.r, corners.b)]
        if isinstance(item, TableItem):
            found.append(piece("table", box, "", [[[cell.text for cell in row] for row in item.data.grid]]))
        elif isinstance(item, PictureItem):
            found.append(piece("figure", box, ""))
        else:
            found.append(piece(item.label.value, box, item.text or item.orig))
    return {"pieces": found}


def dots() -> Reader:
    from docling.utils.dots_utils import parse_dots_json
    from docling_core.types.doc import Size

    size = Size(width=1036, height=1036)
    return lambda answer: _docling(parse_dots_json(answer, size, 1, normalize_heading_levels=False), 1036)


def deepseek() -> Reader:
    from docling.utils.deepseekocr_utils import parse_deepseekocr_markdown
    from docling_core.types.doc import Size

    size = Size(width=1000, height=1000)
    return lambda answer: _docling(parse_deepseekocr_markdown(answer, size, 1, normalize_heading_levels=False), 1000)


def unlimited() -> Reader:
    from docling.utils.deepseekocr_utils import parse_unlimited_ocr_markdown
    from docling_core.types.doc import Size

    size = Size(width=1000, height=1000)
    return lambda answer: _docling(parse_unlimited_ocr_markdown(answer, size, 1, normalize_heading_levels=False), 1000)


def doctags() -> Reader:
    from docling_core.types.doc import DoclingDocument
    from docling_core.types.doc.doctags import DocTagsDocument, DocTagsPage
    from PIL import Image

    page = Image.new("L", (500, 500))

    def read(answer: str) -> Reading:
        pages = DocTagsDocument(pages=[DocTagsPage(tokens=answer, image=page)])
        return _docling(DoclingDocument.load_from_doctags(pages), 500)

    return read


READERS = {
    "chandra": chandra,
    "surya": surya,
    "surya-layout": surya_layout,
    "olmocr": olmocr,
    "glm": glm,
    "glm-regions": glm_regions,
    "mineru-layout": mineru_layout,
    "otsl-mineru": otsl_mineru,
    "otsl-paddle": otsl_paddle,
    "dots": dots,
    "deepseek": deepseek,
    "unlimited": unlimited,
    "doctags": doctags,
}


def reading(read: Reader, answer: str) -> Reading:
    """One answer; what the program raises is its reading too."""
    try:
        return read(answer)
    except Exception as error:  # noqa: BLE001 - whatever it raises is what it makes of the answer
        said = " ".join(str(error).split())
        return {"error": f"{type(error).__name__}: {said[:200]}"}


def main() -> int:
    logging.disable(logging.CRITICAL)
    with contextlib.redirect_stdout(sys.stderr):  # some print what they think of an answer
        read = READERS[sys.argv[1]]()
        found = [reading(read, answer) for answer in json.load(sys.stdin)]
    json.dump(found, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
