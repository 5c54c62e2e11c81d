"""The text layer comes as lines and words in page units of the page as shown."""

import contextlib
import html
import re
import unicodedata
import zlib
from pathlib import Path

import numpy as np
import pypdfium2
import pytest
from pdf_writing import mapped, pages, placed, stream, text, written
from PIL import Image, ImageDraw
from test_rendering import outcome, with_renderer

from llm_ocr.cli.doctor import State, cjk_font
from llm_ocr.documents.ink import ink_of
from llm_ocr.documents.page_wire import from_wire, to_wire
from llm_ocr.types import Evidence, InkMap, PageContent, Script
from llm_ocr_cpu import pdf_glyphs
from llm_ocr_cpu.layout import page_blocks
from llm_ocr_cpu.page import laid_out
from llm_ocr_cpu.pdf_glyphs import _with_pairs_joined
from llm_ocr_cpu.pdf_text import page_content

#: The same page as Chromium and LibreOffice write it, with DejaVu Sans.
RIGHT_TO_LEFT = Path(__file__).parent / "fixtures" / "right_to_left"


def content(data, number=1):
    pdf = pypdfium2.PdfDocument(data)
    with contextlib.closing(pdf):
        return page_content(pdf[number - 1])


def lines(*drawn, **options):
    return content(pages(b"".join(drawn), **options)).lines


def texts(*drawn, **options):
    return [line.text for line in lines(*drawn, **options)]


def test_characters_beyond_the_limit_are_counted(monkeypatch):
    data = pages(text("Hello brave world"))
    assert content(data).unread == 0
    monkeypatch.setattr(pdf_glyphs, "MAX_CHARS", 5)
    cut = content(data)
    assert ([line.text for line in cut.lines], cut.unread) == (["Hello"], len(" brave world"))
    assert from_wire(PageContent, to_wire(cut)).unread == cut.unread


@pytest.mark.parametrize("mark", ["\u202e", "\u2066"])
def test_marks_of_direction_are_no_text(tmp_path, mark):
    # The space has the code of the mark in the font, and draws nothing.
    file = written(tmp_path / "a.pdf", mapped({ord(" "): mark}, b"BT /S 12 Tf 72 700 Td (Total 4821) Tj ET", 600))
    read = with_renderer(lambda renderer: outcome(renderer, file), text_layer=True)
    lines = [line.text for line in read.content.lines] + [words for words, _ in read.evidence.lines]
    assert [words.replace(" ", "") for words in lines] == 2 * ["Total4821"]


def told_as(told, code, drawn, face=b"Helvetica"):
    """The content of a page in a font that names a code."""
    data = mapped({ord(code): told}, b"BT /S 12 Tf 72 700 Td %s ET" % drawn, 600)
    page = pypdfium2.PdfDocument(data.replace(b"/BaseFont/Helvetica", b"/BaseFont/" + face.ljust(9)))[0]
    return page_content(page, None, page.render(scale=2).to_pil())


@pytest.mark.parametrize("told", ["\u200b", " ", "\ufeff", "\u00ad", "\u0301", "\u202e", "\u2066", "italic \u00ad"])
def test_letters_that_a_font_names_as_nothing_are_unmapped(told):
    slant = b"1 0 0.33 1 72 700 Tm " if told[:-1] else b""  # as Word makes italics
    found = told_as(told[-1], "e", slant + b"(He wove nets) Tj")
    assert "".join(line.text for line in found.lines).replace(" ", "") == "H\ufffdwov\ufffdn\ufffdts"
    assert found.unmapped == 3


@pytest.mark.parametrize(
    ("told", "code", "drawn"),
    [
        (" ", " ", b"(a b) Tj"),
        ("\u2066", " ", b"(a b) Tj"),
        ("\u00ad", "-", b"(a-b) Tj"),
        ("\u00a0", ".", b"(a.b) Tj"),
        (" ", "e", b"1 g (He wove nets) Tj"),  # white
        ("\u0338", "/", b"(=) Tj -7.2 0 Td (/) Tj"),  # an accent on its letter
    ],
)
def test_signs_that_are_no_letters_are_what_the_font_names(told, code, drawn):
    assert not told_as(told, code, drawn).unmapped


def test_wide_hyphens_named_as_soft_ones_are_hyphens():
    found = told_as("\u00ad", "-", b"(well-known) Tj", b"Courier")
    assert [line.text for line in found.lines] == ["well-known"]


def test_a_word_has_letters_of_one_script():
    cyrillic = [("T\u0430riff \u0430 b\u043ex", 72, 700)]
    found = content(placed(cyrillic))
    assert [word.text for line in found.lines for word in line.words] == ["Tariff", "a", "box"]


def test_underscores_below_words_are_no_text():
    drawn = text("Name: Alma Holt", x=72, y=700) + text("_" * 7, x=108, y=699)
    assert texts(drawn) == ["Name: Alma Holt"]
    for words in ("Name: ______", "the view FUNCTION_USAGE", "the word __init__", "the file firms___a"):
        assert texts(text(words)) == [words]


@pytest.mark.parametrize(
    ("width", "height", "raised", "found"), [(4.6, 0.5, 0, "_"), (9, 0.5, 0, " "), (4.6, 0.5, 4, " ")]
)
def test_underscore_drawn_as_rule_is_part_of_its_name(width, height, raised, found):
    rule = b" 101.9 %g %g %g re f " % (700 + raised, width, height)
    (line,) = lines(text("the st", x=72), rule, text("snapshot", x=102.4 + width))
    assert line.text == f"the st{found}snapshot"


def test_letter_with_accent_of_its_own_does_not_divide_its_word():
    parts = [("In N", 72), ("\xa8", 94.2), ("urnberg, f", 93.6), ("\xa8", 145.8), ("ur alle", 145.3)]
    assert texts(*(text(words, x=x) for words, x in parts)) == ["In Nürnberg, für alle"]


