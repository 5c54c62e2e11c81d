"""Display formulas are LaTeX where their structure is certain, and otherwise a figure with their text."""

import contextlib
import io
import re

import pypdfium2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_ocr.documents.page_wire import from_wire, to_wire
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.results.sanitizing import inert_markdown
from llm_ocr.types import Block, BlockKind, Box, PageContent, Word
from llm_ocr_cpu.formulas import latex_of
from llm_ocr_cpu.page import laid_out
from llm_ocr_cpu.pdf_text import page_content

PROSE = "the sentence of a paragraph that runs over the whole width of its column and goes on like this"


def word(text: str, x: float, base: float = 100.0, size: float = 10.0, width: float = 0.0) -> Word:
    return Word(text, Box(x, base - 0.8 * size, x + (width or 0.5 * size * len(text)), base + 0.22 * size))


def rule(x0: float, x1: float, y: float) -> Box:
    return Box(x0, y, x1, y + 0.5)


@pytest.mark.parametrize(
    ("words", "rules", "latex"),
    [
        ([word("a", 0), word("2", 5, 96, 7), word("+", 12), word("8", 20)], [], "a^{2}+8"),
        ([word("x", 0), word("i", 5, 102, 7), word("2", 5.5, 96, 7), word("=", 14), word("y", 22)], [], "x_{i}^{2}=y"),
        ([word("y", 0), word("=", 8), word("a+1", 16, 93), word("b", 20, 106)], [rule(16, 31, 97)], r"y=\frac{a+1}{b}"),
        ([word("√", 0), word("x", 6), word("−", 13), word("1", 20)], [rule(6, 25, 91)], r"\sqrt{x-1}"),
        (
            [
                word("∑", 10, size=14),
                word("n", 11, 88, 7),
                word("i=1", 8, 110, 7),
                word("x", 26),
                word("i", 31, 102, 7),
            ],
            [],
            r"\sum_{i=1}^{n}x_{i}",
        ),
        ([word("α", 0), word("≤", 8), word("β", 16), word("(3)", 90)], [], r"\alpha \le \beta  \tag{3}"),
        ([word("log", 0), word("𝑥", 20), word("<", 28), word("{a}", 36)], [], r"\log x\lt \{a\}"),
        # not certain: other baselines, unknown signs, a rule without a denominator, an operator at the end
        ([word("a", 0), word("b", 5, 104)], [], ""),
        ([word("a", 0), word("�", 8)], [], ""),
        ([word("a", 0, 93)], [rule(0, 10, 97)], ""),
        ([word("a", 0), word("=", 8)], [], ""),
    ],
)
def test_the_structure_comes_from_places_sizes_and_rules(words, rules, latex):
    assert latex_of(words, rules) == latex


NUMBERS = st.integers(0, 60).map(float)
WORDS = st.builds(
    word,
    st.text("ab12+=−∑√∫α{}()<>^_\\$%&#~πlog ", min_size=1, max_size=4),
    NUMBERS,
    st.sampled_from([80.0, 88.0, 96.0, 100.0, 102.0, 110.0]),
    st.sampled_from([5.0, 7.0, 10.0, 14.0]),
)


@given(st.lists(WORDS, min_size=1, max_size=12), st.lists(st.builds(rule, NUMBERS, NUMBERS, NUMBERS), max_size=3))
def test_latex_is_always_balanced(words, rules):
    latex = latex_of(words, rules)
    depth = 0
    for brace in re.findall(r"\\.|[{}]", latex):
        depth += {"{": 1, "}": -1}.get(brace, 0)
        assert depth >= 0
    assert depth == 0
    assert not re.search(r"(?<!\\)[$%&#~<>]|\\$|\\[^a-zA-Z{}%#&|]|[\^_](?!\{)", latex)


def blocks_of(
    formula, below: str = "where both are known, and the rest of the sentence goes on to the end."
) -> tuple[Block, ...]:
    """Return the blocks of a page with prose above and below a formula, which is drawn at a height of 640."""
    from reportlab.pdfgen.canvas import Canvas

    out = io.BytesIO()
    canvas = Canvas(out, pagesize=(500, 800))
    for at, text in enumerate([PROSE, PROSE, "and this is"]):
        canvas.setFont("Times-Roman", 10)
        canvas.drawString(60, 700 - 12 * at, text)
    canvas.drawString(60, 600, below)
    canvas.drawString(60, 588, PROSE)
    formula(canvas)
    canvas.save()
    with contextlib.closing(pypdfium2.PdfDocument(out.getvalue())) as pdf:
        return laid_out(from_wire(PageContent, to_wire(page_content(pdf[0]))))


