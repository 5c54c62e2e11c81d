"""Type, tables and page helpers that all example documents share. Lengths are in points."""

import io
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from reportlab import rl_config
from reportlab.graphics.shapes import Drawing
from reportlab.lib.colors import Color, HexColor
from reportlab.lib.enums import TA_JUSTIFY
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import (
    BaseDocTemplate,
    CondPageBreak,
    Image,
    KeepTogether,
    PageTemplate,
    Paragraph,
    Spacer,
    Table,
    TableStyle,
)

from .hyphens import soften

# Streams as bytes, not as ASCII85: a quarter smaller.
rl_config.useA85 = 0

SERIF, SERIF_BOLD, SERIF_ITALIC = "Times-Roman", "Times-Bold", "Times-Italic"
SANS, SANS_BOLD = "Helvetica", "Helvetica-Bold"
INK = HexColor("#1b1b1f")
GREY = HexColor("#6b6b72")
BLUE = HexColor("#1f5a8c")
ORANGE = HexColor("#d0752a")
GREEN = HexColor("#4c8a57")
PALE = HexColor("#e9eef3")


def style(size: float, leading: float | None = None, **changes: object) -> ParagraphStyle:
    """A paragraph style in Times; `changes` are fields of reportlab's ParagraphStyle."""
    fields: dict[str, Any] = {
        "fontName": SERIF,
        "fontSize": size,
        "leading": leading or size * 1.2,
        "textColor": INK,
        "allowWidows": 0,
        "allowOrphans": 0,
        "splitLongWords": 0,
        "bulletFontName": SERIF,
        "bulletFontSize": size,
    }
    return ParagraphStyle("text", **(fields | changes))


BODY = style(10, 12, alignment=TA_JUSTIFY, firstLineIndent=11)
FIRST = style(10, 12, alignment=TA_JUSTIFY)
ITEM = style(10, 12, alignment=TA_JUSTIFY, leftIndent=17, bulletIndent=3, spaceAfter=2)
SECTION = style(12, 14.5, fontName=SERIF_BOLD, spaceBefore=9, spaceAfter=3.5)
SUBSECTION = style(10, 12, fontName=SERIF_BOLD, spaceBefore=6, spaceAfter=2.5)
CAPTION = style(8.6, 10.4, alignment=TA_JUSTIFY)


def text(words: str, how: ParagraphStyle = BODY, bullet: str | None = None) -> Paragraph:
    """A paragraph whose long words may be divided at line ends."""
    return Paragraph(soften(words), how, bulletText=bullet)


def heading(words: str, how: ParagraphStyle = SECTION, before_heading: bool = False) -> list[Any]:
    """A heading that never stands last in a column: it takes room for two lines, and a next heading, with it."""
    room = how.spaceBefore + how.leading + 4 + 2 * BODY.leading
    if before_heading:
        room += SUBSECTION.spaceBefore + SUBSECTION.leading + 4
    return [CondPageBreak(room), text(words, how)]


def items(lines: Iterable[str], numbered: bool = False, how: ParagraphStyle = ITEM) -> list[Any]:
    """A bulleted or numbered list, with a little room above and below."""
    marks = [text(line, how, f"{n}." if numbered else "\u2022") for n, line in enumerate(lines, 1)]
    return [Spacer(0, 3), *marks, Spacer(0, 3)]


def jpeg(data: bytes, width: float) -> Image:
    """A JPEG as a flowable of that width; its bytes go into the PDF unchanged."""
    pixels = ImageReader(io.BytesIO(data)).getSize()
    return Image(io.BytesIO(data), width=width, height=width * pixels[1] / pixels[0])


def booktabs(rows: Sequence[Sequence[str]], widths: Sequence[float], size: float = 9) -> Table:
    """A table with three horizontal rules and no vertical ones; the first column reads from the left."""
    look = [
        *_cells(size),
        ("LINEABOVE", (0, 0), (-1, 0), 0.9, INK),
        ("LINEBELOW", (0, 0), (-1, 0), 0.5, INK),
        ("LINEBELOW", (0, -1), (-1, -1), 0.9, INK),
        ("ALIGN", (1, 0), (-1, -1), "RIGHT"),
    ]
    return Table([list(row) for row in rows], colWidths=list(widths), style=TableStyle(look))


def ruled(
    rows: Sequence[Sequence[str]],
    widths: Sequence[float],
    size: float = 9,
    head: Color | None = None,
    font: str = SERIF,
) -> Table:
    """A table with a line round every cell; `head` fills the first row."""
    look = [
        *_cells(size, font),
        ("GRID", (0, 0), (-1, -1), 0.6, INK),
        ("FONTNAME", (0, 0), (-1, 0), SERIF_BOLD if font == SERIF else SANS_BOLD),
        ("ALIGN", (1, 0), (-1, -1), "CENTER"),
    ]
    if head is not None:
        look.append(("BACKGROUND", (0, 0), (-1, 0), head))
    return Table([list(row) for row in rows], colWidths=list(widths), style=TableStyle(look))


def _cells(size: float, font: str = SERIF) -> list[tuple[Any, ...]]:
    return [
        ("FONT", (0, 0), (-1, -1), font, size, size * 1.2),
        ("TEXTCOLOR", (0, 0), (-1, -1), INK),
        ("VALIGN", (0, 0), (-1, -1), "MIDDLE"),
        ("TOPPADDING", (0, 0), (-1, -1), 2.4),
        ("BOTTOMPADDING", (0, 0), (-1, -1), 3.2),
        ("LEFTPADDING", (0, 0), (-1, -1), 4),
        ("RIGHTPADDING", (0, 0), (-1, -1), 4),
    ]


def captioned(
    thing: Table | Drawing | Image, caption: str, above: bool = False, how: ParagraphStyle = CAPTION
) -> list[Any]:
    """A table (caption above) or figure (caption below); the part before the first colon is bold."""
    label, rest = re.split(r"(?<=:)", caption, maxsplit=1)
    words = text(f"<b>{label}</b>{rest}", how)
    thing.hAlign = "CENTER"
    parts = [words, Spacer(0, 4), thing] if above else [thing, Spacer(0, 4), words]
    return [Spacer(0, 7), KeepTogether(parts), Spacer(0, 9)]


def build(story: Sequence[Any], pages: Sequence[PageTemplate], size: tuple[float, float], title: str) -> bytes:
    """The PDF of a story. `invariant` leaves out the clock, so the same story gives the same bytes."""
    out = io.BytesIO()
    doc = BaseDocTemplate(
        out, pagesize=size, pageTemplates=list(pages), title=title, author="The llm-ocr authors", invariant=1
    )
    doc.build(list(story))
    return out.getvalue()


def painted(paint: Callable[[Canvas], None], size: tuple[float, float], title: str) -> bytes:
    """The PDF of what `paint` draws on a canvas, page by page."""
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=size, invariant=1, pageCompression=1)
    canvas.setTitle(title)
    canvas.setAuthor("The llm-ocr authors")
    paint(canvas)
    canvas.save()
    return out.getvalue()
