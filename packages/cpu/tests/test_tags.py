"""Tagged PDF pages: blocks, order, headings, and tables are those that the tags name, if they fit the page."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import pypdfium2
import pytest

from llm_ocr.documents.files import FdFile
from llm_ocr.documents.pdf_file import Look, PdfFile
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.types import BlockKind, PageContent
from llm_ocr_cpu.page import laid_out
from llm_ocr_cpu.pdf_text import page_content


@dataclass
class Tagged:
    """Element with its text at `places` (x, y from the top, one of each row), or with elements in it."""

    kind: str
    rows: Sequence[tuple[float, float, str]] = ()
    inside: "Sequence[Tagged]" = ()
    attributes: str = ""
    size: float = 11
    marks: list[int] = field(default_factory=list)


def written(elements: Sequence[Tagged], outside: Sequence[tuple[float, float, str]] = (), drawn: str = "") -> bytes:
    """Return a PDF of one page with the elements as its tags, drawn in the order of the letters in `drawn`, if any."""
    stream: list[tuple[str, str]] = []
    objects: list[str] = []

    def add(text: str) -> int:
        objects.append(text)
        return len(objects)

    catalog, pages, page, font, tree = (add("") for _ in range(5))
    parents: list[int] = []

    def element(one: Tagged, parent: int) -> int:
        number = add("")
        kids = []
        for x, y, text in one.rows:
            mark = len(parents)
            parents.append(number)
            kids.append(str(mark))
            show = f"BT /F {one.size} Tf {x} {800 - y} Td ({text}) Tj ET"
            stream.append((text, f"/{one.kind} <</MCID {mark}>> BDC {show} EMC"))
        kids += [f"{element(child, number)} 0 R" for child in one.inside]
        objects[number - 1] = (
            f"<</Type/StructElem/S/{one.kind}/P {parent} 0 R/Pg {page} 0 R/K[{' '.join(kids)}]{one.attributes}>>"
        )
        return number

    roots = [element(one, tree) for one in elements]
    for x, y, text in outside:
        stream.append((text, f"/Artifact BMC BT /F 11 Tf {x} {800 - y} Td ({text}) Tj ET EMC"))
    stream.sort(key=lambda shown: drawn.find(shown[0][:1]))
    content = "\n".join(shown for _, shown in stream)
    body = add(f"<</Length {len(content)}>>\nstream\n{content}\nendstream")
    objects[catalog - 1] = f"<</Type/Catalog/Pages {pages} 0 R/MarkInfo<</Marked true>>/StructTreeRoot {tree} 0 R>>"
    objects[pages - 1] = f"<</Type/Pages/Kids[{page} 0 R]/Count 1>>"
    objects[page - 1] = (
        f"<</Type/Page/Parent {pages} 0 R/MediaBox[0 0 600 800]/Contents {body} 0 R/StructParents 0"
        f"/Resources<</Font<</F {font} 0 R>>>>>>"
    )
    objects[font - 1] = "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"
    order = " ".join(f"{parent} 0 R" for parent in parents)
    kids = " ".join(f"{root} 0 R" for root in roots)
    objects[tree - 1] = f"<</Type/StructTreeRoot/K[{kids}]/ParentTree<</Nums[0[{order}]]>>>>"
    data = "%PDF-1.7\n" + "".join(f"{number} 0 obj\n{text}\nendobj\n" for number, text in enumerate(objects, 1))
    return f"{data}trailer<</Root {catalog} 0 R/Size {len(objects) + 1}>>".encode("latin-1")


def content_of(*elements: Tagged, outside: Sequence[tuple[float, float, str]] = (), drawn: str = "") -> PageContent:
    with pypdfium2.PdfDocument(written(elements, outside, drawn)) as document:
        return page_content(document[0])


def markdown_of(*elements: Tagged, outside: Sequence[tuple[float, float, str]] = (), drawn: str = "") -> str:
    return blocks_to_markdown(laid_out(content_of(*elements, outside=outside, drawn=drawn)))


def prose(x: float, y: float, *rows: str) -> list[tuple[float, float, str]]:
    return [(x, y + 13 * number, row) for number, row in enumerate(rows)]


def test_blocks_beside_each_other_are_read_apart():
    left = Tagged("P", prose(50, 100, "signature of the owner", "and address of the property at the river"))
    right = Tagged("P", prose(320, 100, "date of the sale", "to the former owner"))
    assert markdown_of(left, right) == (
        "signature of the owner and address of the property at the river\n\ndate of the sale to the former owner"
    )


def test_a_page_with_a_note_keeps_its_tags(tmp_path):
    note = b"<</Type/Annot/Subtype/FreeText/F 4/Rect[50 500 350 540]/DA(/Helv 12 Tf 0 g)/Contents(Paid.)>>"
    texts = "Read this text on the right first.", "Then read the text on the left."
    elements = [Tagged("P", prose(x, 100, text)) for x, text in zip((320, 50), texts, strict=True)]
    (tmp_path / "note.pdf").write_bytes(written(elements).replace(b"/MediaBox", b"/Annots[%s]/MediaBox" % note))
    with (tmp_path / "note.pdf").open("rb") as file:
        look = Look(600, 600, "pdfium", 60.0, 1 << 30, "llm_ocr_cpu.pdf_text:page_content")
        content = PdfFile(FdFile(file.fileno(), "note.pdf"), (), look).content(1)
    assert content is not None
    assert blocks_to_markdown(laid_out(content)) == "\n\n".join([*texts, "Paid."])


def test_order_of_tags_is_the_reading_order():
    first = Tagged("P", prose(320, 100, "Read this text on the right first."))
    second = Tagged("P", prose(50, 100, "Then read the text on the left."))
    assert markdown_of(first, second).startswith("Read this text on the right first.")


def test_paragraphs_without_space_between_them_stay_apart():
    rows = ("Whereas the members have pledged themselves to promote the", "observance of rights,")
    more = ("Whereas a common understanding of these rights is of the", "greatest importance,")
    found = markdown_of(Tagged("P", prose(50, 100, *rows)), Tagged("P", prose(50, 126, *more)))
    assert found == f"{' '.join(rows)}\n\n{' '.join(more)}"


def test_heading_in_the_size_of_the_text_has_its_level():
    heading = Tagged("H3", prose(50, 100, "payments that are due"))
    text = Tagged("P", prose(50, 113, "They are listed in the annex of the", "contract with their dates."))
    (head, _) = laid_out(content_of(heading, text))
    assert (head.kind, head.level) == (BlockKind.HEADING, 3)


def table_of(*rows: Sequence[tuple[str, Sequence[tuple[float, float, str]]]], kind: str = "TD") -> Tagged:
    made = [Tagged("TR", inside=[Tagged(kind, places, attributes=more) for more, places in row]) for row in rows]
    return Tagged("Table", inside=made)


def test_cells_of_a_table_without_rules_are_those_of_its_tags():
    table = table_of(
        [("", prose(50, 100, "Offense")), ("", prose(200, 100, "Total")), ("", prose(300, 100, "Under 18"))],
        [("", prose(50, 113, "Violent crime")), ("", prose(200, 113, "467")), ("", prose(300, 113, "69"))],
        [("", prose(50, 126, "Murder and", "manslaughter")), ("", prose(200, 139, "10")), ("", [])],
    )
    assert markdown_of(table) == (
        "| Offense | Total | Under 18 |\n| --- | --- | --- |\n| Violent crime | 467 | 69 |\n"
        "| Murder and manslaughter | 10 |  |"
    )


def test_spans_of_cells_are_those_of_the_attributes():
    wide = "/A<</O/Table/ColSpan 2>>"
    table = table_of(
        [("", prose(50, 100, "County")), (wide, prose(250, 100, "Voters"))],
        [("", prose(50, 113, "Alcona")), ("", prose(200, 113, "8,842")), ("", prose(300, 113, "10,308"))],
    )
    assert '<th colspan="2">Voters</th>' in markdown_of(table)


def test_heads_without_spans_cover_the_columns_below_them():
    table = table_of(
        [("", prose(230, 100, "April")), ("", prose(430, 100, "July"))],
        [("", prose(x, 113, text)) for x, text in ((200, "Active"), (260, "All"), (400, "Active"), (460, "All"))],
        [("", prose(x, 126, text)) for x, text in ((200, "8,842"), (260, "9,308"), (400, "8,900"), (460, "9,400"))],
    )
    assert '<th colspan="2">April</th><th colspan="2">July</th>' in markdown_of(table)


def test_title_in_the_first_row_of_a_table_is_text():
    table = table_of(
        [("", prose(50, 80, "Arrests of the year, in thousands"))],
        [("", prose(50, 100, "Offense")), ("", prose(200, 100, "Total")), ("", prose(300, 100, "Men"))],
        [("", prose(50, 113, "Robbery")), ("", prose(200, 113, "100")), ("", prose(300, 113, "88"))],
    )
    found = markdown_of(table)
    assert found.startswith("Arrests of the year, in thousands\n\n| Offense | Total | Men |")


def test_empty_cells_keep_their_columns():
    table = table_of(
        [("", []), ("", prose(200, 100, "Alpha")), ("", prose(300, 100, "Beta"))],
        [("", prose(50, 113, "xray")), ("", prose(200, 113, "11")), ("", [])],
        [("", prose(50, 126, "yoke")), ("", []), ("", prose(300, 126, "22"))],
    )
    assert markdown_of(table) == "|  | Alpha | Beta |\n| --- | --- | --- |\n| xray | 11 |  |\n| yoke |  | 22 |"


def test_cell_below_missing_cells_is_in_its_column():
    table = table_of(
        [("", prose(x, 100, text)) for x, text in ((50, "Ann"), (150, "Bob"), (250, "Cid"), (350, "Dan"))],
        [("", prose(250, 113, "Sum")), ("", prose(350, 113, "9"))],
        [("", prose(x, 126, text)) for x, text in ((50, "aa"), (150, "bb"), (250, "cc"), (350, "dd"))],
    )
    assert markdown_of(table).splitlines()[2] == "|  |  | Sum | 9 |"


@pytest.mark.parametrize(
    "rows",
    [
        [("/RowSpan 3", 150, "tall"), ("/ColSpan 2", 50, "wide")],  # the span of the second row meets that of the first
        [("/RowSpan 2", 50, "tall"), ("", 150, "wide")],  # a row between them has no text, and pdfium leaves it out
    ],
)
def test_cells_at_one_place_make_no_table(rows):
    (tall, x, _), (wide, left, _) = rows
    table = table_of(
        [(f"/A<</O/Table{tall}>>" if at == x else "", prose(at, 100, f"one{at}")) for at in (50, 150, 250)],
        *([[("", []), ("", [])]] if not wide else []),
        [(f"/A<</O/Table{wide}>>" if at == left else "", prose(at, 126, f"two{at}")) for at in (50, 150, 250)],
    )
    found = markdown_of(table)
    assert "|" not in found
    assert all(f"{word}{at}" in found for word in ("one", "two") for at in (50, 150, 250))


def test_spans_of_a_hostile_file_end_soon():
    wide = "/A<</O/Table/ColSpan 1000/RowSpan 1000>>"
    rows = [[(wide, prose(50 + 90 * x, 20 + 9 * y, f"c{x}" if x < 6 else "")) for x in range(60)] for y in range(80)]
    assert len(markdown_of(table_of(*rows))) < 20_000


def cells(y: float, *texts: str) -> list[tuple[str, Sequence[tuple[float, float, str]]]]:
    return [("", prose(x, y, text) if text else []) for x, text in zip((50, 200, 300), texts, strict=True)]


def test_section_title_in_a_table_stays_in_its_column():
    title = [("", prose(50, 113, "Income of the households in the year here"))]
    table = table_of(cells(100, "Name", "2019", "2020"), title, cells(126, "North", "11", "12"))
    assert markdown_of(table).splitlines()[2] == "| Income of the households in the year here |  |  |"


def test_span_above_the_width_of_a_table_adds_no_columns():
    title = [("/A<</O/Table/ColSpan 9>>", prose(50, 113, "Income of the year"))]
    table = table_of(cells(100, "Name", "2019", "2020"), title, cells(126, "North", "11", "12"))
    assert '<td colspan="3">Income of the year</td>' in markdown_of(table)


def test_figure_in_a_cell_keeps_its_text_there():
    table = table_of(cells(100, "Name", "2019", "2020"), cells(113, "", "11", "12"), cells(126, "South", "13", "14"))
    table.inside[1].inside[0].inside = [Tagged("Figure", prose(50, 113, "North"))]
    assert "| North | 11 | 12 |" in markdown_of(table)


def test_cells_without_a_row_keep_their_place():
    loose = Tagged("Table", inside=[Tagged("TD", prose(50, 140, "alpha cell")), Tagged("TD", prose(300, 140, "beta"))])
    before, after = Tagged("P", prose(50, 100, "Text before it.")), Tagged("P", prose(50, 180, "Text after it."))
    found = markdown_of(Tagged("Document", inside=[before, loose, after]))
    assert [found.index(word) for word in ("before", "alpha", "beta", "after")] == sorted(
        found.index(word) for word in ("before", "alpha", "beta", "after")
    )


def test_list_in_a_cell_comes_before_the_next_row():
    duties = Tagged("TD", inside=[Tagged("LI", prose(200, 100, "sweep")), Tagged("LI", prose(200, 113, "wash"))])
    rows = [
        Tagged("TR", inside=[Tagged("TD", prose(50, 100, "Duties")), duties]),
        Tagged("TR", inside=[Tagged("TD", prose(50, 140, "Pay")), Tagged("TD", prose(200, 140, "500"))]),
    ]
    found = markdown_of(Tagged("Table", inside=rows))
    assert found.index("wash") < found.index("Pay")


def test_notes_in_the_last_row_of_a_table_follow_it():
    table = table_of(
        [("", prose(50, 100, "Offense")), ("", prose(200, 100, "Total")), ("", prose(300, 100, "Men"))],
        [("", prose(50, 113, "Robbery")), ("", prose(200, 113, "100")), ("", prose(300, 113, "88"))],
        [("", prose(50, 140, "Source of the table: the bureau"))],
    )
    assert markdown_of(table).endswith("| Robbery | 100 | 88 |\n\nSource of the table: the bureau")


def test_layout_in_a_table_is_read_as_text():
    words = "This column of the page has many words that nobody would write into a cell of a table. " * 5
    rows = [words[start : start + 50] for start in range(0, 450, 50)]
    table = table_of(
        [("", prose(50, 100, *rows)), ("", prose(320, 100, *rows))],
        [("", prose(50, 300, *rows)), ("", prose(320, 300, *rows))],
    )
    assert "|" not in markdown_of(table)
    assert "<td>" not in markdown_of(table)


def test_value_without_a_tag_stays_in_the_row_of_its_label():
    name, date = Tagged("P", prose(50, 100, "Name of the owner:")), Tagged("P", prose(50, 140, "Date of the sale:"))
    found = markdown_of(name, date, outside=[(200, 100, "Doe")])
    assert found.index("Doe") < found.index("Date")
    assert "Name of the owner:   Doe" in found


def test_value_with_a_tag_of_its_own_stays_beside_its_label():
    pairs = [("Invoice number:", "12345"), ("Date of the invoice:", "1 May 2020")]
    elements = [
        Tagged("P", prose(x, 100 + 20 * number, text))
        for number, pair in enumerate(pairs)
        for x, text in zip((50, 180), pair, strict=True)
    ]
    assert markdown_of(*elements) == "Invoice number:   12345\n\nDate of the invoice:   1 May 2020"


def test_value_of_two_lines_is_one_block():
    pairs = [Tagged("P", prose(50, 100, "Address:")), Tagged("P", prose(120, 100, "12 Main Street in the", "old town"))]
    assert markdown_of(*pairs) == "Address:\n\n12 Main Street in the old town"


def test_row_without_a_tag_stays_in_its_paragraph():
    rows = [f"This is row {number} of a paragraph with a row that" for number in range(5)]
    places = prose(50, 100, *rows)
    paragraph = Tagged("P", [*places[:2], *places[3:]])
    assert markdown_of(paragraph, outside=[places[2]]) == " ".join(rows)


def test_untagged_rows_are_read_together():
    left = Tagged("P", prose(50, 100, "The rows below have no tag."))
    right = [Tagged("P", prose(320, 100 + 40 * number, f"Right text {number} ends.")) for number in range(5)]
    found = markdown_of(left, *right, outside=prose(50, 120, *(f"row {number} of a list" for number in range(4))))
    assert found.index("row 3") < found.index("Right text 1")


def test_paragraph_on_two_pages_has_the_text_of_its_page():
    shared = Tagged("P", prose(50, 100, "which ends on this page."))
    last = Tagged("P", prose(50, 160, "No one shall be arrested."))
    heading = Tagged("H1", prose(50, 130, "Article 9"))
    data = written([shared, heading, last]).replace(b"/K[0]", b"/K[2 0]")  # number 2 is on the page before
    with pypdfium2.PdfDocument(data) as document:
        lines = page_content(document[0]).lines
    assert [line.tag for line in lines] == [0, 1, 2]


def test_page_number_with_a_tag_is_left_out_beside_a_header():
    text = Tagged("P", prose(50, 100, *("The text of the page has some rows that are full of words",) * 20))
    number = Tagged("P", prose(300, 780, "17"))
    found = markdown_of(text, number, outside=[(50, 30, "Header of all pages")])
    assert "17" not in found


def test_mark_of_an_item_near_the_edge_is_no_page_number():
    item = Tagged("LI", [(50, 60, "6"), (90, 60, "Using the checker of the program")])
    text = Tagged("P", prose(50, 100, *("The text of the page has some rows that are full of words",) * 20))
    assert "6 Using the checker" in markdown_of(item, text, outside=[(50, 30, "Header of all pages")])


@pytest.mark.parametrize("kind", ["P", "Span"])
def test_tags_of_single_rows_are_not_used(kind):
    rows = (
        "Gage height records were collected at the site downstream",
        "of the bridge and are contained in the reports of the water",
        "service until the station was moved upstream in the year of",
        "the flood that destroyed the old bridge and its pier.",
    )
    elements = [Tagged(kind, prose(50, 100 + 13 * number, row)) for number, row in enumerate(rows)]
    assert content_of(*elements).tags == ()
    assert markdown_of(*elements) == " ".join(rows)


def test_tags_against_the_order_of_a_column_are_not_used():
    texts = ("First of the texts.", "Second of the texts.", "Third of the texts.", "Fourth of the texts.")
    elements = [Tagged("P", prose(50, 100 + 40 * number, text)) for number, text in enumerate(texts)]
    assert content_of(*reversed(elements)).tags == ()
    assert markdown_of(*reversed(elements)) == "\n\n".join(texts)


def test_tags_of_little_text_are_not_used():
    few = Tagged("P", prose(50, 100, "Only this row has a tag."))
    content = content_of(few, outside=[(50, 140, "All other rows of the page have none."), (50, 160, "As this one.")])
    assert content.tags == ()


def test_tree_that_holds_its_elements_many_times_ends():
    element = Tagged("P", prose(50, 100, "Text of the page."))
    for _ in range(60):
        element = Tagged("Span", inside=[element])
    data = re.sub(rb"K\[(\d+ 0 R)\]", rb"K[\1 \1]", written([element]))
    with pypdfium2.PdfDocument(data) as document:
        assert [line.text for line in page_content(document[0]).lines] == ["Text of the page."]
