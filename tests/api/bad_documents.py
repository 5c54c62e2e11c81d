"""Synthetic defective documents; each function returns the bytes of a file."""

import io
import itertools
import random
import zlib
from collections.abc import Callable, Iterable, Sequence

from pdf_writing import pdf, stream
from PIL import Image, ImageDraw, ImageFont

SENTENCES = (
    "The river rose in the night and was down again by noon.",
    "Nobody had moved the boats, and three of them were gone.",
    "The clerk wrote the level on the wall with a piece of chalk.",
    "It was the highest mark that anyone in the village had seen.",
)


_ORDINALS = ("First", "Then", "Next", "After that", "Later", "Towards the end", "Last", "At the very end")


def text_pdf(*pages: Iterable[str], password: str = "", size: tuple[float, float] = (612, 792)) -> bytes:
    """Return a PDF with these lines on its pages, encrypted if there is a password."""
    from reportlab.lib.pdfencrypt import StandardEncryption
    from reportlab.pdfgen.canvas import Canvas

    lock = StandardEncryption(password, ownerPassword="of the owner", strength=128) if password else None
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=size, encrypt=lock, invariant=1)
    step = size[1] / 30
    for lines in pages:
        canvas.setFont("Helvetica", step * 0.6)
        for row, line in enumerate(lines, start=3):
            canvas.drawString(size[0] / 9, size[1] - row * step, line)
        canvas.showPage()
    canvas.save()
    return out.getvalue()


def good_pages(name: str, count: int) -> list[list[str]]:
    """Return lines for pages that no other document has, without a running header: each begins differently."""
    return [[f"{_ORDINALS[number]} comes {name}, sheet {number + 1}.", *SENTENCES] for number in range(count)]


def garbage() -> bytes:
    return b"%PDF-1.7\n" + random.Random(7).randbytes(20_000)


