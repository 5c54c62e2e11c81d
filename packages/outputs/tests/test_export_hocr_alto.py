"""`export --format hocr` and `alto`: valid files with every word in its place, which other tools read."""

import json
import re
from pathlib import Path

import html5lib
import pypdfium2
import pytest
from bad_documents import garbage, good_pages, text_pdf
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from ocrmypdf.hocrtransform import HocrParser

import llm_ocr
from llm_ocr.types import Block, BlockKind, Box, PageRecord, Reason, Span, Status
from llm_ocr_outputs.exports.hocr_alto import alto_page, hocr_document
from llm_ocr_outputs.words import FoundLine, PlacedPage, placed_words

ALTO = {"a": "http://www.loc.gov/standards/alto/ns-v4#"}
XHTML = {"h": "http://www.w3.org/1999/xhtml"}
SCHEMA = etree.XMLSchema(file=str(Path(__file__).with_name("alto-4-4-written.xsd")))


def line(y: float, *words: str, x: float = 0.1, **more) -> FoundLine:
    """Return a found line; each word is 0.1 wide and 0.02 high."""
    boxes = [Box(x + 0.1 * at, y, x + 0.1 * at + 0.09, y + 0.02) for at in range(len(words))]
    return FoundLine(tuple(zip(words, boxes, strict=True)), Box(x, y, boxes[-1].x1, y + 0.02), **more)


BLOCKS = (
    Block(BlockKind.HEADER, Box(0.1, 0.02, 0.5, 0.05), "Annals"),
    Block(BlockKind.PAGE_NUMBER, Box(0.8, 0.95, 0.9, 0.98), "xii"),
    Block(BlockKind.TITLE, Box(0.1, 0.1, 0.9, 0.14), "# The *Arlen*"),
    Block(BlockKind.TEXT, Box(0.1, 0.2, 0.9, 0.3), "It rose & fell & over<b>flowed</b> twice."),
    Block(BlockKind.TABLE, Box(0.1, 0.4, 0.9, 0.5), "| weir | level |\n|---|---|\n| Mill | 187 |"),
    Block(BlockKind.FIGURE, Box(0.1, 0.5, 0.5, 0.7), label="photo", figure_id="f1"),
    Block(BlockKind.FIGURE, Box(0.5, 0.5, 0.9, 0.7), label="chart", figure_id="f2", inside="axis"),
    Block(BlockKind.TEXT, Box(0.1, 0.8, 0.9, 0.82), "מים רבים"),
)
FOUND = (
    line(0.02, "Annals"),
    line(0.1, "The", "Arlen"),
    line(0.2, "It", "rose", "&", "fell", "&", "over-"),
    line(0.24, "flowed", "twice."),
    line(0.4, "weir", "level"),
    line(0.44, "Mill", "187"),
    line(0.8, "רבים", "מים", direction="left"),
    line(0.95, "xii", x=0.8),
)


def page(blocks=BLOCKS, found=FOUND, *, number=3, unsupported=(), dpi=150, **notes) -> PlacedPage:
    record = PageRecord(f"p{number}", "doc", "/in/a.pdf", number, 0, Status.OK, engine="dots", notes=notes)
    return PlacedPage(record, placed_words(blocks, found, unsupported=unsupported), 1000, 2000, dpi)


def failed(number: int) -> PlacedPage:
    row = PageRecord(f"p{number}", "doc", "/in/a.pdf", number, 0, Status.FAILED, Reason.ENGINE_TIMEOUT)
    return PlacedPage(row, (), 1000, 2000)


def alto_of(one: PlacedPage):
    tree = etree.fromstring(alto_page("in/a.pdf", one))
    SCHEMA.assertValid(tree)
    return tree


def hocr_of(*pages: PlacedPage):
    return etree.fromstring(hocr_document("in/a.pdf", pages))


