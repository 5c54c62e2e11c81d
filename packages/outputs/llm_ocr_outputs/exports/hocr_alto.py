"""Export with `format=hocr` and `format=alto`: words with their places, in the formats of OCR tools and archives."""

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from xml.etree import ElementTree as ET

from llm_ocr.exporting import Exported, ExportJob
from llm_ocr.results.documents import FOLDER
from llm_ocr.results.joining import is_cjk
from llm_ocr.results.markdown import clean
from llm_ocr.types import Block, BlockKind, Box
from llm_ocr.workspace import library_version
from llm_ocr_outputs.files import File
from llm_ocr_outputs.originals import Originals, export_originals
from llm_ocr_outputs.source import Document, language_of
from llm_ocr_outputs.words import PlacedBlock, PlacedLine, PlacedPage, PlacedWord

# Both formats have the page's blocks in reading order, with lines and words, and boxes in pixels of the page as it was
# read (`rotation` applied). Words have no confidence: rows have none. A word without support is marked, and one whose
# place is an estimate.


#: Characters that XML 1.0 cannot contain.
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def _text(words: str) -> str:
    return _NO_XML.sub("\ufffd", clean(words))


def _pixels(box: Box, page: PlacedPage) -> tuple[int, int, int, int]:
    scaled = box.clipped().scaled(page.width, page.height)
    return round(scaled.x0), round(scaled.y0), round(scaled.x1), round(scaled.y1)


def _around(boxes: Iterable[Box]) -> Box:
    return reduce(Box.union, boxes)


def _extent(placed: PlacedBlock) -> Box:
    """Return the box around a block, its continuation, and its lines."""
    return _around([placed.block.box, *placed.block.continued, *(line.box for line in placed.lines)])


def _is_broken(word: PlacedWord) -> bool:
    """Return whether a hyphen is in place of the rest of the word; scripts without spaces have none."""
    return word.continues and not is_cjk(word.text[-1])


def plain_text(page: PlacedPage) -> str:
    """Return the text of a page: a line for each of its lines, with hyphens, and a blank line between blocks."""

    def shown(line: PlacedLine) -> str:
        return " ".join(word.text for word in line.words) + "-" * (bool(line.words) and _is_broken(line.words[-1]))

    return "\n\n".join("\n".join(map(shown, placed.lines)) for placed in page.blocks if placed.lines)


# hOCR 1.2 (https://kba.github.io/hocr-spec/1.2/), as XHTML: one file per document. Readers look for `ocr_page`,
# `ocr_par`, `ocr_line`, and `ocrx_word` as the whole value of `class`, so our marks are properties, whose names begin
# with `x_` (section 3.2): `x_unsupported 1` and `x_estimated 1`.


_CLASSES = {
    **{BlockKind.TITLE: "ocr_title", BlockKind.TABLE: "ocr_table", BlockKind.FORMULA: "ocr_display"},
    **{BlockKind.FIGURE: "ocr_photo", BlockKind.CAPTION: "ocr_caption", BlockKind.FOOTNOTE: "ocr_textfloat"},
    **{BlockKind.HEADER: "ocr_header", BlockKind.FOOTER: "ocr_footer", BlockKind.PAGE_NUMBER: "ocr_pageno"},
}
_CAPABILITIES = (
    "ocr_page",
    "ocr_carea",
    "ocr_par",
    "ocr_line",
    "ocrx_word",
    *_CLASSES.values(),
    "ocrp_lang",
    "ocrp_dir",
)
_DOCTYPE = (
    '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN"'
    ' "http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">'
)


