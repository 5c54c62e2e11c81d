"""`paper.pdf`: a digital paper with a text layer, two columns, figures, tables, a formula and a footnote."""

from typing import Any

from reportlab.graphics import renderPDF
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Frame, FrameBreak, NextPageTemplate, PageTemplate, Paragraph, Spacer

from . import paper_text as words
from .paper_figures import formula, ten_days, warnings, winter
from .picture import landscape
from .style import (
    BODY,
    CAPTION,
    FIRST,
    GREY,
    INK,
    PALE,
    SERIF,
    SERIF_BOLD,
    SERIF_ITALIC,
    SUBSECTION,
    booktabs,
    build,
    captioned,
    heading,
    items,
    jpeg,
    ruled,
    style,
    text,
)

WIDTH, HEIGHT = A4
MARGIN, GUTTER = 52.0, 20.0
SPAN = WIDTH - 2 * MARGIN
COLUMN = (SPAN - GUTTER) / 2
FOOT, TOP = 62.0, HEIGHT - 62.0
TITLE_HEIGHT = 186.0
SPREAD_HEIGHT = 214.0
NOTE_HEIGHT = 38.0
REFERENCE = style(9, 10.8, alignment=4, leftIndent=17, bulletIndent=0, bulletFontSize=9, spaceAfter=2.5)
NOTE = style(8, 9.6, alignment=4)


def make() -> bytes:
    """The bytes of the paper."""
    return build(_story(), _pages(), A4, words.TITLE)


def _story() -> list[Any]:
    return [
        *_head(),
        *_introduction(),
        *_river(),
        *_method(),
        *_results(),
        *_closing(),
    ]


def _head() -> list[Any]:
    abstract = style(9.4, 11.4, alignment=4, leftIndent=26, rightIndent=26)
    return [
        NextPageTemplate("spread"),
        Paragraph(words.TITLE_SET, style(18, 22, fontName=SERIF_BOLD, alignment=1, spaceAfter=8)),
        Paragraph(words.AUTHORS, style(11, 14, alignment=1)),
        Paragraph(words.AFFILIATION, style(9.6, 13, fontName=SERIF_ITALIC, alignment=1, spaceAfter=9)),
        text(f"<b>Abstract.</b> {words.ABSTRACT}", abstract),
        FrameBreak(),
    ]


def _introduction() -> list[Any]:
    first, second = words.INTRODUCTION
    return [
        *heading("1 Introduction"),
        text(first, FIRST),
        text(second),
        *items(words.REQUIREMENTS),
        text(words.INTRODUCTION_END, FIRST),
    ]


def _river() -> list[Any]:
    first, second = words.RIVER
    return [
        *heading("2 The River and Its Gauges"),
        text(first, FIRST),
        *captioned(jpeg(landscape(11), COLUMN), words.FIGURE_1),
        text(second),
        *captioned(booktabs(words.TABLE_1_ROWS, [58, 45, 46, 45, 41], 8.6), words.TABLE_1, above=True),
    ]


def _method() -> list[Any]:
    first, second = words.FORECAST_AFTER
    return [
        *heading("3 Method", before_heading=True),
        *heading("3.1 The Forecast", SUBSECTION),
        text(words.FORECAST, FIRST),
        Spacer(0, 3),
        formula(COLUMN),
        Spacer(0, 3),
        text(first, FIRST),
        text(second),
        NextPageTemplate("plain"),
        *heading("3.2 The Daily Routine", SUBSECTION),
        text(words.ROUTINE, FIRST),
        *items(words.ROUTINE_STEPS, numbered=True),
        text(words.ROUTINE_END, FIRST),
        *heading("3.3 How Errors Are Counted", SUBSECTION),
        text(words.ERRORS, FIRST),
    ]


def _results() -> list[Any]:
    first, second = words.LEVELS
    return [
        *heading("4 Results", before_heading=True),
        *heading("4.1 Levels", SUBSECTION),
        text(first, FIRST),
        text(second),
        *captioned(ten_days(COLUMN), words.FIGURE_3),
        *heading("4.2 Errors", SUBSECTION),
        text(words.ERROR_SIZES[0], FIRST),
        *captioned(ruled(words.TABLE_2_ROWS, [62, 54, 54, 54], 8.6, PALE), words.TABLE_2, above=True),
        *heading("4.3 Warnings", SUBSECTION),
        text(words.WARNINGS, FIRST),
        *captioned(warnings(COLUMN), words.FIGURE_4),
    ]


