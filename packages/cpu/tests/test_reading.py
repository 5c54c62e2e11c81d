"""Which text of a page is believed: the text layer where it is true, else OCR; and what a page without either is."""

import io
import logging
from dataclasses import replace

import numpy
import pytest
from PIL import Image

import llm_ocr
from llm_ocr.documents.page_wire import to_wire
from llm_ocr.engines import EngineOptions
from llm_ocr.engines.trace import TIME, collected, decisions_to_wire, log_from_wire, note, tracing
from llm_ocr.errors import PageFailure, UsageError
from llm_ocr.types import (
    Attempt,
    Block,
    BlockKind,
    Box,
    EncodedImage,
    Line,
    Page,
    PageContent,
    Path,
    Raster,
    Reason,
    Status,
    Word,
)
from llm_ocr_cpu.layout_model import Hints
from llm_ocr_cpu.ocr import OcrPage, available
from llm_ocr_cpu.page import laid_out, read_page, read_text_layer
from llm_ocr_cpu.reader import EmbeddedReader

WORDS = "The quick brown fox jumps over the lazy dog near the river bank"


def image(shade: int = 255, mark: bool = True) -> EncodedImage:
    pixels = numpy.full((400, 300, 3), shade, numpy.uint8)
    if mark:
        pixels[100:120, 50:250] = 0
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return EncodedImage(out.getvalue(), "image/png", 300, 400)


def line(text: str, y: float = 100.0) -> Line:
    words = tuple(Word(word, Box(50 + 20 * i, y, 66 + 20 * i, y + 10)) for i, word in enumerate(text.split()))
    return Line(text, Box(50, y, 50 + 20 * len(words), y + 10), 10.0, words)


def page(content: PageContent | None, *, number: int = 2, mark: bool = True) -> Page:
    return Page("d-p00002", "d", number, image(mark=mark), content, "d.pdf")


class Ocr:
    """Stands for the models: what it is asked is counted, what it reads is given."""

    scripts = frozenset({"LATIN"})

    def __init__(
        self,
        *,
        probe: float | None = 0.0,
        lines: tuple[Line, ...] = (),
        unread: tuple[Box, ...] = (),
        rotation: int = 0,
    ):
        self.asked: list[str] = []
        self._probe, self._lines, self._unread, self._rotation = probe, lines, unread, rotation

    def __call__(self):
        return self

    def probe(self, pixels, content, *, scan=False):
        self.asked.append("probe")
        return self._probe

    def with_hints(self, image, lines):
        return Hints(lines)

    def read(self, pixels):
        self.asked.append("read")
        return OcrPage(self._lines, self._rotation, numpy.asarray(pixels), unread=self._unread)


def text_of(attempt) -> str:
    return " ".join(block.text for block in attempt.blocks)


def test_text_layer_without_doubts_is_read_without_models():
    ocr = Ocr()
    attempt = read_page(page(PageContent(300, 400, (line(WORDS),))), ocr, text_layer=True)
    assert (attempt.source, attempt.probe, ocr.asked) == ("text-layer", None, [])
    assert "quick brown fox" in text_of(attempt)


@pytest.mark.skipif(not available(), reason="OCR is not installed: extra embedded")
@pytest.mark.parametrize(("probe", "source"), [(0.0, "text-layer"), (None, "text-layer"), (0.9, "ocr")])
def test_first_page_is_probed_and_false_text_layer_not_trusted(probe, source):
    ocr = Ocr(probe=probe, lines=(line("what is really printed on this page here"),))
    attempt = read_page(page(PageContent(300, 400, (line(WORDS),)), number=1), ocr, text_layer=True)
    assert (attempt.source, attempt.probe) == (source, probe)
    assert ("really printed" in text_of(attempt)) == (source == "ocr")


