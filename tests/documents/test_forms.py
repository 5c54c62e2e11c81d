"""Check boxes of forms are marks in the text; pages that stand for other content are named."""

import pytest
from pdf_writing import PAPER, pages, pdf, stream, text, written
from test_rendering import outcome, with_renderer

from llm_ocr.documents.pdf_objects import CheckBox, with_check_boxes
from llm_ocr.types import Box, Line, PageContent


def form(*fields: tuple[str, int, int, bool]) -> bytes:
    """A PDF page of check boxes: label, left edge of the box, its bottom, and whether it is checked."""
    drawn = b"".join(text(label, x=100, y=bottom + 2) for label, _, bottom, _ in fields)
    refs = b" ".join(b"%d 0 R" % (5 + at) for at in range(len(fields)))
    font = b"<</ZaDb<</Type/Font/Subtype/Type1/BaseFont/ZapfDingbats>>>>"
    look = b"/Type/XObject/Subtype/Form/BBox[0 0 12 12]/Resources<</Font%s>>" % font
    widgets = (
        b"<</Type/Annot/Subtype/Widget/FT/Btn/T(f%d)/F 4/Rect[%d %d %d %d]/AS/%s/V/%s/AP<</N<</Yes 4 0 R>>>>>>"
        % (at, left, bottom, left + 12, bottom + 12, *2 * [b"Yes" if checked else b"Off"])
        for at, (_, left, bottom, checked) in enumerate(fields)
    )
    return pages(
        drawn,
        attributes=PAPER + b"/Annots[%s]" % refs,
        extra=(stream(b"BT /ZaDb 12 Tf 1 2 Td (4) Tj ET", look), *widgets),
        catalog=b"/AcroForm<</Fields[%s]>>" % refs,
    )


def read(tmp_path, data: bytes):
    file = written(tmp_path / "form.pdf", data)
    return with_renderer(lambda renderer: outcome(renderer, file), text_layer=True)


@pytest.mark.parametrize(("left", "shown"), [(84, "{mark} {label}"), (190, "{label} {mark}")])
def test_checked_and_empty_boxes_are_marks_beside_their_labels(tmp_path, left, shown):
    page = read(tmp_path, form(("Crane needed", left, 700, True), ("Pilot needed", left, 660, False)))
    expected = [shown.format(mark="☑", label="Crane needed"), shown.format(mark="☐", label="Pilot needed")]
    assert [line.text for line in page.content.lines] == expected


def test_boxes_leave_lines_without_words_as_they_are():
    lines = Line("Crane needed", Box(100, 90, 200, 102), 12), Line("Pilot needed", Box(100, 130, 200, 142), 12)
    content = PageContent(612, 792, lines)
    marked = with_check_boxes(content, [CheckBox(Box(300, 300, 312, 312), checked=True)])
    assert [line.text for line in marked.lines] == ["Crane needed", "Pilot needed", "☑"]


def test_a_box_without_a_label_is_a_line(tmp_path):
    page = read(tmp_path, form(("Crane needed", 400, 700, True)))
    assert sorted(line.text for line in page.content.lines) == ["Crane needed", "☑"]


CROSS = b"2 2 m 10 10 l 2 10 m 10 2 l S"
FULL = b"0 0.4 1 rg 0 0 12 12 re f"
EMPTY = b"0 0 12 12 re S"


def drawn(*shapes: tuple[str, int, int, bytes]) -> bytes:
    """A PDF page of lines with drawn shapes: label, left edge and bottom of the shape, and how it is drawn."""
    return pages(
        b"".join(
            text(label, x=100, y=bottom + 2) + b"q 1 0 0 1 %d %d cm %s Q " % (left, bottom, how)
            for label, left, bottom, how in shapes
        )
    )


@pytest.mark.parametrize("mark", [EMPTY + b" " + CROSS, FULL, EMPTY + b" BT /F 12 Tf 2 2 Td (X) Tj ET"])
@pytest.mark.parametrize(("left", "shown"), [(84, "{mark} {label}"), (190, "{label} {mark}")])
def test_drawn_boxes_are_marks_beside_their_labels(tmp_path, mark, left, shown):
    page = read(tmp_path, drawn(("Crane needed", left, 700, mark), ("Pilot needed", left, 660, EMPTY)))
    expected = [shown.format(mark="☑", label="Crane needed"), shown.format(mark="☐", label="Pilot needed")]
    assert [line.text for line in page.content.lines] == expected