def test_ocrmypdf_reads_the_words_of_hocr_with_their_boxes(tmp_path):
    (tmp_path / "a.hocr").write_bytes(hocr_document('in/a "b".pdf', [page(primary_language="he")]))
    read = HocrParser(tmp_path / "a.hocr").parse()
    assert (read.page_number, read.dpi, read.bbox.right, read.bbox.bottom) == (2, 150, 1000, 2000)
    words = {word.text: word.bbox for word in read.words}
    assert {"Annals", "Arlen", "twice.", "Mill", "187", "axis", "xii"} <= words.keys()
    box = words["Arlen"]
    assert (box.left, box.top, box.right, box.bottom) == (200, 200, 290, 240)
    (hebrew,) = [one for one in read.paragraphs if one.direction == "rtl"]
    assert [word.text for word in hebrew.words] == ["מים", "רבים"]


def test_hocr_names_the_roles_of_blocks():
    tree = hocr_of(page())
    roles = [one.get("class") for one in tree.findall(".//h:div[@class='ocr_page']/h:div", XHTML)]
    assert roles == [
        *("ocr_header", "ocr_pageno", "ocr_title", "ocr_carea", "ocr_table", "ocr_photo", "ocr_photo", "ocr_carea")
    ]
    used = {name for one in tree.iter() for name in (one.get("class") or "").split()}
    capabilities = tree.find(".//h:meta[@name='ocr-capabilities']", XHTML).get("content").split()
    assert used <= set(capabilities)
    assert tree.find(".//h:meta[@name='ocr-system']", XHTML).get("content").startswith("llm-ocr ")


def test_marks_of_words_are_properties_of_hocr_and_tags_of_alto():
    one = page(unsupported=[Span(3, 3, 7)])
    marked = [word for word in hocr_of(one).iterfind(".//h:span", XHTML) if "x_unsupported 1" in word.get("title")]
    assert [word.text for word in marked] == ["rose"]
    tree = alto_of(one)
    strings = tree.findall(".//a:String", ALTO)
    assert [word.get("CONTENT") for word in strings if "unsupported" in word.get("TAGREFS", "")] == ["rose"]
    estimated = {word.get("CONTENT") for word in strings if "estimated" in word.get("TAGREFS", "")}
    assert "axis" in estimated and "Mill" not in estimated
    assert not [one for one in tree.iter() if one.get("WC")]  # rows have no confidence of words
    assert "x_wconf" not in etree.tostring(hocr_of(one), encoding="unicode")


def test_broken_words_are_whole_in_both_formats():
    (first, second) = [word for word in alto_of(page()).iterfind(".//a:String", ALTO) if word.get("SUBS_TYPE")]
    assert (first.get("CONTENT"), first.get("SUBS_TYPE")) == ("over", "HypPart1")
    assert (second.get("CONTENT"), second.get("SUBS_TYPE")) == ("flowed", "HypPart2")
    assert first.get("SUBS_CONTENT") == second.get("SUBS_CONTENT") == "overflowed"
    assert first.getnext().tag.endswith("HYP")
    assert "over\u00ad" in [word.text for word in hocr_of(page()).iterfind(".//h:span[@class='ocrx_word']", XHTML)]


def test_alto_has_margins_tables_and_illustrations():
    tree = alto_of(page(primary_language="en"))
    (sheet,) = tree.findall(".//a:Page", ALTO)
    assert (sheet.get("PHYSICAL_IMG_NR"), sheet.get("PRINTED_IMG_NR"), sheet.get("LANG")) == ("3", "xii", "en")
    assert [one.tag.rpartition("}")[2] for one in sheet] == ["TopMargin", "BottomMargin", "PrintSpace"]
    texts = [[word.get("CONTENT") for word in one.iterfind(".//a:String", ALTO)] for one in sheet]
    assert texts[:2] == [["Annals"], ["xii"]]
    labels = {one.get("ID"): one.get("LABEL") for one in tree.find("a:Tags", ALTO)}
    space = sheet.find("a:PrintSpace", ALTO)
    kinds = [(one.tag.rpartition("}")[2], labels[one.get("TAGREFS")]) for one in space]
    assert kinds == [
        *(("TextBlock", "title"), ("TextBlock", "text"), ("ComposedBlock", "table"), ("Illustration", "figure")),
        *(("ComposedBlock", "figure"), ("TextBlock", "text")),
    ]
    (software,) = tree.findall(".//a:softwareName", ALTO)
    assert software.text == "llm-ocr"