def test_a_line_has_words_a_size_and_a_box_with_y_down():
    (line,) = lines(text("Hello brave world", x=72, y=700, size=12))
    assert line.text == "Hello brave world"
    assert [word.text for word in line.words] == ["Hello", "brave", "world"]
    assert line.size == pytest.approx(12, abs=0.1)
    assert line.box.x0 == pytest.approx(72, abs=1)
    assert line.box.y0 < 792 - 700 < line.box.y1
    assert line.words[0].box.x1 < line.words[1].box.x0


def test_columns_and_table_cells_are_lines_of_their_own():
    rows = [(72, "left column"), (250, "right column")]
    drawn = [text(word, x=x, y=700 - 14 * row, size=10) for row in range(5) for x, word in rows]
    assert texts(*drawn) == ["left column", "right column"] * 5


def test_a_narrow_gutter_over_several_lines_separates_columns():
    # 1.2 times the font size apart, as in the narrowest two-column styles; Helvetica's "mmmm" is 33.3 points wide.
    drawn = [text("mmmm", x=x, y=700 - 12 * row, size=10) for row in range(6) for x in (100, 145.3)]
    assert len(lines(*drawn)) == 12


def test_a_stretched_line_of_a_justified_column_stays_whole():
    def row(y, gap):
        return f"BT /F 10 Tf {gap} Tw 1 0 0 1 72 {y} Tm (only four wide words) Tj ET\n".encode()

    assert texts(row(700, 0), row(688, 11), row(676, 0)) == ["only four wide words"] * 3


def test_a_list_mark_stays_with_its_item():
    drawn = [text(mark, x=72, y=700 - 12 * row, size=10) + text("item", x=92, y=700 - 12 * row, size=10)
             for row, mark in enumerate(["1.", "2.", "3."])]  # fmt: skip
    assert texts(*drawn) == ["1. item", "2. item", "3. item"]


def test_the_order_in_the_file_does_not_matter():
    shuffled = [text("world", x=110, y=700), text("second", y=680), text("Hello", x=72, y=700)]
    assert texts(*shuffled) == ["Hello world", "second"]


def test_a_script_joins_its_line_and_a_word_joins_its_script():
    drawn = text("energy mc", x=72, y=700) + text("2", x=128, y=704.5, size=7) + text("is known", x=136, y=700)
    (found,) = content(pages(drawn)).lines
    assert (found.text, found.scripts) == ("energy mc2 is known", (Script(9, 10),))


@pytest.mark.parametrize(
    ("size", "raised", "marked"),
    [
        *((7, 4.3, "sup"), (7, 3.6, "sup"), (8.3, 4, "sup"), (5.8, 3.3, "sup")),  # TeX, browsers, InDesign
        *((7, -1.5, "sub"), (7, -2.5, "sub"), (5.8, -0.8, "sub")),  # TeX, LibreOffice
        *((9, 4.5, "sup"), (9.7, 4.85, "sup"), (9.7, -4.85, "sub")),  # WeasyPrint
        *((7, 0, ""), (10, 2, ""), (16, 0, "")),  # small capitals, a tilted word, a large word
    ],
)
def test_scripts_are_known_by_their_size_and_baseline(size, raised, marked):
    drawn = text("the word", size=10) + text("3,4", x=111.6, y=700 + raised, size=size)
    (found,) = content(pages(drawn + text("and more of it", x=115 + 1.4 * size, size=10))).lines
    expected = {"sup": (Script(8, 11),), "sub": (Script(8, 11, lowered=True),), "": ()}[marked]
    assert (found.scripts, found.text.replace(" ", "")) == (expected, "theword3,4andmoreofit")


def test_text_that_touches_a_script_has_no_space_before_it():
    drawn = text("x", size=10) + text("2", x=77, y=697, size=7) + text("+y = 3", x=80.9, size=10)
    assert texts(drawn) == ["x2+y = 3"]


@pytest.mark.parametrize(("raised", "small"), [(2.5, 8), (0.5, 11.5)])
def test_latex_logo_is_read_as_its_name_without_scripts(raised: float, small: float):
    logo = [
        ("L", 110, 700, 12),
        ("A", 114, 700 + raised, small),
        ("T", 117.5, 700, 12),
        ("E", 123.5, 697, 12),
        ("X", 129.5, 700, 12),
    ]
    drawn = [text(letter, x=x, y=y, size=size) for letter, x, y, size in logo]
    (found,) = lines(text("with a"), *drawn, text("for the rest of a line", x=142))
    assert (found.text, found.scripts) == ("with a LaTeX for the rest of a line", ())


def test_small_print_and_text_over_scan_have_no_scripts():
    drawn = text("word", size=10) + text("3", x=94, y=704, size=7)
    assert len(content(pages(drawn)).lines[0].scripts) == 1
    assert lines(text("1", size=12) + text("all the rest in small print", x=80, y=704, size=7))[0].scripts == ()
    image = stream(b"0", b"/Type/XObject/Subtype/Image/Width 1/Height 1/ColorSpace/DeviceGray/BitsPerComponent 8")
    assert content(pages(b"q 612 0 0 792 0 0 cm /X Do Q " + drawn, extra=(image,))).lines[0].scripts == ()


def test_scripts_pass_between_processes():
    found = content(pages(text("word", size=10) + text("3", x=94, y=698, size=7)))
    (line,) = from_wire(PageContent, to_wire(found)).lines
    assert line.scripts == found.lines[0].scripts == (Script(4, 5, lowered=True),)


def test_overprinted_text_is_read_once_and_is_bold():
    between = b"".join(text("other words", y=600 - 12 * row) for row in range(8))  # nearer ones pdfium drops itself
    line = lines(text("Heavy words", x=72), between, text("Heavy words", x=72.4))[0]
    assert (line.text, line.bold) == ("Heavy words", True)
    assert texts(text("full"), text("full")) == ["full"]


