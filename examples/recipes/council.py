"""The three clean pages behind `scan.pdf`: a letter, a page of a report, and a broad page that is scanned sideways."""

from typing import Any

from reportlab.graphics.shapes import Drawing, Path
from reportlab.lib.pagesizes import A4, landscape
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Frame, NextPageTemplate, PageBreak, PageTemplate, Paragraph, Spacer

from . import picture
from .style import (
    INK,
    SANS,
    SANS_BOLD,
    SERIF,
    SERIF_BOLD,
    SERIF_ITALIC,
    build,
    captioned,
    items,
    jpeg,
    ruled,
    style,
    text,
)

MARGIN = 72.0
PLAIN = style(11.5, 15, spaceAfter=8)
POINT = style(11.5, 15, leftIndent=20, bulletIndent=4, bulletFontSize=11.5, spaceAfter=3)
LEGEND = style(10.5, 13)
TITLE = style(16, 20, fontName=SERIF_BOLD, spaceAfter=8)
HEADING = style(13, 17, fontName=SERIF_BOLD, spaceBefore=6, spaceAfter=4)
ADDRESS = ("The Old School, Quay Street", "Hollow Bridge")

LETTER = (
    "Dear Ms Hollins,",
    "At its meeting on Tuesday the council read your paper on the river with great interest, and more than one of us "
    "recognised the notebook that fell in. I am asked to thank the eleven readers, and to tell you what was decided.",
    "First, the three staffs will be repainted in September at the expense of the parish, before the readings begin "
    "again. Mr Tolland has offered his boat for the one below the bridge. Second, the board may stay where it is. The "
    "complaint about chalk on the parapet has been withdrawn.",
    "Third, the council would like a short report on the quay each spring, and has drawn up a first one itself, which "
    "I enclose with the rota for the coming winter. Please correct whatever we have misunderstood. You will see that "
    "we count eight mornings under water, where your second figure shows six crests; the other two may be those on "
    "which nobody could reach the staff.",
    "We should be glad to see you or Mr Vik at the meeting in October.",
)
REPORT_OPENING = (
    "The quay was built for barges that no longer come. It is now used by anglers, by the Saturday market, and by the "
    "river itself, which covered it on eight mornings last winter. This report says what the water did, what was "
    "repaired, and what the parish has to decide before October."
)
REPORT_DAMAGE = (
    "The November flood was the highest and did the most harm: it lifted forty setts at the downstream end and "
    "carried off the bench. The other floods left mud and little else. Table A lists what was spent."
)
TABLE_A = "Table A: Repairs to the quay since last autumn, in pounds."
TABLE_A_ROWS = (
    ("Work", "Hours", "Material", "Labour"),
    ("Relaying of setts", "26", "85", "390"),
    ("New oak bench", "9", "140", "135"),
    ("Clearing of mud", "14", "0", "210"),
    ("Railing at the steps", "6", "62", "90"),
)
FIGURE_A = "Figure A: The meadows above the quay in the second week of January, when the water had begun to fall."
REPORT_END = (
    "The steps are sound. The railing was replaced in February and should last another ten years, provided that "
    "nobody moors a boat to it."
)
DECISIONS = (
    "Whether the bench returns to its old place or moves above the mark of 1.80 m.",
    "Whether the market may use the upper meadow on mornings when the quay is wet.",
    "Who clears the mud, now that Mr Field has hurt his back.",
)
ROTA_OPENING = (
    "Each week has a reader and a deputy. The reader takes the level at seven in the morning and at seven in the "
    "evening, works out the forecast, and chalks it on the board. The deputy steps in when the reader is ill or away, "
    "and keeps the second key of the rain gauge. Anyone who cannot take a week should find a replacement before the "
    "first of the month."
)
ROTA = (
    ("Week", "Reader", "Deputy", "Telephone", "Remarks"),
    ("1", "Agnes Tolland", "Piers Marlowe", "555 0114", "New paint, check the zero"),
    ("2", "Rosa Kettle", "Agnes Tolland", "555 0127", "School holidays"),
    ("3", "Piers Marlowe", "Jonas Field", "555 0133", ""),
    ("4", "Jonas Field", "Rosa Kettle", "555 0148", "Market on Saturday"),
    ("5", "Edith Sorrel", "Teodor Vik", "555 0156", "Clocks go back on Sunday"),
)
ROTA_END = (
    "If the forecast exceeds 1.80 m, telephone the three farms before anything else, and then the school. The numbers "
    "are on the inside of the cupboard door. A reading that was missed is left blank; please do not guess it "
    "afterwards."
)