@pytest.mark.parametrize(
    ("direction", "words", "base", "angle"),
    [
        ("right", "one two", "ltr", None),
        ("left", "מים רבים", "rtl", None),
        ("up", "one two", "btt", "90"),
        ("down", "one two", "ttb", "270"),
        ("down", "水位 上昇", "ttb", None),
    ],
)
def test_direction_of_lines_is_told(direction, words, base, angle):
    one = page([Block(BlockKind.TEXT, Box(0, 0, 1, 1), words)], [line(0.5, *words.split(), direction=direction)])
    assert alto_of(one).find(".//a:TextLine", ALTO).get("BASEDIRECTION") == base
    title = hocr_of(one).find(".//h:span[@class='ocr_line']", XHTML).get("title")
    assert (re.findall(r"textangle (\d+)", title) or [None]) == [angle]


def test_pages_that_failed_are_pages_without_words():
    tree = hocr_of(page(), failed(4))
    titles = [one.get("title") for one in tree.findall(".//h:div[@class='ocr_page']", XHTML)]
    assert ["ppageno 2" in titles[0], "ppageno 3" in titles[1], "scan_res" in titles[1]] == [True, True, False]
    assert alto_of(failed(4)).findall(".//a:String", ALTO) == []


@given(
    st.lists(st.text(max_size=12), max_size=4),
    st.sampled_from([*BlockKind]),
    st.lists(st.floats(-1, 2), min_size=4, max_size=4),
)
def test_any_text_gives_valid_files_with_all_words(texts, kind, sides):
    blocks = [Block(kind, Box(*sides), words, label=words) for words in texts]
    one = page(blocks, [line(0.2, "some", "words")], primary_language="x" * 3)
    strings = [word.get("CONTENT") for word in alto_of(one).iterfind(".//a:String", ALTO)]
    spans = [word.text for word in hocr_of(one).iterfind(".//h:span[@class='ocrx_word']", XHTML)]
    assert [word.replace("\u00ad", "") for word in spans] == [word.replace("\u00ad", "") for word in strings]
    placed = [word for block in one.blocks for some in block.lines for word in some.words]
    assert len(placed) == len(strings)
    as_html = html5lib.parse(hocr_document("a", [one]), namespaceHTMLElements=False)  # browsers read it as HTML
    assert len([word for word in as_html.iter("span") if word.get("class") == "ocrx_word"]) == len(strings)


@pytest.fixture(scope="module")
def read(golden) -> Path:
    """A workspace of two pages of a PDF, of a scan, and of a file that does not open; and its sources in `in`."""

    def make(folder: Path) -> None:
        (folder / "in").mkdir()
        (folder / "in/a.pdf").write_bytes(text_pdf(*good_pages("a", 2)))
        (folder / "in/gone.pdf").write_bytes(text_pdf(*good_pages("gone", 1)))
        (folder / "in/broken.pdf").write_bytes(garbage())
        given = {"engine": "embedded", "render_workers": 1, "ocr_workers": 1}
        llm_ocr.run(folder / "in", workspace=folder / "w", **given)
        (folder / "in/gone.pdf").unlink()

    return golden("hocr", make) / "w"


