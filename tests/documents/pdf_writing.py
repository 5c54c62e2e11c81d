"""Documents that tests make: PDFs written by hand, so that every byte is known."""

import zlib
from pathlib import Path


def pdf(*objects: bytes) -> bytes:
    """A PDF of numbered objects, the first of them its catalog."""
    out, places = b"%PDF-1.5\n", []
    for number, body in enumerate(objects, start=1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, table)
    return out + end + b"trailer<</Root 1 0 R/Size %d>>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, len(out))


def stream(data: bytes, extra: bytes = b"") -> bytes:
    packed = zlib.compress(data, 9)
    return b"<<%s/Filter/FlateDecode/Length %d>>stream\n%s\nendstream" % (extra, len(packed), packed)


PAPER = b"/MediaBox[0 0 612 792]"


def pages(*contents: bytes, attributes: bytes = PAPER, extra: tuple[bytes, ...] = (), catalog: bytes = b"") -> bytes:
    """A PDF with these page contents, font /F (Helvetica), and more objects, the first of which has number 4."""
    first = 4 + len(extra)
    kids = b" ".join(b"%d 0 R" % (first + 2 * index) for index in range(len(contents)))
    objects = [
        b"<</Type/Catalog/Pages 2 0 R%s>>" % catalog,
        b"<</Type/Pages/Kids[%s]/Count %d>>" % (kids, len(contents)),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>",
        *extra,
    ]
    for index, content in enumerate(contents):
        resources = b"<</Font<</F 3 0 R>>/XObject<</X 4 0 R>>>>"
        number = first + 2 * index + 1
        objects.append(b"<</Type/Page/Parent 2 0 R%s/Contents %d 0 R/Resources%s>>" % (attributes, number, resources))
        objects.append(stream(content))
    return pdf(*objects)


def text(words: str, x: float = 72, y: float = 700, size: float = 12, matrix: str = "") -> bytes:
    """Words drawn at a place of the page; `matrix` replaces the upright one."""
    place = matrix or f"1 0 0 1 {x} {y}"
    escaped = words.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
    return f"BT /F {size} Tf {place} Tm ({escaped}) Tj ET\n".encode("cp1252")


def mapped(unicodes: dict[int, str], drawn: bytes, width: int = 500) -> bytes:
    """A page drawn with the font /S: Helvetica whose map names these characters for its codes from 0x21."""
    pairs = " ".join(f"<{code:02x}> <{names.encode('utf-16-be').hex()}>" for code, names in unicodes.items())
    table = f"1 begincodespacerange <00><ff> endcodespacerange {len(unicodes)} beginbfchar {pairs} endbfchar"
    widths = b"/FirstChar 32/LastChar 126/Widths[%s]" % (b"%d " % width * 95)
    font = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica%s/ToUnicode 5 0 R>>" % widths
    return pages(drawn, extra=(font, stream(table.encode()))).replace(b"<</F 3 0 R>>", b"<</S 4 0 R>>")


def placed(pieces: list[tuple[str, float, float]], size: float = 10) -> bytes:
    """A page with these texts at x and y, whose characters need not be in the font."""
    codes = {character: 0x21 + at for at, character in enumerate(sorted({c for words, _, _ in pieces for c in words}))}
    shows = ((size, x, y, bytes(codes[c] for c in words).hex().encode()) for words, x, y in pieces)
    drawn = b"".join(b"BT /S %g Tf %g %g Td <%s> Tj ET\n" % show for show in shows)
    return mapped({code: character for character, code in codes.items()}, drawn, 1000)


def image_of(side: int, data: bytes) -> bytes:
    """A square RGB image whose data may be missing."""
    about = b"/Type/XObject/Subtype/Image/Width %d/Height %d/ColorSpace/DeviceRGB/BitsPerComponent 8" % (side, side)
    return stream(data, about)


def written(path: Path, data: bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return str(path)
