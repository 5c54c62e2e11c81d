"""`invoice.png`: one page in colour, as exported by an accounting program."""

import io

from PIL import Image
from reportlab.lib.colors import HexColor, white
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Table, TableStyle

from .scanner import render
from .style import INK, SANS, SANS_BOLD, painted

DPI = 130
TEAL = HexColor("#12616b")
MIST = HexColor("#eef4f4")
LINE = HexColor("#8fa9ad")
MARGIN = 58.0

ROWS = (
    ("Item", "Description", "Quantity", "Unit price", "Amount"),
    ("G-20", "Staff gauge, oak, two metres, painted", "3", "38.00", "114.00"),
    ("R-05", "Rain gauge, copper, with measuring glass", "1", "46.50", "46.50"),
    ("N-11", "Notebook, waterproof, 100 pages", "12", "2.25", "27.00"),
    ("C-02", "Chalk, white, box of fifty", "4", "1.80", "7.20"),
    ("P-01", "Paint, black and white, one litre", "2", "4.65", "9.30"),
)
TOTALS = (("Subtotal", "204.00"), ("Delivery by cart", "8.00"), ("Total in pounds", "212.00"))
BUYER = ("Arlen Valley River Group", "The Mill House", "Hollow Bridge")
FACTS = (("Invoice number", "1847"), ("Customer", "AV-06"), ("Date", "14 September"), ("Due", "14 October"))
NOTES = (
    "Please pay within thirty days and quote the number of the invoice.",
    "Gauges are levelled free of charge if you lend us a boat.",
)


def make() -> bytes:
    """The bytes of the invoice: a PNG with a palette."""
    sheet = render(painted(_paint, A4, "Invoice"), DPI, colour=True)[0]
    out = io.BytesIO()
    flat = sheet.quantize(colors=48, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    flat.save(out, "PNG", optimize=True, dpi=(DPI, DPI))
    return out.getvalue()


def _paint(canvas: Canvas) -> None:
    width, height = A4
    _letterhead(canvas, width, height)
    _parties(canvas, width, height - 186)
    foot = _items(canvas, height - 300)
    canvas.setFillColor(INK)
    canvas.setFont(SANS, 10)
    for row, note in enumerate(NOTES):
        canvas.drawString(MARGIN, foot - 52 - row * 16, note)
    canvas.setStrokeColor(LINE)
    canvas.line(MARGIN, 62, width - MARGIN, 62)
    canvas.setFont(SANS, 8.5)
    canvas.setFillColor(TEAL)
    canvas.drawCentredString(
        width / 2, 48, "Quarrel & Finch  \u00b7  Instrument makers  \u00b7  7 Foundry Lane, Easterby"
    )
    canvas.showPage()


def _letterhead(canvas: Canvas, width: float, height: float) -> None:
    """A mark of three bars and a drop, the maker's name, and the word Invoice."""
    top = height - 92
    canvas.setFillColor(TEAL)
    for n, rise in enumerate((18, 30, 24)):
        canvas.rect(MARGIN + n * 11, top, 8, rise, stroke=0, fill=1)
    canvas.circle(MARGIN + 37, top + 6, 6, stroke=0, fill=1)
    canvas.setFont(SANS_BOLD, 17)
    canvas.drawString(MARGIN + 56, top + 12, "Quarrel & Finch")
    canvas.setFont(SANS, 10)
    canvas.drawString(MARGIN + 56, top - 2, "Instrument makers since the great flood")
    canvas.setFont(SANS_BOLD, 26)
    canvas.drawRightString(width - MARGIN, top + 2, "Invoice")
    canvas.setStrokeColor(TEAL)
    canvas.setLineWidth(1.4)
    canvas.line(MARGIN, top - 18, width - MARGIN, top - 18)


def _parties(canvas: Canvas, width: float, top: float) -> None:
    """The buyer on the left, the facts of the invoice on the right."""
    canvas.setFillColor(INK)
    canvas.setFont(SANS_BOLD, 10.5)
    canvas.drawString(MARGIN, top + 18, "Bill to")
    canvas.setFont(SANS, 10.5)
    for row, line in enumerate(BUYER):
        canvas.drawString(MARGIN, top + 1 - row * 15, line)
    for row, (name, value) in enumerate(FACTS):
        canvas.setFont(SANS_BOLD, 10.5)
        canvas.drawString(width - MARGIN - 178, top + 18 - row * 16, name)
        canvas.setFont(SANS, 10.5)
        canvas.drawRightString(width - MARGIN, top + 18 - row * 16, value)


def _items(canvas: Canvas, top: float) -> float:
    """The table of items and, under its last two columns, the totals. Returns where they end."""
    total = [["", "", "", name, amount] for name, amount in TOTALS]
    last = len(ROWS)
    look = [
        ("FONT", (0, 0), (-1, -1), SANS, 10, 12),
        ("FONT", (0, 0), (-1, 0), SANS_BOLD, 10, 12),
        ("FONT", (3, -1), (-1, -1), SANS_BOLD, 10, 12),
        ("TEXTCOLOR", (0, 0), (-1, -1), INK),
        ("TEXTCOLOR", (0, 0), (-1, 0), white),
        ("BACKGROUND", (0, 0), (-1, 0), TEAL),
        ("BACKGROUND", (3, -1), (-1, -1), MIST),
        ("GRID", (0, 0), (-1, last - 1), 0.7, LINE),
        ("GRID", (3, last), (-1, -1), 0.7, LINE),
        ("ALIGN", (2, 0), (2, -1), "CENTER"),
        ("ALIGN", (3, 0), (4, -1), "RIGHT"),
        ("TOPPADDING", (0, 0), (-1, -1), 6),
        ("BOTTOMPADDING", (0, 0), (-1, -1), 7),
    ]
    table = Table([*map(list, ROWS), *total], colWidths=[46, 216, 56, 96, 66], style=TableStyle(look))
    _, height = table.wrap(480, 600)
    table.drawOn(canvas, MARGIN, top - height)
    return float(top - height)
