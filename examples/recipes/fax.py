"""`fax.tiff`: two pages from the keeper of the mill, typed and sent by fax."""

from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas

from .scanner import encode_frames, faxed, render
from .style import INK, painted

DPI = 200
SENDER = "MILL WEIR KEEPER'S OFFICE"
PAGES = (
    (
        "TELEFAX",
        "",
        "To:       Hollow Bridge School, for the board",
        "From:     Walter Quill, keeper of the weir",
        "Subject:  The fallen tree",
        "Pages:    2",
        "",
        "",
        "The old willow above the weir came down in the night and",
        "lies across the stream from bank to bank. Water is standing",
        "behind it and has risen by forty centimetres since six",
        "o'clock. The weir itself is sound and both gates are open.",
        "",
        "Please do not trust tonight's forecast. The sum knows about",
        "rain but it does not know about trees. When the trunk gives",
        "way, and it will, the water will reach you in less than two",
        "hours, whatever the weather is doing.",
        "",
        "I have asked the farm for a tractor and a long chain. Until",
        "it comes I shall read the staff every half hour and send",
        "the level to the school.",
        "",
        "",
        "                                       Walter Quill",
    ),
    (
        "WHOM TO TELEPHONE, AND IN WHICH ORDER",
        "",
        "1. Tolland's farm, 555 0171. Let it ring, they are in the",
        "   barn.",
        "2. The market office, 555 0182. Ask for the stalls to be",
        "   moved to the upper meadow.",
        "3. The school, 555 0190. The children should go home by",
        "   the church path and not along the quay.",
        "",
        "LEVELS AT THE WEIR THIS MORNING",
        "",
        "Time      Level     Gates",
        "6.00      0.71 m    one open",
        "7.00      0.88 m    both open",
        "8.00      1.02 m    both open",
        "9.00      1.11 m    both open",
        "",
        "If you hear nothing from me for an hour, the line is down",
        "and you should act as though the tree had gone.",
    ),
)


def make() -> bytes:
    """The bytes of the fax."""
    sheets = render(painted(_paint, A4, "Fax"), DPI)
    return encode_frames([faxed(sheet, seed) for seed, sheet in enumerate(sheets, 21)], DPI)


def _paint(canvas: Canvas) -> None:
    width, height = A4
    for number, lines in enumerate(PAGES, 1):
        canvas.setFillColor(INK)
        canvas.setFont("Helvetica-Bold", 8.5)
        canvas.drawString(40, height - 28, SENDER)
        canvas.drawRightString(width - 40, height - 28, f"PAGE {number:02d} OF {len(PAGES):02d}")
        for row, line in enumerate(lines):
            canvas.setFont("Courier-Bold" if line.isupper() else "Courier", 12)
            canvas.drawString(80, height - 96 - row * 19, line)
        canvas.showPage()