def draw(canvas, text, x, y, size=10, font="Times-Italic"):
    canvas.setFont(font, size)
    canvas.drawString(x, y, text)


def fraction(canvas):
    draw(canvas, "y", 200, 640)
    draw(canvas, "=", 210, 640)
    draw(canvas, "a", 224, 647)
    draw(canvas, "b", 224, 633)
    canvas.rect(222, 642.3, 9, 0.4, stroke=0, fill=1)
    draw(canvas, "(7)", 420, 640, font="Times-Roman")


def test_a_formula_of_a_pdf_is_one_block_between_its_sentences():
    blocks = blocks_of(fraction)
    (formula,) = [block for block in blocks if block.kind is BlockKind.FORMULA]
    assert formula.text == "$$\ny=\\frac{a}{b} \\tag{7}\n$$"
    before, after = blocks_to_markdown(blocks).split(formula.text)
    assert before.rstrip().endswith("and this is")
    assert after.lstrip().startswith("where both")
    assert inert_markdown(formula.text) == formula.text


def test_an_uncertain_formula_is_a_figure_with_its_text():
    def uncertain(canvas):
        fraction(canvas)
        draw(canvas, "c", 250, 637)

    blocks = blocks_of(uncertain)
    (figure,) = [block for block in blocks if block.kind is BlockKind.FIGURE]
    assert (figure.label, sorted(figure.text.split())) == ("formula", ["(7)", "=", "a", "b", "c", "y"])
    assert not any(block.kind is BlockKind.FORMULA for block in blocks)


@pytest.mark.parametrize(
    "drawn",
    [
        lambda canvas: draw(canvas, "Total = 5", 200, 640, font="Times-Roman"),
        lambda canvas: draw(canvas, "y = a", 60, 640),  # at the margin, as a line of the text
        lambda canvas: draw(canvas, "y = a", 200, 640, font="Courier"),
        lambda canvas: None,
    ],
)
def test_other_lines_are_no_formulas(drawn):
    assert {block.kind for block in blocks_of(drawn)} <= {BlockKind.TEXT, BlockKind.HEADING, BlockKind.CODE}


# A document of pdfTeX: Type 1 fonts with their own encodings, large symbols below the baseline, accents as glyphs.


@pytest.fixture(scope="module")
def tex_markdown(repository) -> str:
    with contextlib.closing(pypdfium2.PdfDocument(repository / "packages/cpu/tests/fixtures/tex/columns.pdf")) as pdf:
        return blocks_to_markdown(laid_out(page_content(pdf[0])))


@pytest.mark.parametrize(
    "latex",
    [
        r"L(\theta )=-\frac{1}{N}\sum_{i=1}^{N}\log p_{\theta}(y_{i}|x_{i}). \tag{1}",
        r"\int_{0}^{\infty}e^{-x^{2}}dx=\frac{\sqrt{\pi }}{2} \tag{2}",
        r"s_{j}=\frac{e^{z_{j}}}{\sum_{k=1}^{K}e^{z_{k}}}\mathrm{for}\ j\le K.",
        r"\lim_{n\to \infty}(1+\frac{1}{n})^{n}\ge \prod_{k=1}^{m}g_{k}(x)",
        r"A=\begin{pmatrix}a & b \\ c & d\end{pmatrix}",
    ],
)
def test_formulas_of_tex_are_latex_with_limits_and_their_numbers(tex_markdown, latex):
    assert f"$$\n{latex}\n$$" in tex_markdown


def test_accents_of_tex_are_part_of_their_letters(tex_markdown):
    assert "Café naïve Über façade." in tex_markdown


def test_a_narrow_gutter_beside_formulas_parts_the_columns(tex_markdown):
    left, right = tex_markdown.index("stays a picture"), tex_markdown.index("The second column begins")
    assert left < right and "which was to be shown. More words follow, because the left column is long." in tex_markdown