def test_letters_drawn_again_as_outlines_are_read_once():
    from reportlab.pdfbase.pdfmetrics import stringWidth

    words = "Outline Title 2032"
    places = [72 + stringWidth(words[:at], "Helvetica", 24) for at in range(len(words))]
    letters = [text(letter, x=x, size=21) for letter, x in zip(words, places, strict=True) if letter != " "]
    filled = text(words[:9], size=24), text(words[9:], x=places[9], size=24)
    drawn = [filled[0], *letters[:8], filled[1], *letters[8:]]
    assert texts(*drawn, text("Doors open at nine", y=600)) == [words, "Doors open at nine"]


@pytest.mark.parametrize("spread", [1, 1.3, 1.6])
@pytest.mark.parametrize("inwards", [1, -1])
def test_letters_along_a_curve_are_read_along_it(spread, inwards):
    from reportlab.pdfbase.pdfmetrics import stringWidth

    words, radius, drawn = "Grand Harbour Rowing Club 1931", 110, b""
    for at, letter in enumerate(words):
        half = stringWidth(letter, "Helvetica", 12) / 2
        angle = inwards * (1.2 - spread * (stringWidth(words[:at], "Helvetica", 12) + half) / radius)
        across, up = np.cos(angle), np.sin(angle)
        x, y = 300 - inwards * radius * up - half * across, 500 + inwards * radius * across - half * up
        turned = f"{across:.4f} {up:.4f} {-up:.4f} {across:.4f} {x:.2f} {y:.2f}"
        drawn += text(letter, matrix=turned) if letter != " " else b""
    assert texts(drawn, text("The club meets on Tuesday", y=200)) == [words, "The club meets on Tuesday"]


def spaced(words, gap):
    """Capitals placed one by one, with `gap` points between the letters of 10 points."""
    drawn, x = b"", 72.0
    for word in words:
        for letter in word:
            drawn += text(letter, x=x, size=10)
            x += 10 * WIDTHS[letter] + gap
        x += 4
    return drawn


#: Widths of letters of Helvetica in font sizes.
WIDTHS = {"C": 0.722, "O": 0.778, "M": 0.833, "E": 0.667, "S": 0.667, "N": 0.722, "X": 0.667, "T": 0.611, "c": 0.5}
WIDTHS |= {"m": 0.833, "l": 0.222, "r": 0.333, "t": 0.278, "w": 0.722, **dict.fromkeys("ehnou", 0.556)}


def test_spaced_capitals_are_words_and_single_letters_are_not():
    assert texts(spaced(["COMES", "NEXT"], 1.6)) == ["COMES NEXT"]
    assert texts(spaced("COMENX", 1)) == ["C O M E N X"]


@pytest.mark.parametrize("gap", [1.2, 2, 4.5])  # points, for letters of 10 points
@pytest.mark.parametrize("words", ["The harbour office opens", "Total 482 crates, due 14 March.", "Annual"])
def test_letters_drawn_one_by_one_with_gaps_are_words(words, gap):
    from reportlab.pdfbase.pdfmetrics import stringWidth

    drawn, x = [], 72.0
    for letter in words:
        drawn += [text(letter, x=x, size=10)] * (letter != " ")
        x += stringWidth(letter, "Helvetica", 10) + gap
    assert texts(*drawn) == [words]


@pytest.mark.parametrize(("words", "gap"), [("always open", 2), ("always open", 4), ("never", 1.6), ("never", 3)])
def test_spaced_words_within_a_sentence_are_words(words, gap):
    drawn = b"BT /F 10 Tf 72 700 Td (The quay is ) Tj %.1f Tc (%s) Tj 0 Tc ( in summer) Tj ET "
    assert texts(drawn % (gap, words.encode())) == [f"The quay is {words} in summer"]
    assert texts(text("The sides a b c d e f of it", size=10)) == ["The sides a b c d e f of it"]


@pytest.mark.parametrize(
    ("capital", "rest", "read"),
    [
        ("I", "n May the river rises", "In May the river rises"),
        ("T", "he river rises", "The river rises"),
        ("A", "river rises", "A river rises"),
    ],
)
def test_a_drop_capital_joins_its_word(capital, rest, read):
    beside = 86 if capital == "I" else 100
    drawn = [text(capital, x=72, y=676, size=36), text(rest, x=beside, y=691, size=10)]
    more = [text("another line of text and more of it", x=72, y=660 - 12 * row, size=10) for row in range(6)]
    assert texts(*drawn, *more)[0] == read


def test_a_hyphen_that_touches_its_word_has_no_space_before_it():
    """Pdfium reports spaces before hyphens that a program adds at line ends."""
    assert texts(text("mag "), text("-", x=72 + 1.945 * 12)) == ["mag-"]
    assert texts(text("mag "), text("- and", x=72 + 2.223 * 12)) == ["mag - and"]


def test_invisible_text_is_read():
    assert texts(b"BT 3 Tr /F 12 Tf 72 700 Td (from an older OCR) Tj ET") == ["from an older OCR"]


def test_text_turned_on_the_page_is_a_line_of_its_own():
    axis = text("axis label", matrix="0 1 -1 0 60 300")
    found = lines(axis, text("body text", x=72, y=400))
    turned = next(line for line in found if line.text == "axis label")
    assert turned.box.height > 3 * turned.box.width
    assert len(found) == 2