def make() -> bytes:
    """The bytes of the clean pages, with text layer, all upright; the third is a landscape page."""
    broad = landscape(A4)
    inner = A4[0] - 2 * MARGIN
    story = [
        *_letter(),
        NextPageTemplate("report"),
        PageBreak(),
        *_report(),
        NextPageTemplate("rota"),
        PageBreak(),
        *_rota(),
    ]
    rota = _frame(56, broad[0] - 2 * MARGIN, broad[1] - 136)
    pages = [
        PageTemplate("letter", [_frame(60, inner, A4[1] - 196)], onPage=_letterhead),
        PageTemplate("report", [_frame(60, inner, A4[1] - 140)], onPage=_report_edges),
        PageTemplate("rota", [rota], pagesize=broad, onPage=_report_edges),
    ]
    return build(story, pages, A4, "Letter and report of the parish council")


def _frame(bottom: float, width: float, height: float) -> Frame:
    return Frame(MARGIN, bottom, width, height, leftPadding=0, rightPadding=0, topPadding=0, bottomPadding=0)


def _letter() -> list[Any]:
    address = Paragraph("Mara Hollins<br/>Arlen Valley River Group<br/>The Mill House<br/>Hollow Bridge", PLAIN)
    date = Paragraph("22 May", style(11.5, 15, alignment=2))
    subject = Paragraph(
        "Repainting of the staffs, and a report on the quay", style(11.5, 15, fontName=SERIF_BOLD, spaceAfter=8)
    )
    greeting, *paragraphs = LETTER
    return [
        date,
        Spacer(0, 4),
        address,
        Spacer(0, 12),
        subject,
        *(Paragraph(line, PLAIN) for line in (greeting, *paragraphs)),
        Spacer(0, 2),
        Paragraph("Yours sincerely,", PLAIN),
        _signature(),
        Paragraph("Edith Sorrel<br/>Clerk to the Council", PLAIN),
        Spacer(0, 6),
        Paragraph("Enclosed: report on the quay, rota", style(10, 13, fontName=SERIF_ITALIC)),
    ]


def _report() -> list[Any]:
    return [
        Paragraph("Report on the Quay", TITLE),
        text(REPORT_OPENING, PLAIN),
        Paragraph("What the water did", HEADING),
        text(REPORT_DAMAGE, PLAIN),
        *captioned(ruled(TABLE_A_ROWS, [150, 70, 70, 70], 10.5), TABLE_A, above=True, how=LEGEND),
        *captioned(jpeg(picture.landscape(7, sun=0.3), 330), FIGURE_A, how=LEGEND),
        Paragraph("The steps", HEADING),
        text(REPORT_END, PLAIN),
        Paragraph("What is to be decided", HEADING),
        *items(DECISIONS, numbered=True, how=POINT),
    ]


def _rota() -> list[Any]:
    return [
        Paragraph("Rota of the Readers", TITLE),
        text(ROTA_OPENING, PLAIN),
        Spacer(0, 6),
        ruled(ROTA, [60, 150, 150, 110, 210], 11.5),
        Spacer(0, 16),
        text(ROTA_END, PLAIN),
        Paragraph("What to bring", HEADING),
        *items(
            ("The notebook and two pencils.", "A torch, from November to February.", "The key of the rain gauge."),
            how=POINT,
        ),
    ]