@pytest.mark.parametrize("form", ["hocr", "alto"])
def test_exported_words_are_where_the_page_has_them(read, tmp_path, form):
    done = llm_ocr.export(workspace=read, output=tmp_path / "o", format=form)
    files = sorted(
        path.relative_to(tmp_path / "o/documents").as_posix() for path in (tmp_path / "o/documents").rglob("*.*")
    )
    assert (done.files, done.unit) == ((1, "documents") if form == "hocr" else (2, "pages"))
    if form == "hocr":
        assert files == ["a.pdf.hocr"]
        found = HocrParser(tmp_path / "o/documents" / files[0]).parse()
        words = [(one.text, one.bbox.left, one.bbox.top, one.bbox.right, one.bbox.bottom) for one in found.words]
        width, dpi = found.bbox.right, found.dpi
    else:
        assert files == ["a.pdf.alto", "a.pdf.alto/0001.xml", "a.pdf.alto/0002.xml"]
        tree = etree.parse(tmp_path / "o/documents" / files[1])
        SCHEMA.assertValid(tree)
        sides = [
            [float(one.get(name)) for name in ("HPOS", "VPOS", "WIDTH", "HEIGHT")]
            for one in tree.iterfind(".//a:String", ALTO)
        ]
        texts = [one.get("CONTENT") for one in tree.iterfind(".//a:String", ALTO)]
        words = [(text, x, y, x + w, y + h) for text, (x, y, w, h) in zip(texts, sides, strict=True)]
        width = float(tree.find(".//a:Page", ALTO).get("WIDTH"))
        dpi = float(re.search(r"resolution: (\d+) dpi", etree.tostring(tree, encoding="unicode"))[1])
    with pypdfium2.PdfDocument(read.parent / "in/a.pdf") as pdf:
        scale = width / pdf[0].get_width()
        layer = pdf[0].get_textpage()
        assert [word[0] for word in words] == layer.get_text_range().split()
        assert dpi == pytest.approx(72 * scale, abs=0.6)
        for at, (text, *box) in enumerate(words[:5]):
            start = layer.get_text_range().index(text) if at else 0
            left, bottom, right, top = layer.get_charbox(start)
            middle = (left + right) / 2 * scale, (pdf[0].get_height() - (top + bottom) / 2) * scale
            assert box[0] - 1 <= middle[0] <= box[2] + 1 and box[1] - 1 <= middle[1] <= box[3] + 1


@pytest.mark.parametrize("form", ["hocr", "alto", "html", "pdf"])
def test_each_copy_of_a_document_gets_its_file(golden, tmp_path, form):

    def make(folder: Path) -> None:
        for name in ("x", "y"):
            (folder / "in" / name).mkdir(parents=True)
            (folder / "in" / name / "a.pdf").write_bytes(text_pdf(*good_pages("a", 1)))
        llm_ocr.run(folder / "in", workspace=folder / "w", engine="embedded", render_workers=1, ocr_workers=1)

    done = llm_ocr.export(workspace=golden("copies", make) / "w", output=tmp_path / "o", format=form)
    files = [path for path in (tmp_path / "o").rglob("*") if path.is_file() and "_llm-ocr" not in path.parts]
    (first,), (second,) = ([path for path in files if f"/{name}/a.pdf" in path.as_posix()] for name in "xy")
    assert first.read_bytes() == second.read_bytes()
    assert (done.rows, done.files) == (1, 2)


@pytest.mark.parametrize("form", ["hocr", "html", "pdf"])
def test_each_format_lists_documents_that_do_not_open(read, tmp_path, form):
    reasons = {"broken.pdf": "unreadable"} | ({} if form == "html" else {"gone.pdf": "not found"})
    for _ in range(2):
        done = llm_ocr.export(workspace=read, output=tmp_path / "o", format=form)
        listed = map(json.loads, (tmp_path / "o/failed-documents.jsonl").open())
        assert [(Path(one["source"]).name, one["reason"]) for one in listed] == list(reasons.items())
        assert done.failed == len(reasons)
        assert not [path for path in (tmp_path / "o").rglob("*broken*")]
    assert bool(done.written) is (form != "html")  # what never opened is not tried again