@pytest.mark.parametrize(
    "shapes",
    [
        [("Crane", 84, 700, FULL), ("Pilot", 84, 660, FULL)],  # bullets
        [("Salt", 84, 700, FULL), ("Oil", 84, 680, b"0.6 g 0 0 12 12 re f"), ("Tar", 84, 660, EMPTY)],  # a legend
        [("Code", 84, 700, EMPTY), ("", 84, 688, EMPTY)],  # fields for single letters
        [("Crane", 84, 700, EMPTY), ("", 300, 400, EMPTY)],  # symbols of a chart
    ],
)
def test_shapes_of_drawings_are_no_check_boxes(tmp_path, shapes):
    page = read(tmp_path, drawn(*shapes))
    assert not any(mark in line.text for line in page.content.lines for mark in "☑☐")


def filled(value: bytes, *, inherited: bool = False) -> bytes:
    """Two pages with a line of text, each with a text field that shows a value.

    In the font of the line, `#` is the letter a. With `inherited`, the pages have it from the page tree.
    """
    fonts = b"/Resources<</Font<</F 4 0 R>>>>"
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 5 0 R/Annots[%s]%s>>"
    field = b"<</Type/Annot/Subtype/Widget/FT/Tx/T(f)/F 4/V(%s)/Rect[72 600 272 620]/AP<</N 8 0 R>>>>" % value
    return pdf(
        b"<</Type/Catalog/Pages 2 0 R/AcroForm<</Fields[7 0 R 9 0 R]>>>>",
        b"<</Type/Pages/Kids[3 0 R 6 0 R]/Count 2%s>>" % (fonts if inherited else b""),
        page % (b"7 0 R", b"" if inherited else fonts),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding<</Differences[35/a]>>>>",
        stream(text("The number of the cr#ne", y=700)),
        page % (b"9 0 R", b"" if inherited else fonts),
        field,
        stream(b"BT /F 12 Tf 2 4 Td (%s) Tj ET" % value, b"/Type/XObject/Subtype/Form/BBox[0 0 200 20]" + fonts),
        field,
    )


@pytest.mark.parametrize("inherited", [False, True])
def test_a_form_page_does_not_depend_on_what_was_read_before(tmp_path, inherited):
    file = written(tmp_path / "form.pdf", filled(b"Value 4821", inherited=inherited))

    async def in_order(renderer, *numbers):
        return {number: await outcome(renderer, file, number) for number in numbers}

    first = with_renderer(lambda renderer: in_order(renderer, 1, 2), text_layer=True)
    second = with_renderer(lambda renderer: in_order(renderer, 2, 1), text_layer=True)
    assert first == second
    for page in first.values():
        assert [words for words, _ in page.evidence.lines] == ["The number of the crane", "Value 4821"]
        assert [line.text for line in page.content.lines] == ["The number of the crane", "Value 4821"]


def test_free_text_without_an_appearance_is_read(tmp_path):
    note = b"<</Type/Annot/Subtype/FreeText/F 4/Rect[72 600 372 640]/DA(/Helv 12 Tf 0 g)/Contents(The fee is 48.20)>>"
    file = pages(text("The number of the crane", y=700), attributes=b"/MediaBox[0 0 612 792]/Annots[%s]" % note)
    page = read(tmp_path, file)
    for lines in ([words for words, _ in page.evidence.lines], [line.text for line in page.content.lines]):
        assert lines == ["The number of the crane", "The fee is 48.20"]


XFA = b"/AcroForm<</Fields[]/XFA 5 0 R>>"
PORTFOLIO = b"/PageMode/UseAttachments/Names<</EmbeddedFiles<</Names[(list.pdf)4 0 R]>>>>"


def cover(catalog: bytes, count: int = 1) -> bytes:
    """A PDF of equal pages whose catalog names an XFA form or an attached file."""
    attached = (b"<</Type/Filespec/F(list.pdf)/UF(list.pdf)/EF<</F 5 0 R>>>>", stream(b"<xdp/>"))
    return pages(*count * [text("Please wait...")], extra=attached, catalog=catalog)


@pytest.mark.parametrize(
    ("data", "content"),
    [
        (cover(b"/NeedsRendering true" + XFA), "XFA"),
        (cover(XFA), "XFA"),
        (cover(PORTFOLIO), "portfolio, whose 1 attached files"),
    ],
)
def test_placeholder_pages_name_the_missing_content(tmp_path, data, content):
    assert content in read(tmp_path, data).stands_for


@pytest.mark.parametrize(
    "data",
    [
        cover(b""),
        cover(PORTFOLIO, count=2),
        form(("Crane needed", 84, 700, True)),
    ],
)
def test_pages_with_their_own_content_are_no_placeholders(tmp_path, data):
    assert read(tmp_path, data).stands_for == ""