@pytest.mark.parametrize("words", ["DRAFT", "COPY FOR YOU"])
def test_a_watermark_across_the_text_is_a_block_of_its_own(words):
    rows = [f"sentence {row} of the page goes on in the" for row in range(24)]
    grid = [(f"item {row}", f"{row}.50") for row in range(6)]
    drawn = text(words, matrix="0.7 0.7 -0.7 0.7 90 460", size=60)
    drawn += b"".join(text(row, y=740 - 14 * at) for at, row in enumerate(rows))
    drawn += b"".join(
        text(name, x=72, y=380 - 16 * at) + text(price, x=240, y=380 - 16 * at) for at, (name, price) in enumerate(grid)
    )
    data = pages(drawn)
    pdf = pypdfium2.PdfDocument(data)
    with contextlib.closing(pdf):
        found = laid_out(page_content(pdf[0], picture=pdf[0].render(scale=2).to_pil()))
    assert " ".join(rows) in found[0].text.replace("\n", " ")
    assert [block.text for block in found if words in block.text] == [words] == [found[-1].text]
    assert all(any(f"{name} | {price}" in block.text for block in found) for name, price in grid)


def test_a_large_slanted_label_of_a_drawing_is_no_watermark():
    label = text("lake", matrix="0.7 0.7 -0.7 0.7 300 400", size=26)
    found = lines(label, *(text("a row of text across the whole of the page", y=700 - 14 * row) for row in range(9)))
    assert not any(line.watermark for line in found)


def test_a_slanted_title_above_the_text_is_no_watermark():
    title = text("GRAND OPENING", matrix="0.966 0.259 -0.259 0.966 100 600", size=40)
    rows = [text(f"row {row} of the flyer below it", y=500 - 14 * row) for row in range(9)]
    found = lines(title, text("Saturday 5 May at noon", x=330, y=610), *rows)  # below the letters, and not crossed
    assert [line.text for line in found if line.watermark] == []


def test_a_heading_of_a_tilted_page_is_no_watermark():
    turn = "0.978 0.208 -0.208 0.978"  # 12 degrees
    rows = [
        text(f"row {row} of text across the whole of it", matrix=f"{turn} 100 {600 - 15 * row}") for row in range(9)
    ]
    found = lines(text("A heading of it", matrix=f"{turn} 90 680", size=34), *rows)
    assert len(found) == 10
    assert not any(line.watermark for line in found)


@pytest.mark.parametrize(("rotate", "size"), [(0, (612, 792)), (90, (792, 612)), (180, (612, 792)), (270, (792, 612))])
def test_a_turned_page_gives_boxes_where_the_text_is_shown(rotate, size):
    data = pages(text("corner", x=10, y=770), attributes=b"/MediaBox[0 0 612 792]/Rotate %d" % rotate)
    found = content(data)
    assert (found.width, found.height) == size
    x, y = found.lines[0].box.centre
    right, low = {0: (0, 0), 90: (1, 0), 180: (1, 1), 270: (0, 1)}[rotate]  # the corner to which it has moved
    assert (x > size[0] / 2, y > size[1] / 2) == (bool(right), bool(low))


def test_a_crop_box_moves_the_origin_and_cuts_text_away():
    data = pages(
        text("inside", x=110, y=600) + text("outside", x=20, y=20),
        attributes=b"/MediaBox[0 0 612 792]/CropBox[100 100 400 700]",
    )
    found = content(data)
    assert [line.text for line in found.lines] == ["inside"]
    assert found.lines[0].box.x0 == pytest.approx(10, abs=1)
    assert found.lines[0].box.y1 == pytest.approx(100, abs=4)


def test_characters_without_a_meaning_are_counted():
    unmapped = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding<</Differences[65/uniE001/uniE002]>>>>"
    data = pages(b"BT /F 12 Tf 72 700 Td (AB) Tj ET").replace(
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>", unmapped
    )
    assert content(data).unmapped == 2


def test_glyphs_without_a_mapping_are_doubtful():
    font = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding<</Differences[60/g60]>>>>"
    drawn = text("<20% of them", x=114).replace(b"/F ", b"/S ") + text("A share in this:") + text("a<b " * 20, y=680)
    data = pages(drawn, extra=(font,)).replace(b"<</F 3 0 R>>", b"<</F 3 0 R/S 4 0 R>>")
    found = from_wire(PageContent, to_wire(content(data)))
    assert [(word.text, word.doubtful) for line in found.lines for word in line.words if word.doubtful] == [
        ("<20%", (0,))
    ]
    assert content(pages(drawn)).lines[0].words[0].doubtful == ()


def test_visible_glyph_with_whitespace_code_belongs_to_its_word():
    names = stream(b"1 begincodespacerange <00> <FF> endcodespacerange 2 beginbfchar <63> <000D> <20> <0009> endbfchar")
    font = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding/ToUnicode 4 0 R>>"
    data = pages(text("a generic word"), extra=(names,))
    plain = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>"
    (line,) = content(data.replace(plain, font)).lines
    assert [(word.text, word.doubtful) for word in line.words] == [("a", ()), ("generi\ufffd", (6,)), ("word", ())]


def test_code_beyond_unicode_is_an_unreadable_character():
    ranges = b"begincodespacerange <00> <7F> <E00000> <EFFFFF> endcodespacerange"
    table = stream(b"/CMapName/X def " + ranges + b" 2 begincidrange <E00000> <EFFFFF> 1 <20> <7E> 1 endcidrange")
    parts = (
        table.replace(b"<<", b"<</Type/CMap/CMapName/X", 1),
        b"<</Type/Font/Subtype/CIDFontType2/BaseFont/X/CIDSystemInfo<</Registry(Adobe)/Ordering(Japan1)/Supplement 3>>"
        b"/FontDescriptor<</Type/FontDescriptor/FontName/X/Flags 4>>>>",
    )
    font = b"<</Type/Font/Subtype/Type0/BaseFont/X/Encoding 4 0 R/DescendantFonts[5 0 R]>>"
    plain = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>"
    page = pypdfium2.PdfDocument(pages(text("\xe0\xe0\xe0cm"), extra=parts).replace(plain, font))[0]
    found = page_content(page, picture=page.render(scale=2).to_pil())
    assert [line.text for line in found.lines] == ["\ufffdcm"]