def hocr_document(title: str, pages: Sequence[PlacedPage]) -> bytes:
    """Return a document as hOCR.

    Args:
        title: Its path or URL.
        pages: Its pages in order; pages that could not be read have no blocks.

    Returns:
        XHTML in UTF-8. A page has `bbox`, `ppageno` (from 0), `image`, and `scan_res` if the resolution is known.
    """
    html = ET.Element("html", {"xmlns": "http://www.w3.org/1999/xhtml"})
    head = ET.SubElement(html, "head")
    ET.SubElement(head, "title").text = _text(title)
    ET.SubElement(head, "meta", {"http-equiv": "Content-Type", "content": "text/html; charset=utf-8"})
    about = {
        "ocr-system": f"llm-ocr {library_version()}",
        "ocr-capabilities": " ".join(_CAPABILITIES),
        "ocr-number-of-pages": str(len(pages)),
        "ocr-langs": " ".join(sorted({language_of(page.record) for page in pages} - {""})) or "unknown",
    }
    for name, content in about.items():
        ET.SubElement(head, "meta", {"name": name, "content": content})
    body = ET.SubElement(html, "body")
    for page in pages:
        body.append(_hocr_page(title, page))
    text = ET.tostring(html, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{_DOCTYPE}\n{text}\n'.encode()


def _hocr_page(title: str, page: PlacedPage) -> ET.Element:
    number = page.record.page_number or 1
    name = _text(title).replace("\\", "\\\\").replace('"', '\\"')
    properties = f'image "{name}"; bbox 0 0 {page.width} {page.height}; ppageno {number - 1}'
    if page.dpi:
        properties += f"; scan_res {page.dpi} {page.dpi}"
    language = language_of(page.record)
    about = {
        "class": "ocr_page",
        "id": f"page_{number}",
        "title": properties,
        **({"lang": language} if language else {}),
    }
    element = ET.Element("div", about)
    element.text = element.tail = "\n"
    for at, placed in enumerate(page.blocks, 1):
        box = f"bbox {' '.join(map(str, _pixels(_extent(placed), page)))}"
        kind = _CLASSES.get(placed.block.kind, "ocr_carea")
        area = ET.SubElement(element, "div", {"class": kind, "id": f"block_{number}_{at}", "title": box})
        area.text = area.tail = "\n"
        if placed.lines:
            paragraph = ET.SubElement(area, "p", {"class": "ocr_par", "id": f"par_{number}_{at}", "title": box})
            paragraph.text = paragraph.tail = "\n"
            paragraph.set("dir", "rtl" if all(line.direction == "left" for line in placed.lines) else "ltr")
            for place, line in enumerate(placed.lines, 1):
                paragraph.append(_hocr_line(f"{number}_{at}_{place}", line, page))
    return element


def _hocr_line(place: str, line: PlacedLine, page: PlacedPage) -> ET.Element:
    properties = f"bbox {' '.join(map(str, _pixels(line.box, page)))}"
    angle = _angle(line)
    if angle:
        properties += f"; textangle {angle}"
    element = ET.Element("span", {"class": "ocr_line", "id": f"line_{place}", "title": properties})
    element.tail = "\n"
    for at, word in enumerate(line.words, 1):
        title = f"bbox {' '.join(map(str, _pixels(word.box, page)))}"
        title += "; x_unsupported 1" if word.unsupported else ""
        title += "" if word.aligned else "; x_estimated 1"
        one = ET.SubElement(element, "span", {"class": "ocrx_word", "id": f"word_{place}_{at}", "title": title})
        one.text = _text(word.text) + ("\u00ad" if _is_broken(word) else "")
        one.tail = " " if at < len(line.words) else None
    return element


def _angle(line: PlacedLine) -> int:
    """Return the rotation of a line in degrees counterclockwise; 0 for upright letters, also below each other."""
    if line.direction == "up":
        return 90
    upright = 2 * sum(is_cjk(letter) for word in line.words for letter in word.text) > sum(
        len(word.text) for word in line.words
    )
    return 270 if line.direction == "down" and not upright else 0


# ALTO 4.4 (https://github.com/altoxml/schema, v4/alto-4-4.xsd): one file per page. METS and IIIF name one ALTO file for
# each image, and tools such as eScriptorium and Kitodo import such files. Running heads and page numbers are in the
# margins, as the schema says, and the other blocks in the print space, in reading order.


_NAMESPACE = "http://www.loc.gov/standards/alto/ns-v4#"
_SCHEMA = "https://www.loc.gov/standards/alto/v4/alto-4-4.xsd"
_DIRECTIONS = {"right": "ltr", "left": "rtl", "down": "ttb", "up": "btt"}
#: Marks of words: identifier, label, and description.
_MARKS = (
    ("unsupported", "unsupported", "Nothing on the page supports the text."),
    ("estimated", "estimated position", "The position of the text is an estimate."),
)


def alto_page(source: str, page: PlacedPage) -> bytes:
    """Return a page as ALTO.

    Args:
        source: Path or URL of its document.
        page: The page; one that could not be read has no blocks.

    Returns:
        XML in UTF-8, in pixels of the page as it was read.
    """
    record = page.record
    number = record.page_number or 1
    xsi = {"xmlns:xsi": "http://www.w3.org/2001/XMLSchema-instance", "xsi:schemaLocation": f"{_NAMESPACE} {_SCHEMA}"}
    alto = ET.Element("alto", {"xmlns": _NAMESPACE, **xsi, "SCHEMAVERSION": "4.4"})
    description = ET.SubElement(alto, "Description")
    ET.SubElement(description, "MeasurementUnit").text = "pixel"
    image = ET.SubElement(description, "sourceImageInformation")
    ET.SubElement(image, "fileName").text = _text(source)
    ET.SubElement(image, "documentIdentifier").text = _text(record.document_id)
    step = ET.SubElement(description, "Processing", {"ID": "llm-ocr"})
    ET.SubElement(step, "processingCategory").text = "contentGeneration"
    settings = [
        f"engine: {record.engine}",
        f"text from: {record.text_source}",
        f"resolution: {page.dpi or 'unknown'} dpi",
    ]
    ET.SubElement(step, "processingStepSettings").text = _text("; ".join(settings))
    software = ET.SubElement(step, "processingSoftware")
    ET.SubElement(software, "softwareName").text = "llm-ocr"
    ET.SubElement(software, "softwareVersion").text = library_version()
    tags = ET.SubElement(alto, "Tags")
    for kind in sorted({placed.block.kind for placed in page.blocks}):
        ET.SubElement(tags, "StructureTag", {"ID": f"kind-{kind}", "TYPE": "block", "LABEL": kind.value})
    for name, label, meaning in _MARKS:
        ET.SubElement(tags, "OtherTag", {"ID": name, "TYPE": "text", "LABEL": label, "DESCRIPTION": meaning})
    about = {"ID": f"page-{number}", "PHYSICAL_IMG_NR": str(number), "PROCESSINGREFS": "llm-ocr"}
    about |= {"WIDTH": str(page.width), "HEIGHT": str(page.height)}
    numbers = (placed.lines for placed in page.blocks if placed.block.kind is BlockKind.PAGE_NUMBER)
    printed = " ".join(word.text for lines in numbers for line in lines for word in line.words)
    about |= {"PRINTED_IMG_NR": _text(printed)} if printed else {}
    about |= {"LANG": language} if (language := language_of(record)) else {}
    element = ET.SubElement(ET.SubElement(alto, "Layout"), "Page", about)
    spaces = {name: list[tuple[int, PlacedBlock]]() for name in ("TopMargin", "BottomMargin", "PrintSpace")}
    for at, placed in enumerate(page.blocks, 1):
        spaces[_space(placed.block)].append((at, placed))
    for name, blocks in spaces.items():
        if blocks or name == "PrintSpace":
            box = _around(_extent(placed) for _, placed in blocks) if blocks else Box(0, 0, 1, 1)
            space = ET.SubElement(element, name, _position(box, page))
            for at, placed in blocks:
                space.append(_alto_block(at, placed, page))
    ET.indent(alto)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(alto, encoding="unicode")}\n'.encode()