def _signature() -> Drawing:
    """A name in a running hand, as far as a few curves can write one."""
    drawing = Drawing(150, 42)
    hand = Path(strokeColor=INK, strokeWidth=1.3, strokeLineCap=1, fillColor=None)
    hand.moveTo(20, 30)
    hand.curveTo(6, 40, 2, 24, 14, 23)
    hand.curveTo(0, 22, 2, 4, 22, 12)
    hand.curveTo(34, 18, 40, 34, 36, 38)
    hand.curveTo(28, 42, 26, 10, 36, 11)
    hand.curveTo(44, 12, 42, 22, 46, 22)
    hand.curveTo(44, 12, 50, 10, 54, 16)
    hand.curveTo(62, 32, 64, 40, 58, 36)
    hand.curveTo(54, 26, 54, 10, 62, 12)
    hand.curveTo(72, 18, 62, 26, 74, 20)
    hand.moveTo(96, 36)
    hand.curveTo(82, 42, 78, 30, 90, 25)
    hand.curveTo(102, 18, 94, 6, 78, 12)
    hand.curveTo(98, 8, 106, 24, 110, 18)
    hand.curveTo(104, 10, 114, 10, 116, 17)
    hand.curveTo(120, 24, 118, 10, 124, 14)
    hand.curveTo(132, 22, 140, 12, 148, 18)
    hand.moveTo(30, 5)
    hand.curveTo(70, 10, 110, 0, 140, 7)
    drawing.add(hand)
    return drawing


def _letterhead(canvas: Canvas, doc: object) -> None:
    """Mark, name and address above a rule."""
    width, height = A4
    _mark(canvas, MARGIN + 22, height - 76, 22)
    canvas.setFillColor(INK)
    canvas.setFont(SANS_BOLD, 15)
    canvas.drawString(MARGIN + 56, height - 72, "Hollow Bridge Parish Council")
    canvas.setFont(SANS, 9.5)
    canvas.drawString(MARGIN + 56, height - 88, "  \u00b7  ".join(ADDRESS))
    canvas.setLineWidth(0.8)
    canvas.line(MARGIN, height - 108, width - MARGIN, height - 108)


def _mark(canvas: Canvas, x: float, y: float, radius: float) -> None:
    """The council's mark: a bridge of one arch over two waves, in a ring."""
    canvas.saveState()
    canvas.setStrokeColor(INK)
    canvas.setLineWidth(1.6)
    canvas.circle(x, y, radius)
    path = canvas.beginPath()
    for half, foot, top in ((0.8, 0.1, 0.75), (0.5, -0.08, 0.4)):
        reach, base, crown = radius * half, y + radius * foot, y + radius * top
        path.moveTo(x - reach, base)
        path.curveTo(x - reach * 0.4, crown, x + reach * 0.4, crown, x + reach, base)
    for level in (0.35, 0.6):
        half = radius * (0.95 - level * 0.6)
        base = y - radius * level
        path.moveTo(x - half, base)
        path.curveTo(x - half * 0.4, base + 5, x - half * 0.2, base - 5, x, base)
        path.curveTo(x + half * 0.2, base + 5, x + half * 0.4, base - 5, x + half, base)
    canvas.drawPath(path, stroke=1, fill=0)
    canvas.restoreState()


def _report_edges(canvas: Canvas, doc: object) -> None:
    """Running header and page number of the report."""
    width, height = canvas._pagesize
    canvas.setFillColor(INK)
    canvas.setFont(SERIF_ITALIC, 10)
    canvas.drawString(MARGIN, height - 48, "Parish Papers, No. 31")
    canvas.setFont(SERIF, 10)
    canvas.drawCentredString(width / 2, 34, f"\u2013 {canvas.getPageNumber()} \u2013")