@pytest.mark.skipif(not available(), reason="OCR is not installed: extra embedded")
@pytest.mark.parametrize(("scan", "source"), [(True, "ocr"), (False, "text-layer")])
def test_older_ocr_with_a_tenth_of_letters_wrong_is_read_again(scan, source):
    rasters = (Raster(Box(0, 0, 300, 400)),) if scan else ()
    content = PageContent(300, 400, (line(WORDS),), rasters=rasters)
    attempt = read_page(page(content, number=1), Ocr(probe=0.1, lines=(line(WORDS),)), text_layer=True)
    assert (attempt.source, attempt.probe) == (source, 0.1)


def test_a_stamp_on_a_scan_is_not_its_text():
    content = PageContent(300, 400, (line("Page 3"),), rasters=(Raster(Box(0, 0, 300, 400)),))
    attempt = read_page(page(content), Ocr(lines=(line(WORDS),)), text_layer=True)
    assert (attempt.source, attempt.status) == ("ocr", Status.OK)


def test_told_never_to_believe_text_layers_it_does_not():
    attempt = read_page(
        page(PageContent(300, 400, (line(WORDS),))), Ocr(lines=(line("from the picture"),)), text_layer=False
    )
    assert (attempt.source, "from the picture" in text_of(attempt)) == ("ocr", True)


def test_a_blank_page_is_ok_and_empty_and_needs_no_models():
    ocr = Ocr()
    attempt = read_page(page(PageContent(300, 400), mark=False), ocr, text_layer=True)
    assert (attempt.status, attempt.blocks, ocr.asked) == (Status.OK, (), [])


def test_a_page_that_shows_nothing_of_its_text_layer_is_marked():
    hidden = page(PageContent(300, 400, (line(WORDS),)), number=1, mark=False)
    attempt = read_page(hidden, Ocr(probe=1.0), text_layer=True)
    assert (attempt.status, attempt.reason, attempt.blocks) == (Status.DEGRADED, Reason.EMPTY, ())
    assert f"{len(WORDS)} invisible characters" in attempt.detail


@pytest.mark.parametrize("read", [read_text_layer, lambda page: read_page(page, Ocr(), text_layer=True)])
@pytest.mark.parametrize(
    ("kept", "said"), [(False, " were left out"), (True, ", of which those on the page were kept")]
)
def test_the_row_says_what_became_of_invisible_text(read, kept, said):
    attempt = read(page(PageContent(300, 400, (line(WORDS),), invisible=9, with_invisible=kept)))
    assert (attempt.status, text_of(attempt)) == (Status.OK, WORDS)
    assert attempt.detail == f"9 invisible characters of the text layer{said}"


@pytest.mark.parametrize("read", [read_text_layer, lambda page: read_page(page, Ocr(), text_layer=True)])
def test_a_text_layer_that_was_read_in_part_is_marked(read):
    attempt = read(page(PageContent(300, 400, (line(WORDS),), unread=1234)))
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.TRUNCATED)
    assert "1,234 characters" in attempt.detail
    assert text_of(attempt) == WORDS


def test_text_of_an_unknown_script_is_never_passed_off_as_read():
    few = Ocr(lines=(line("a little latin text in between"),), unread=(Box(0, 0, 9, 3),) * 20)
    attempt = read_page(page(None), few, text_layer=True)
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.SCRIPT_NOT_SUPPORTED)
    assert "`ocr_language=NAME`" in attempt.detail
    with pytest.raises(PageFailure) as failure:
        read_page(page(None), Ocr(unread=(Box(0, 0, 9, 3),) * 20), text_layer=True)
    assert failure.value.reason is Reason.SCRIPT_NOT_SUPPORTED


@pytest.mark.parametrize(("text", "known"), [("Nguy\ufffdn V\u0103n tr\ufffd ti\ufffdn", False), (WORDS, True)])
def test_letters_that_ocr_does_not_know_degrade_the_page(text, known):
    attempt = read_page(page(None), Ocr(lines=(line(text),)), text_layer=True)
    assert (attempt.status is Status.OK) == known
    assert attempt.reason is (None if known else Reason.SCRIPT_NOT_SUPPORTED)
    assert text_of(attempt) == text


def test_a_turned_page_comes_back_upright_with_its_angle():
    attempt = read_page(page(None), Ocr(lines=(line(WORDS),), rotation=90), text_layer=True)
    assert attempt.rotation == 90
    assert attempt.image is not None