def _space(block: Block) -> str:
    match block.kind:
        case BlockKind.HEADER:
            return "TopMargin"
        case BlockKind.FOOTER:
            return "BottomMargin"
        case BlockKind.PAGE_NUMBER:
            return "TopMargin" if block.box.centre[1] < 0.5 else "BottomMargin"
    return "PrintSpace"


def _position(box: Box, page: PlacedPage) -> dict[str, str]:
    left, top, right, bottom = _pixels(box, page)
    return {"HPOS": str(left), "VPOS": str(top), "WIDTH": str(right - left), "HEIGHT": str(bottom - top)}


def _alto_block(at: int, placed: PlacedBlock, page: PlacedPage) -> ET.Element:
    """Return a text block; of a table or a figure, a block that contains it."""
    kind = placed.block.kind
    about = {"ID": f"block-{at}", "TAGREFS": f"kind-{kind}", **_position(_extent(placed), page)}
    if kind not in (BlockKind.TABLE, BlockKind.FIGURE):
        return _alto_text(about, at, placed, page)
    label = {"TYPE": _text(placed.block.label or kind.value)}
    if kind is BlockKind.FIGURE and not placed.lines:
        return ET.Element("Illustration", about | label)
    composed = ET.Element("ComposedBlock", about | {"TYPE": kind.value})
    if kind is BlockKind.FIGURE:
        ET.SubElement(composed, "Illustration", {"ID": f"figure-{at}", **_position(placed.block.box, page), **label})
    if placed.lines:
        box = _around(line.box for line in placed.lines)
        composed.append(_alto_text({"ID": f"text-{at}", **_position(box, page)}, at, placed, page))
    return composed