def _closing() -> list[Any]:
    references = [text(line, REFERENCE, f"[{n}]") for n, line in enumerate(words.REFERENCES, 1)]
    first, *rest = words.DISCUSSION
    return [
        *heading("5 Discussion"),
        text(first, FIRST),
        *(text(paragraph, BODY) for paragraph in rest),
        *heading("6 Conclusion"),
        text(words.CONCLUSION[0], FIRST),
        *heading("Acknowledgements"),
        text(words.THANKS, FIRST),
        *heading("References"),
        *references,
    ]


def _pages() -> list[PageTemplate]:
    """First page (title across, footnote), plain pages, and the page with a figure across both columns."""
    right = MARGIN + COLUMN + GUTTER
    below = TOP - TITLE_HEIGHT - FOOT
    first = [
        _frame(MARGIN, TOP - TITLE_HEIGHT, SPAN, TITLE_HEIGHT),
        _frame(MARGIN, FOOT + NOTE_HEIGHT, COLUMN, below - NOTE_HEIGHT),
        _frame(right, FOOT, COLUMN, below),
    ]
    plain = [_frame(MARGIN, FOOT, COLUMN, TOP - FOOT), _frame(right, FOOT, COLUMN, TOP - FOOT)]
    short = TOP - FOOT - SPREAD_HEIGHT
    spread = [_frame(MARGIN, FOOT, COLUMN, short), _frame(right, FOOT, COLUMN, short)]
    return [
        PageTemplate("first", first, onPage=_first_page),
        PageTemplate("plain", plain, onPage=_running),
        PageTemplate("spread", spread, onPage=_spread_page),
    ]


def _frame(x: float, y: float, width: float, height: float) -> Frame:
    return Frame(x, y, width, height, leftPadding=0, rightPadding=0, topPadding=0, bottomPadding=0)


def _first_page(canvas: Canvas, doc: object) -> None:
    _number(canvas)
    canvas.setStrokeColor(INK)
    canvas.setLineWidth(0.5)
    canvas.line(MARGIN, FOOT + NOTE_HEIGHT - 12, MARGIN + 70, FOOT + NOTE_HEIGHT - 12)
    note = text(words.FOOTNOTE, NOTE)
    _, height = note.wrap(COLUMN, NOTE_HEIGHT)
    note.drawOn(canvas, MARGIN, FOOT + NOTE_HEIGHT - 16 - height)


def _running(canvas: Canvas, doc: object) -> None:
    """Running header and page number."""
    _number(canvas)
    canvas.setFont(SERIF_ITALIC, 8.6)
    canvas.setFillColor(INK)
    canvas.drawString(MARGIN, HEIGHT - 42, words.SHORT_AUTHORS)
    canvas.drawRightString(WIDTH - MARGIN, HEIGHT - 42, words.SERIES)
    canvas.setStrokeColor(GREY)
    canvas.setLineWidth(0.4)
    canvas.line(MARGIN, HEIGHT - 47, WIDTH - MARGIN, HEIGHT - 47)


def _spread_page(canvas: Canvas, doc: object) -> None:
    _running(canvas, doc)
    chart = winter(SPAN, SPREAD_HEIGHT - 42)
    renderPDF.draw(chart, canvas, MARGIN, TOP - chart.height)
    label, rest = words.FIGURE_2.split(":", 1)
    caption = text(f"<b>{label}:</b>{rest}", CAPTION)
    _, height = caption.wrap(SPAN, 40)
    caption.drawOn(canvas, MARGIN, TOP - chart.height - 4 - height)


def _number(canvas: Canvas) -> None:
    canvas.setFont(SERIF, 9)
    canvas.setFillColor(INK)
    canvas.drawCentredString(WIDTH / 2, 36, str(canvas.getPageNumber()))