def test_an_image_that_cannot_be_decoded_is_a_failed_page():
    broken = Page("d-p00001", "d", 1, EncodedImage(b"no image", "image/png", 1, 1), None)
    with pytest.raises(PageFailure) as failure:
        read_page(broken, Ocr(), text_layer=True)
    assert failure.value.reason is Reason.UNREADABLE


FRUGAL = {"engine": "embedded", "render_workers": 1, "ocr_workers": 1, "pages": "1"}


def labels_of(document, workspace, **settings):
    run = llm_ocr.extract(document, workspace=workspace, **FRUGAL, **settings)
    (page,) = run.pages()
    assert all(figure.image.data for figure in page.figures)
    return {figure.label for figure in page.figures}, page


@pytest.fixture(scope="module")
def usual(examples, tmp_path_factory):
    return labels_of(examples / "paper.pdf", tmp_path_factory.mktemp("usual"))


def test_no_figures_are_cut_out_when_none_are_wanted(examples, tmp_path, usual):
    labels, page = labels_of(examples / "paper.pdf", tmp_path, figures_from="none")
    assert (usual[0] != set(), labels) == (True, set())
    assert "![" not in page.markdown
    again = llm_ocr.extract(workspace=tmp_path, render_workers=1, ocr_workers=1)  # remembered
    assert again.status.stages["extract"].finished


def test_only_the_wanted_blocks_are_cut_out(examples, tmp_path, usual):
    labels, page = labels_of(examples / "paper.pdf", tmp_path / "w", crop="table")
    assert labels == {"table"}
    assert any(block.kind == "table" for block in page.blocks)
    (wanted,) = usual[0]
    assert labels_of(examples / "paper.pdf", tmp_path / "x", crop=f"{wanted},table")[0] >= {wanted}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"figures_from": "model"}, "the CPU engine has no model"),
        ({"crop": "image,sneal"}, "`crop=sneal`: the CPU engine does not detect such blocks"),
        ({"invisible_text": "keep", "text_layer": "never"}, "`invisible_text=keep` has no effect with `text_layer=nev"),
    ],
)
def test_what_the_cpu_engine_cannot_do_is_refused_first(tmp_path, settings, said):
    Image.new("L", (200, 200), "white").save(tmp_path / "blank.png")
    with pytest.raises(UsageError, match=said):
        llm_ocr.extract(tmp_path / "blank.png", workspace=tmp_path / "w", **FRUGAL, **settings)
    assert not (tmp_path / "w").exists()


LOGGER = logging.getLogger("llm_ocr.engines.trace")


def page_with_a_table():
    words = [("Item", "Count"), ("Nails", "40"), ("Screws", "250"), ("Hooks", "7")]
    lines = [
        Line(text, Box(110 + 200 * column, 105 + 30 * row, 170 + 200 * column, 117 + 30 * row), 12.0)
        for row, texts in enumerate(words)
        for column, text in enumerate(texts)
    ]
    rules = [Box(100, 95 + 30 * row, 500, 96 + 30 * row) for row in range(5)]
    rules += [Box(100 + 200 * column, 95, 101 + 200 * column, 216) for column in range(3)]
    page_number = Line("7", Box(296, 780, 304, 792), 12.0)
    paths = tuple(Path(box, None, (0, 0, 0), 1) for box in rules)
    return PageContent(600, 800, (*lines, page_number), (), paths)


def test_the_result_is_the_same_with_a_trace():
    content = page_with_a_table()
    before = laid_out(content)
    with collected() as decisions:
        assert tracing()
        assert laid_out(content) == before
    by_step = {one.step: one for one in decisions}
    assert by_step["table"].message == "ruled, 4 x 2"
    assert by_step["table"].facts["box"] == [0.1675, 0.1194, 0.8342, 0.2694], "the middles of the outer rules"
    assert by_step["furniture"].facts == {"text": "7"}
    assert [one.facts["name"] for one in decisions if one.step == TIME] == ["tables", "figures", "formulas", "layout"]
    count = len(decisions)
    laid_out(content)
    assert len(decisions) == count
    assert not tracing()