def _alto_text(about: dict[str, str], at: int, placed: PlacedBlock, page: PlacedPage) -> ET.Element:
    block = ET.Element("TextBlock", about)
    words = [word for line in placed.lines for word in line.words]
    parts = _broken_words(words)
    count = 0
    for place, line in enumerate(placed.lines, 1):
        direction = {"BASEDIRECTION": _DIRECTIONS[line.direction]}
        element = ET.SubElement(
            block, "TextLine", {"ID": f"line-{at}-{place}", **direction, **_position(line.box, page)}
        )
        for number, word in enumerate(line.words, 1):
            string = {"ID": f"word-{at}-{place}-{number}", "CONTENT": _text(word.text), **_position(word.box, page)}
            string |= parts.get(count, {})
            marks = [*(["unsupported"] if word.unsupported else []), *([] if word.aligned else ["estimated"])]
            string |= {"TAGREFS": " ".join(marks)} if marks else {}
            ET.SubElement(element, "String", string)
            count += 1
            if number < len(line.words):
                ET.SubElement(element, "SP")
        if line.words and _is_broken(line.words[-1]):
            ET.SubElement(element, "HYP", {"CONTENT": "-"})
    return block


def _broken_words(words: Sequence[PlacedWord]) -> dict[int, dict[str, str]]:
    """Return the attributes of the parts of words that have two parts; ALTO has none for more parts."""
    found: dict[int, dict[str, str]] = {}
    for at, word in enumerate(words[:-1]):
        begins = at == 0 or not words[at - 1].continues
        if begins and _is_broken(word) and not words[at + 1].continues:
            whole = _text(word.text + words[at + 1].text)
            for number, part in enumerate(("HypPart1", "HypPart2")):
                found[at + number] = {"SUBS_TYPE": part, "SUBS_CONTENT": whole}
    return found


async def export_hocr(job: ExportJob) -> Exported:
    """Write a file `documents/<name>.hocr` for each document, without pages that failed. Errors as in `export_files`.

    A document whose source is gone, has changed, or cannot be opened is listed in `failed-documents.jsonl`.
    """

    def files(document: Document, pages: Sequence[PlacedPage]) -> list[File]:
        data = hocr_document(document.source, pages)
        return [File(f"{FOLDER}/{name}.hocr", data, int(place == 0)) for place, name in enumerate(document.names)]

    return await _export(job, "hocr", files, "documents")


async def export_alto(job: ExportJob) -> Exported:
    """Write a file `documents/<name>.alto/0001.xml` for each page that did not fail, as `export_hocr` otherwise."""

    def files(document: Document, pages: Sequence[PlacedPage]) -> list[File]:
        return [
            File(f"{FOLDER}/{name}.alto/{page.record.page_number:04d}.xml", data, int(place == 0))
            for page in pages
            for data in [alto_page(document.source, page)]
            for place, name in enumerate(document.names)
        ]

    return await _export(job, "alto", files, "pages")


async def _export(
    job: ExportJob, name: str, files: Callable[[Document, Sequence[PlacedPage]], list[File]], unit: str
) -> Exported:

    async def made(originals: Originals, document: Document) -> list[File]:
        return await asyncio.to_thread(files, document, await originals.pages(document))

    return await export_originals(job, name, made, lambda url: f"the files in {url}/{FOLDER}", unit)
