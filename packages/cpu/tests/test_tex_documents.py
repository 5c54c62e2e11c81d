"""Documents made by TeX: its fonts have glyphs without names, accents of their own, and signs below their baseline."""

import contextlib
from pathlib import Path

import pypdfium2
import pytest

from llm_ocr.types import Block, BlockKind
from llm_ocr_cpu.page import laid_out
from llm_ocr_cpu.pdf_text import page_content
from llm_ocr_cpu.tex_fonts import DOUBLE, LARGE, LETTERS, SYMBOLS, family_of, symbol

FOLDER = Path(__file__).parent / "fixtures" / "tex"  # each PDF with its source


def blocks_of(name: str) -> tuple[Block, ...]:
    with contextlib.closing(pypdfium2.PdfDocument(FOLDER / name)) as pdf:
        return laid_out(page_content(pdf[0]))


def test_formulas_are_latex():
    formulas = [block.text.strip("$\n") for block in blocks_of("formulas.pdf") if block.kind is BlockKind.FORMULA]
    assert formulas == [
        r"A=\begin{pmatrix}a & b \\ n & i\end{pmatrix} \tag{1}",
        r"\sum_{i=1}^{n}a=\begin{cases}1 & a=1 \\ n & b=1\end{cases}",
        r"\max_{n}\hat{a}=\sqrt{\frac{a}{b}}",
    ]


def test_accents_are_part_of_their_letters():
    assert blocks_of("formulas.pdf")[-1].text.startswith("The mean of all values in Évian, Čebín, and naïve is")


def test_ligatures_quotes_and_dashes_of_bitmap_fonts_are_text():
    (paragraph,) = blocks_of("bitmaps.pdf")
    assert paragraph.text == (
        "The first office offers an efficient flow of coffee. The staff of the café finds it “difficult”—and fine."
    )


@pytest.mark.parametrize(
    ("font", "code", "named", "character"),
    [
        ("ABCDEF+CMEX10", 0x58, False, "∑"),
        ("CMEX10", 0x2211, True, "∑"),
        ("CMEX10", 0xF8F2, True, "{"),  # the middle piece of a tall brace
        ("CMSY10", ord("L"), True, "ℒ"),
        ("CMSY10", 0x14, False, "≤"),
        ("MSBM10", ord("R"), True, "ℝ"),
        ("MSAM10", ord("I"), False, "▶"),  # the bullet of slides
        ("MSAM10", 0x03, False, "□"),
        ("LASY10", 0x272D, True, "«"),
        ("LASY10", ord(")"), False, "»"),
        ("CMMI7", 0x0B, False, "α"),
        ("CMMI7", ord("x"), True, "x"),
        ("XWLOMP+txsy", 0x1D, False, "≫"),
        ("pxex", 0x58, False, "∑"),
        ("MathDesign-UT-Regular-Symbol-10", 0x70, False, "√"),
        ("txsyc", 0x1D, False, "\x1d"),  # another encoding
    ],
)
def test_glyphs_of_mathematical_fonts_are_characters(font, code, named, character):
    assert chr(symbol(family_of(font), code, named=named)) == character


def test_families_are_known_by_the_names_of_fonts():
    names = ["CMEX10", "LMMathSymbols10-Regular", "CMMIB10", "MSBM7", "CMR10", "Helvetica", "Symbol"]
    assert [family_of(name) for name in names] == [LARGE, SYMBOLS, LETTERS, DOUBLE, "", "", ""]