def test_text_of_negative_size_in_a_turned_matrix_is_upright():
    drawn = b"BT /F -12 Tf -1 0 0 -1 72 700 Tm (The harbor opens) Tj 0 20 Td (at nine) Tj ET"
    assert texts(drawn) == ["The harbor opens", "at nine"]


def test_single_signs_with_spaces_between_them_stay_apart():
    signs = b"".join(text(sign, 72 + 11 * place, size=14) for place, sign in enumerate("abonx" * 5))
    spaces = b"".join(text(" ", 80 + 11 * place, size=14) for place in range(25))
    assert texts(signs + spaces) == [" ".join("abonx" * 5)]


def test_low_boxes_of_leader_dots_leave_the_font_size_as_it_is():
    heights = np.array([6.9] * 60 + [0.7] * 25)
    boxes = np.column_stack((np.zeros(85), np.zeros(85), np.full(85, 2.8), heights))
    size, em, starts = np.where(heights > 1, 6.0, 0.7), np.full(85, 6.0), np.arange(85)
    kinds = np.tile([1.0, 60.0, 0.0], (85, 1))
    pdf_glyphs._even_out(size, em, kinds[:1], kinds, starts, boxes, *np.zeros((2, 85), dtype=bool))
    assert set(size.tolist()) == {6.0}


def test_letters_placed_alone_in_short_columns_are_words():
    drawn = b"1 0 0 -1 0 792 cm "  # as word processors in browsers write; pdfium reports line breaks within words
    for column, end in enumerate(("one", "two", "three")):
        for row, word in enumerate(("column", end)):
            drawn += b"q .75 0 0 .75 %d %d cm BT /F 14.66 Tf 1 0 0 -1 0 0 Tm " % (72 + 168 * column, 86 + 14.5 * row)
            drawn += b"".join(b"(%c) Tj %f 0 Td " % (ord(letter), 14.66 * WIDTHS[letter]) for letter in word) + b"ET Q "
    assert sorted(texts(drawn)) == ["column", "column", "column", "one", "three", "two"]


def test_radicals_are_read_as_ideographs():
    names = stream(b"1 begincodespacerange <00> <FF> endcodespacerange 2 beginbfchar <61> <2F2D> <62> <2ED3> endbfchar")
    font = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding/ToUnicode 4 0 R>>"
    plain = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>"
    (line,) = content(pages(text("ab"), extra=(names,)).replace(plain, font)).lines
    assert line.text == "山长"


@pytest.mark.parametrize(
    ("drawn", "mono"),
    [(r"51 \newpage", True), (r"use the \begin and the \end", False), (r"\newlength \margin to", True)],
)
def test_program_line_is_monospaced_but_not_prose_with_commands(drawn, mono):
    courier = b"<</F 3 0 R/G<</Type/Font/Subtype/Type1/BaseFont/Courier>>>>"
    faces, x = b"", 72.0
    for word in drawn.split():
        faces += text(word, x=x).replace(b"/F ", b"/G " if word.startswith("\\") else b"/F ")
        x += 7.2 * len(word) + 4
    (line,) = content(pages(faces).replace(b"<</F 3 0 R>>", courier)).lines
    assert (line.text, line.mono) == (drawn, mono)


def test_a_bitmap_font_has_one_size_for_high_and_low_letters():
    glyphs = {"a": (0, 430), "d": (0, 680), "p": (-220, 430), "n": (0, 430)}
    drawn = [
        stream(b"500 0 0 %d 450 %d d1 0 %d 450 %d re f" % (low, high, low, high - low)) for low, high in glyphs.values()
    ]
    names = b"".join(b"/%s %d 0 R" % (name.encode(), 4 + at) for at, name in enumerate(glyphs))
    widths = b" ".join(b"500" if chr(code) in glyphs else b"0" for code in range(97, 113))
    font = b"<</Type/Font/Subtype/Type3/FontBBox[0 0 0 0]/FontMatrix[.001 0 0 .001 0 0]/CharProcs<<%s>>" % names
    font += b"/Encoding<</Differences[97/a 100/d 110/n 112/p]>>/FirstChar 97/LastChar 112/Widths[%s]>>" % widths
    words = ["nan", "dad", "papa", "an", "add", "pad"]
    data = pages(b"".join(text(word, y=700 - 14 * row) for row, word in enumerate(words)), extra=tuple(drawn))
    helvetica = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>"
    found = content(data.replace(helvetica, font)).lines
    assert [line.text for line in found] == words
    assert [line.size for line in found] == pytest.approx([12] * 6, rel=0.2)


@pytest.mark.parametrize("row", ["97", "97 of them"])
def test_number_alone_in_typewriter_face_is_monospaced(row):
    courier = b"<</F 3 0 R/G<</Type/Font/Subtype/Type1/BaseFont/Courier>>>>"
    typed = text(row).replace(b"/F ", b"/G ")
    for drawn, mono in ((text(row), False), (typed, True)):
        (line,) = content(pages(drawn).replace(b"<</F 3 0 R>>", courier)).lines
        assert (line.text, line.mono) == (row, mono)