def no_pages() -> bytes:
    return pdf(b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[]/Count 0>>")


def blank() -> bytes:
    return _page_by_page([b""])


def _deflated(line: bytes, times: int) -> bytes:
    """Return the zlib stream of a repeated line, without compressing each copy."""
    packer, check = zlib.compressobj(9), 1
    head = packer.compress(line) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(line) + packer.flush(zlib.Z_FULL_FLUSH)
    for _ in range(times):
        check = zlib.adler32(line, check)
    return head + again * (times - 1) + b"\x03\0" + check.to_bytes(4)


def path_bomb(before: str, after: str) -> bytes:
    """Return three pages; the second strokes 200,000 dashed curves: minutes of time, a few kilobytes in the file."""
    curves = b"[1 1] 0 d 3 w\n" + b"0 0 m 300 792 600 0 612 400 c S\n" * 200_000
    return _page_by_page([_shown(before), curves, _shown(after)])


def image_bomb(before: str, after: str) -> bytes:
    """Return three pages; the second shows an image with about 400 kB in the file and 430 MB decoded."""
    side = 12_000
    packed = _deflated(bytes(3 * side), side)
    about = b"/Type/XObject/Subtype/Image/Width %d/Height %d/ColorSpace/DeviceRGB/BitsPerComponent 8" % (side, side)
    image = b"<<%s/Filter/FlateDecode/Length %d>>stream\n%s\nendstream" % (about, len(packed), packed)
    return _page_by_page([_shown(before), b"612 0 0 792 0 0 cm /X Do\n", _shown(after)], extra=(image,))


def image_file_bomb() -> bytes:
    """Return a PNG of 900 million white pixels."""
    side = 30_000
    header = side.to_bytes(4) * 2 + bytes([1, 0, 0, 0, 0])
    data = _deflated(b"\0" + b"\xff" * (side // 8), side)
    chunks = [(b"IHDR", header), (b"IDAT", data), (b"IEND", b"")]
    packed = [len(d).to_bytes(4) + kind + d + zlib.crc32(kind + d).to_bytes(4) for kind, d in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def lying_pdf(lines: Sequence[str], said: Callable[[int], int]) -> bytes:
    """Return a page that shows `lines`, whose font declares that code c means the character `said(c)`."""
    pairs = b"".join(b"<%02x><%04x>\n" % (code, said(code)) for code in range(33, 127))
    meaning = (
        b"/CIDInit/ProcSet findresource begin 12 dict begin begincmap/CMapName/L def/CMapType 2 def\n"
        b"1 begincodespacerange <00><ff> endcodespacerange\n94 beginbfchar\n"
        + pairs
        + b"endbfchar endcmap CMapName currentdict/CMap defineresource pop end end"
    )
    return _page_by_page([_shown(*lines)], font=b"/ToUnicode 4 0 R", extra=(stream(meaning),))


def shifted(code: int) -> int:
    """Return the next letter."""
    return code + 1


def control_code(code: int) -> int:
    """Return a code without a meaning."""
    return 1 + code % 8


def wrong_layer_pdf(seen: Sequence[str], invisible: Sequence[str]) -> bytes:
    """Return a scan of the lines `seen` below an invisible text layer with different text, as after bad OCR."""
    image = _picture(seen)
    data = io.BytesIO()
    image.save(data, "JPEG", quality=90)
    about = b"/Type/XObject/Subtype/Image/Width %d/Height %d/ColorSpace/DeviceGray/BitsPerComponent 8/Filter/DCTDecode"
    head = about % image.size + b"/Length %d" % len(data.getvalue())
    scan = b"<<%s>>stream\n%s\nendstream" % (head, data.getvalue())
    content = b"q 612 0 0 792 0 0 cm /X Do Q 3 Tr\n" + _shown(*invisible)
    return _page_by_page([content], extra=(scan,))


def outlined_pdf(title: str, lines: Sequence[str]) -> bytes:
    """Return a page with a true title, below which lines drawn as outlines run up the page.

    The text layer has the title only. OCR of the whole page reads the lines, and OCR beside the layer does not.
    """
    picture = _picture([])
    picture.paste(_picture(lines).crop((100, 150, 1124, 1174)).rotate(90), (100, 400))
    width, height = picture.size
    dark = picture.point(lambda value: 0 if value > 128 else 1).tobytes()
    runs = []
    for row in range(height):
        line, left = dark[row * width : (row + 1) * width], 0
        for is_dark, group in itertools.groupby(line):
            length = len(list(group))
            if is_dark:
                runs.append(b"%.1f %.1f %.1f 0.5 re\n" % (left / 2, 792 - (row + 1) / 2, length / 2))
            left += length
    return _page_by_page([_shown(title) + b"".join(runs) + b"f\n"])


def _picture(lines: Sequence[str]) -> Image.Image:
    image = Image.new("L", (1224, 1584), 255)
    draw = ImageDraw.Draw(image)
    for row, line in enumerate(lines):
        draw.text((144, 180 + 60 * row), line, fill=0, font=ImageFont.load_default(32))
    return image


def _shown(*lines: str) -> bytes:
    """Return operators that draw lines of text from the top of the page, in font /F."""
    drawn = [
        b"BT /F 16 Tf 72 %d Td (%s) Tj ET\n" % (702 - 30 * row, line.encode("ascii")) for row, line in enumerate(lines)
    ]
    return b"".join(drawn)


def _page_by_page(contents: Sequence[bytes], *, font: bytes = b"", extra: Sequence[bytes] = ()) -> bytes:
    """Return a PDF with these page contents, font /F, and further objects from number 4, named /X on pages."""
    first = 4 + len(extra)
    kids = b" ".join(b"%d 0 R" % (first + 2 * index) for index in range(len(contents)))
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[%s]/Count %d>>" % (kids, len(contents)),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding%s>>" % font,
        *extra,
    ]
    resources = b"<</Font<</F 3 0 R>>%s>>" % (b"/XObject<</X 4 0 R>>" if extra and not font else b"")
    for index, content in enumerate(contents):
        number = first + 2 * index + 1
        about = b"/MediaBox[0 0 612 792]/Contents %d 0 R/Resources%s" % (number, resources)
        objects += [b"<</Type/Page/Parent 2 0 R%s>>" % about, stream(content)]
    return pdf(*objects)