def test_collected_notes_are_not_logged_and_logger_is_restored(caplog):
    before = LOGGER.level, LOGGER.propagate, list(LOGGER.handlers)
    with caplog.at_level(logging.DEBUG, logger="llm_ocr"):
        with collected() as decisions:
            note("table", "ruled", rows=2)
        assert not caplog.records
        assert (LOGGER.level, LOGGER.propagate, LOGGER.handlers) == before
        note("table", "plain")
    assert [one.facts for one in decisions] == [{"rows": 2}]
    assert [record.getMessage() for record in caplog.records] == ["table: plain"]


def test_the_decisions_of_a_worker_are_logged_with_the_page():
    with collected() as there:
        note("furniture", "header", text="Confidential")
    with collected() as here:
        log_from_wire(decisions_to_wire(there), "a.pdf page 3")
    assert [str(one) for one in here] == ["a.pdf page 3: furniture: header"]
    assert here[0].facts == {"text": "Confidential"}


@pytest.mark.parametrize(("guesses", "confidence"), [(0, 1.0), (2, 0.8462), (13, 0.0)])
def test_confidence_is_the_share_of_words_that_are_no_guess(guesses, confidence):
    read = line(WORDS)
    words = [replace(word, confidence=0.35 if place < guesses else 1.0) for place, word in enumerate(read.words)]
    mostly_sure = replace(read, words=(*words, Word("—", Box(0, 0, 9, 9), confidence=0.2)), confidence=0.97)
    attempt = read_page(page(None), Ocr(lines=(mostly_sure,)), text_layer=True)
    assert attempt.confidence == confidence


def test_cell_that_ocr_cannot_read_counts_as_wrong_words():
    rows = [(x, 60 + 20 * row) for row in range(8) for x in (40, 120, 200)]
    cells = tuple(replace(line("town"), box=Box(x, y, x + 24, y + 10), confidence=0.99) for x, y in rows)
    cells = tuple(replace(cell, words=(Word("town", cell.box),)) for cell in cells)
    foreign = tuple(cell.box for cell in cells[4::6])
    outside = (Box(10, 10, 22, 20), Box(40, 300, 52, 310))
    attempt = read_page(page(None), Ocr(lines=cells, unread=outside), text_layer=True)
    assert attempt.confidence == 1.0
    known = tuple(cell for cell in cells if cell.box not in foreign)
    attempt = read_page(page(None), Ocr(lines=known, unread=(*outside, *foreign)), text_layer=True)
    assert attempt.confidence == round(20 / 24, 4)


def test_a_doubtful_ideograph_does_not_spoil_its_whole_line():
    text = "我能吞下玻璃而不伤身体"
    read = Line(text, Box(50, 100, 250, 110), 10.0, (Word(text, Box(50, 100, 250, 110), confidence=0.3),))
    attempt = read_page(page(None), Ocr(lines=(replace(read, confidence=0.97),)), text_layer=True)
    assert attempt.confidence is not None
    assert attempt.confidence >= 0.95


async def test_a_process_that_reads_pages_cannot_forge_costs_or_ids(monkeypatch):
    figure = Block(BlockKind.FIGURE, Box(0, 0, 1, 1), figure_id="of-another-page")
    forged = Attempt("", "ocr", Status.OK, (figure,), raw="x", tokens_in=10**12, tokens_out=10**12, tries=({"a": 1},))

    async def call(*_: object, **__: object) -> dict[str, object]:
        return {"attempt": to_wire(forged), "blocks": [to_wire(figure)], "digital": True, "detail": ""}

    reader = EmbeddedReader(EngineOptions(workers=1))
    monkeypatch.setattr(reader, "_call", call)
    found = await reader.read(page(None))
    assert (found.raw, found.tokens_in, found.tokens_out, found.tries) == ("", 0, 0, ())
    seen = await reader.inspect(page(None), hinted=False)
    assert [block.figure_id for block in (*found.blocks, *seen.blocks)] == ["", ""]
    await reader.close()