@pytest.mark.parametrize(("words", "mono"), [("firstline", True), ("oddend", False)])
@pytest.mark.parametrize("narrower", [0, 200])
@pytest.mark.parametrize("beyond", ["", "ne"])  # letters whose ink reaches beyond the pitch, as of slanted ones
def test_font_with_equally_wide_letters_is_monospaced(words, mono, narrower, beyond):
    names = [chr(code) for code in range(97, 123)]
    widths = b" ".join(b"%d" % (500 - narrower * (name in "filrt")) for name in names)
    font = b"<</Type/Font/Subtype/Type3/FontBBox[0 0 0 0]/FontMatrix[.001 0 0 .001 0 0]/CharProcs<<%s>>"
    font %= b"".join(b"/%s %d 0 R" % (name.encode(), 4 + (name in beyond)) for name in names)
    font += b"/Encoding<</Differences[97/%s]>>/FirstChar 97/LastChar 122/Widths[%s]>>" % (
        "/".join(names).encode(),
        widths,
    )
    data = pages(text(words), extra=tuple(stream(b"500 0 d0 0 0 %d 700 re f" % ink) for ink in (400, 590)))
    helvetica = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>"
    (line,) = content(data.replace(helvetica, font)).lines
    assert line.mono == (mono and not narrower)


def test_a_footnote_mark_behind_a_space_is_part_of_its_line():
    (found,) = lines(text("The edge.", x=50), text("1", x=108, y=704, size=8))
    assert (found.text, found.scripts) == ("The edge. 1", (Script(10, 11),))


def test_narrow_script_with_wide_nested_script_stays_in_line():
    (found,) = lines(
        text("The weight W", x=50), text("E", x=123.4, y=698, size=8), text("mm", x=128.8, y=696.5, size=6)
    )
    assert (found.text, found.scripts) == ("The weight WEmm", (Script(12, 15, lowered=True),))


def test_font_with_boxes_as_low_as_its_dash_has_line_size():
    faces = b"<</F 3 0 R/G<</Type/Font/Subtype/Type1/BaseFont/Courier/FontDescriptor<</Type/FontDescriptor"
    faces += b"/FontName/Courier/Flags 32/Ascent 400/Descent 200/FontBBox[0 200 600 400]>>>>>>"
    drawn = text("aged 30", x=72) + text("-", x=116).replace(b"/F ", b"/G ") + text("60 years", x=123.2)
    (line,) = content(pages(drawn).replace(b"<</F 3 0 R>>", faces)).lines
    assert line.text == "aged 30-60 years"


def test_a_bitmap_font_of_one_digit_is_not_as_high_as_its_box():
    faces = b"<</F 3 0 R/G<</Type/Font/Subtype/Type3/FontBBox[0 -500 40 500]/FontMatrix[1 0 0 1 0 0]/CharProcs<</three"
    faces += b" 4 0 R>>/Encoding<</Differences[51/three]>>/FirstChar 51/LastChar 51/Widths[28]>>>>"
    mark = text("3", x=99, y=704, size=0.12).replace(b"/F ", b"/G ")
    drawn = text("aged", x=72) + mark + text("the line above", x=72, y=714) + text("the line below", x=72, y=686)
    data = pages(drawn, extra=(stream(b"28 0 0 -500 28 500 d1 0 0 28 50 re f"),)).replace(b"<</F 3 0 R>>", faces)
    assert "aged3" in [line.text for line in content(data).lines]


def test_the_second_half_of_a_mathematical_letter_is_that_letter():
    codes = np.array([0xD835, 0xDC63, 0xDC63, ord("a")])
    assert _with_pairs_joined(codes).tolist() == [0x1D463, -1, 0x1D463, ord("a")]


def test_a_page_without_text_is_empty():
    found = content(pages(b""))
    assert (found.lines, found.rasters, found.paths, found.unmapped) == ((), (), (), 0)


def test_paths_have_colors_boxes_segments_and_lie_on_page():
    drawn = b"1 0 0 RG 100 100 m 300 100 l S\n0 0 1 rg 50 50 20 20 re f\n600 780 100 100 re f\n2000 2000 9 9 re f\n"
    rule, square, cut = content(pages(drawn)).paths
    assert (rule.stroke, rule.fill) == ((255, 0, 0), None)
    assert (rule.box.x0, rule.box.x1) == (pytest.approx(100, abs=1), pytest.approx(300, abs=1))
    assert square.fill == (0, 0, 255)
    assert square.box.y0 == pytest.approx(792 - 70, abs=1)
    assert (cut.box.x1, cut.box.y0) == (612, 0)
    assert rule.segments < square.segments


def test_an_image_inside_a_form_lies_where_it_is_drawn():
    image = stream(b"U", b"/Type/XObject/Subtype/Image/Width 1/Height 1/ColorSpace/DeviceGray/BitsPerComponent 8")
    form = stream(
        b"q 100 0 0 50 0 0 cm /I Do Q",
        b"/Type/XObject/Subtype/Form/BBox[0 0 100 50]/Matrix[1 0 0 1 7 0]/Resources<</XObject<</I 5 0 R>>>>",
    )
    (raster,) = content(pages(b"q 2 0 0 2 50 60 cm /X Do Q", extra=(form, image))).rasters
    assert (raster.box.x0, raster.box.x1) == (pytest.approx(64, abs=0.5), pytest.approx(264, abs=0.5))
    assert (raster.box.y0, raster.box.y1) == (pytest.approx(792 - 160, abs=0.5), pytest.approx(792 - 60, abs=0.5))


def test_thousands_of_paths_are_capped():
    drawn = b"".join(b"%d %d m %d 9 l S\n" % (x % 600, x % 700, x % 500) for x in range(21_000))
    assert len(content(pages(drawn)).paths) == 20_000


def test_right_to_left_text_is_in_reading_order(shared_pdfs):
    found = content(str(shared_pdfs / "right_to_left_01.pdf"))
    assert found.lines[0].text.startswith("تحسين الإنتاجية وحل المشكلات")


@pytest.mark.parametrize("producer", ["browser", "office"])
def test_arabic_and_hebrew_with_mixed_content_read_as_written(producer):
    source = (RIGHT_TO_LEFT / "page.html").read_text(encoding="utf-8")
    written = [html.unescape(words) for words in re.findall(r"<p[^>]*>(.*)</p>", source)]
    found = " ".join(line.text for line in content(str(RIGHT_TO_LEFT / f"{producer}.pdf")).lines)
    assert unicodedata.normalize("NFC", found) == unicodedata.normalize("NFC", " ".join(written))


@pytest.mark.parametrize("end", ["", "."])
@pytest.mark.parametrize("inside", ["9:00", "12.5", "14", "PDF", "a.b", "صصص", "!"])
def test_brackets_in_arabic_face_the_text_inside(inside, end):
    letters = {0x30 + at: letter for at, letter in enumerate(sorted({*inside, ".", " ", "(", ")", "س", "ش"}))}
    codes = {letter: code for code, letter in letters.items()}
    shown = bytes(codes[letter] for letter in f"ششش {end}({inside}) سسس")  # from left to right
    found = content(mapped(letters, b"BT /S 12 Tf 72 700 Td <%s> Tj ET" % shown.hex().encode()))
    assert [line.text for line in found.lines] == [f"سسس ({inside}){end} ششش"]


@pytest.mark.parametrize("lam_alef", ["\ufefb", "\u0644\u0627"])  # a presentation form; the letters of the ligature
@pytest.mark.parametrize("drawn", ["at once", "from the left", "from the right"])
def test_arabic_ligatures_have_their_letters_in_order(lam_alef, drawn):
    allah = "\ufdf2" if lam_alef == "\ufefb" else "\u0627\u0644\u0644\u0647"
    shown = b'#"! $ "'  # from left to right
    places = sorted(((72 + 6 * at, code) for at, code in enumerate(shown)), reverse=drawn == "from the right")
    drawing = b"".join(b"BT /S 12 Tf %d 700 Td <%02x> Tj ET\n" % place for place in places)
    if drawn == "at once":
        drawing = b"BT /S 12 Tf 72 700 Td <%s> Tj ET" % shown.hex().encode()
    found = content(mapped({0x20: " ", 0x21: "\u0633", 0x22: lam_alef, 0x23: "\u0645", 0x24: allah}, drawing))
    assert [line.text for line in found.lines] == ["لا الله سلام"]


@pytest.mark.parametrize("pitch", [10, 11, 13.5])  # points, for letters of 10 points
def test_vertical_japanese_is_read_down_its_columns(pitch):
    columns = ["北野商店はガラス瓶を、四百八十二個", "買いました。品物は三月に", "着きました"]
    heading = [("湖の町の会報です", 300.0, 740.0)]
    letters = [
        (letter, 500.0 - 16 * column, 700 - pitch * row)
        for column, words in enumerate(columns)
        for row, letter in enumerate(words)
    ]
    found = content(placed(heading + letters))
    assert {line.text for line in found.lines if line.stacked} == {*columns}
    assert [line.text for line in found.lines if not line.stacked] == ["湖の町の会報です"]
    assert "".join(block.text for block in page_blocks(found, ())) == "".join(["湖の町の会報です", *columns])


def test_ideographs_of_a_browsers_bitmap_fonts_stay_in_line():
    (line,) = content(str(RIGHT_TO_LEFT.with_name("browser_japanese.pdf"))).lines
    assert (line.text, line.size) == ("二〇二五年四月一日の会議は七階の部屋で三時に行う。", pytest.approx(11, abs=0.1))


def test_cells_of_a_grid_of_ideographs_are_no_columns():
    rows = ["月火水木金土", "男女男女男女", "上中下上中下"]
    cells = [
        (letter, 100.0 + 40 * at, 700.0 - 16 * row) for row, words in enumerate(rows) for at, letter in enumerate(words)
    ]
    assert not any(line.stacked for line in content(placed(cells)).lines)


def test_soft_hyphens_end_their_line_as_hyphens(shared_pdfs):
    found = content(str(shared_pdfs / "2305.03393v1-pg9.pdf"))
    assert any(line.text.endswith("PubTabNet [22]. Ef-") for line in found.lines)


@pytest.mark.parametrize(("width", "expected"), [(0, "a successive case"), (333, "a suc-cessive case")])
def test_a_soft_hyphen_divides_its_word_only_where_it_is_visible(width, expected):
    unicodes = b"1 begincodespacerange <00><ff> endcodespacerange 1 beginbfchar <7e><00ad> endbfchar"
    widths = b" ".join([b"500"] * 94 + [b"%d" % width])
    font = (
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/FirstChar 32/LastChar 126/Widths[%s]/ToUnicode 5 0 R>>" % widths
    )
    drawn = text("a suc~cessive case").replace(b"/F ", b"/S ")
    data = pages(drawn, extra=(font, stream(unicodes))).replace(b"<</F 3 0 R>>", b"<</S 4 0 R>>")
    assert [line.text for line in content(data).lines] == [expected]


def test_control_codes_of_a_lying_layer_are_counted(shared_pdfs):
    assert content(str(shared_pdfs / "redp5110_sampled.pdf"), number=3).unmapped > 50


def black(ink: InkMap) -> Image.Image:
    return Image.frombytes("1", (ink.width, ink.height), zlib.decompress(ink.packed))


def seen(source, **options):
    async def steps(renderer):
        return await outcome(renderer, str(source), 1)

    return with_renderer(steps, **options)


def test_pdf_lines_have_positions_with_or_without_text_layer(tmp_path):
    source = written(tmp_path / "a.pdf", pages(text("Above all", y=700) + text("Below it", y=100)))
    for wanted in (True, False):
        page = seen(source, text_layer=wanted)
        assert [line for line, _ in page.evidence.lines] == ["Above all", "Below it"]
        above, below = (box for _, box in page.evidence.lines)
        assert 0 < above.y0 < above.y1 < 0.3 < 0.7 < below.y0 < below.y1 < 1
        assert (page.content is None) is not wanted


def test_evidence_of_a_sparse_page_of_placed_letters_has_lines(tmp_path):
    rows = [f"{row} hope\t{11 * row}" for row in range(1, 9)]
    letters = [
        text(letter, x=(500 if at > row.index("\t") else 72) + 6.7 * at, y=700 - 12 * number)
        for number, row in enumerate(rows)
        for at, letter in enumerate(row)
        if letter.strip()
    ]
    page = seen(written(tmp_path / "a.pdf", pages(b"".join(letters))))
    found = " ".join(line for line, _ in page.evidence.lines).split()
    assert sorted(found) == sorted(" ".join(rows).split())


def test_ink_is_where_text_is(tmp_path):
    page = seen(written(tmp_path / "a.pdf", pages(text("Above all", y=700))))
    box = page.evidence.lines[0][1]
    ink = black(page.evidence.ink)
    left, top, right, bottom = ink.getbbox()
    assert abs(left / ink.width - box.x0) < 0.02 and abs(right / ink.width - box.x1) < 0.02
    assert abs(top / ink.height - box.y0) < 0.03 and abs(bottom / ink.height - box.y1) < 0.03


def test_image_files_have_ink_and_no_lines(tmp_path):
    image = Image.new("RGB", (400, 300), "white")
    ImageDraw.Draw(image).rectangle((100, 150, 300, 200), fill="black")
    for name in ("a.png", "a.jpg"):
        image.save(tmp_path / name)
        evidence = seen(tmp_path / name).evidence
        assert (evidence.lines, evidence.pictured) == ((), 0.0)
        left, top, right, bottom = black(evidence.ink).getbbox()
        assert (round(left, -1), round(top, -1), round(right, -1), round(bottom, -1)) == (100, 150, 300, 200)


def test_on_dark_paper_ink_is_what_is_light():
    image = Image.new("L", (200, 100), 20)
    ImageDraw.Draw(image).rectangle((50, 40, 80, 60), fill=230)
    assert black(ink_of(image)).getbbox() == (50, 40, 81, 61)
    assert black(ink_of(Image.new("RGB", (50, 50), "pink"))).getbbox() is None


#: A Japanese font that is not in the file.
OUTSIDE = (
    b"<</Type/Font/Subtype/Type0/BaseFont/HeiseiMin-W3/Encoding/UniJIS-UCS2-H/DescendantFonts[5 0 R]>>",
    b"<</Type/Font/Subtype/CIDFontType0/BaseFont/HeiseiMin-W3/FontDescriptor 6 0 R"
    b"/CIDSystemInfo<</Registry(Adobe)/Ordering(Japan1)/Supplement 2>>>>",
    b"<</Type/FontDescriptor/FontName/HeiseiMin-W3/Flags 4/FontBBox[0 -200 1000 900]/ItalicAngle 0/Ascent 800"
    b"/Descent -200/CapHeight 700/StemV 90>>",
)


@pytest.mark.skipif(cjk_font().state is State.WORKS, reason="this system has the font")
@pytest.mark.parametrize(("color", "lost"), [("0 g", 2 / 3), ("1 g", 0), ("0 g 3 Tr", 0)])
def test_visible_text_that_no_font_draws_is_reported_and_read(tmp_path, color, lost):
    words = "合計金額九万八千円".encode("utf-16-be").hex()
    drawn = f"BT {color} /S 12 Tf 72 700 Td <{words}> Tj /F 12 Tf 200 0 Td 0 g 0 Tr (98.0) Tj ET".encode()
    data = pages(drawn, extra=OUTSIDE).replace(b"<</F 3 0 R>>", b"<</F 3 0 R/S 4 0 R>>")
    page = seen(written(tmp_path / "a.pdf", data))
    assert page.evidence.undrawn == page.content.undrawn == pytest.approx(lost, abs=0.2)
    assert "合計金額九万八千円" in " ".join(line.text for line in page.content.lines)
    assert from_wire(Evidence, to_wire(page.evidence)).undrawn == page.evidence.undrawn


def test_text_far_larger_than_its_page_does_not_fail_it(tmp_path):
    words = "合計金額".encode("utf-16-be").hex()
    huge = "1000000 0 0 1000000 -1000000 -1000000 Tm"
    drawn = f"BT /S 12 Tf {huge} <{words}> Tj ET BT /F 12 Tf 72 700 Td (98.0) Tj ET".encode()
    data = pages(drawn, extra=OUTSIDE).replace(b"<</F 3 0 R>>", b"<</F 3 0 R/S 4 0 R>>")
    assert "98.0" in " ".join(line.text for line in seen(written(tmp_path / "a.pdf", data)).content.lines)


def test_evidence_comes_from_the_worker_as_it_was(tmp_path):
    evidence = seen(written(tmp_path / "a.pdf", pages(text("Above all", y=700)))).evidence
    assert from_wire(Evidence, to_wire(evidence)) == evidence


def test_evidence_of_a_filled_form_has_its_values(tmp_path):
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(tmp_path / "form.pdf"))
    canvas.drawString(72, 700, "Your name, please")
    canvas.acroForm.textfield(name="name", value="Ada Lovelace", x=72, y=600, width=200, height=24)
    canvas.save()
    page = seen(tmp_path / "form.pdf")
    assert [words for words, _ in page.evidence.lines] == ["Your name, please", "Ada Lovelace"]
    assert black(page.evidence.ink).getbbox() is not None


def test_boxes_of_wingdings_show_whether_they_are_ticked():
    pdf = mapped({0x21: "\uf0fe", 0x22: "\uf0fd", 0x23: "\uf06f"}, b"BT /S 12 Tf 72 700 Td <212223> Tj ET")
    assert [line.text for line in page_content(pypdfium2.PdfDocument(pdf)[0]).lines] == ["☑☒☐"]
