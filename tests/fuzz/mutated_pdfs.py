"""PDFs with something wrong: structures made so, and whole documents whose structure is damaged. Seeded."""

import io
import random
import re
import zlib
from collections.abc import Callable, Sequence

from mutated_bytes import spoiled

Builder = Callable[[random.Random], bytes]
_HELVETICA = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"
_MAD_BOXES = (
    b"[0 0 0 0]", b"[0 0 612 -792]", b"[612 792 0 0]", b"[0 0 NaN NaN]", b"[nan inf 1 2]", b"[0 0 1e38 1e38]",
    b"[0 0 99999999999999999999 3]", b"[-1e9 -1e9 1e9 1e9]", b"[0 0 1]", b"[]", b"null", b"(text)", b"[/A/B/C/D]",
    b"[0 0 14400 0.001]", b"[0 0 0.0001 0.0001]", b"[2147483647 2147483647 2147483648 2147483649]", b"[0 0 3 90000]",
    b"[[0 0 612 792]]", b"[9 0 R 9 0 R 9 0 R 9 0 R]", b"[0 0 612 792 1 2 3]", b"[0 0 .. --5]", b"[0 0 200000 200000]",
)  # fmt: skip
_MAD_FILTERS = (
    b"/JBIG2Decode", b"/JPXDecode", b"/DCTDecode", b"/CCITTFaxDecode", b"/LZWDecode", b"/RunLengthDecode",
    b"/ASCII85Decode", b"/ASCIIHexDecode", b"/Crypt", b"/NoSuchDecode", b"[/FlateDecode/DCTDecode]", b"9 0 R",
    b"[" + b"/FlateDecode" * 200 + b"]",
)  # fmt: skip


def pdf(*objects: bytes, trailer: bytes = b"") -> bytes:
    """A PDF of numbered objects, the first of them its catalogue."""
    out, places = b"%PDF-1.7\n", []
    for number, body in enumerate(objects, start=1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, table)
    end = b"trailer<</Root 1 0 R/Size %d%s>>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, trailer, len(out))
    return out + head + end


def stream(data: bytes, about: bytes = b"", length: int | None = None, packed: bool = True) -> bytes:
    """A stream object; `length` lies."""
    body = zlib.compress(data) if packed else data
    size = len(body) if length is None else length
    return b"<<%s%s/Length %d>>stream\n%s\nendstream" % (b"/Filter/FlateDecode" if packed else b"", about, size, body)


def page(
    content: bytes, *more: bytes, box: bytes = b"[0 0 200 100]", about: bytes = b"", resources: bytes = b""
) -> bytes:
    """A document of one page; `more` are objects from number 6."""
    return pdf(
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox%s/Contents 4 0 R/Resources<</Font<</F 5 0 R>>%s>>%s>>"
        % (box, resources, about),
        content,
        _HELVETICA,
        *more,
    )


def _words(chance: random.Random) -> bytes:
    return b"BT /F 12 Tf 20 50 Td (Number %d) Tj ET\n" % chance.randrange(10**9)


def mad_box(chance: random.Random) -> bytes:
    names = (b"/CropBox", b"/Rotate", b"/UserUnit", b"/ArtBox")
    about = b"".join(name + chance.choice((*_MAD_BOXES, b" 45", b" -90", b" 1e30")) for name in chance.sample(names, 2))
    return page(stream(_words(chance)), box=chance.choice(_MAD_BOXES), about=about if chance.random() < 0.5 else b"")


def claimed_pages(chance: random.Random) -> bytes:
    """The tree says that it has more pages than it has, or fewer, or none that can be counted."""
    count = chance.choice((b"-1", b"0", b"7", b"400", b"2147483647", b"99999999999", b"null", b"(x)", b"1.5"))
    kids = chance.choice((b"3 0 R", b"3 0 R 3 0 R 3 0 R", b"9 0 R", b"null", b"", b"3 0 R 9 0 R 3 0 R", b"1 0 R"))
    return pdf(
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[%s]/Count %s>>" % (kids, count),
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 100]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>",
        stream(_words(chance)),
        _HELVETICA,
    )


def page_tree_cycle(chance: random.Random) -> bytes:
    kids = chance.choice((b"2 0 R", b"3 0 R", b"4 0 R 3 0 R", b"1 0 R", b"3 0 R 2 0 R 5 0 R"))
    return pdf(
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[%s]/Count %d>>" % (kids, chance.choice((1, 2, 50))),
        b"<</Type/Pages/Parent 2 0 R/Kids[2 0 R 4 0 R]/Count %d>>" % chance.choice((1, 3)),
        b"<</Type/Pages/Parent 4 0 R/Kids[3 0 R 5 0 R]/Count 2>>",
        b"<</Type/Page/Parent %d 0 R/MediaBox[0 0 200 100]/Contents 5 0 R>>" % chance.choice((2, 3, 5)),
    )


def deep(chance: random.Random) -> bytes:
    """Nesting of a thousand or a hundred thousand levels: in a content stream, an object, or the tree of pages."""
    levels = chance.choice((600, 5000, 100_000))
    kind = chance.randrange(4)
    if kind == 0:
        return page(stream(b"q " * levels + _words(chance) + b"Q " * levels))
    if kind == 1:
        return page(stream(_words(chance)), about=b"/X" + b"[" * levels + b"]" * levels)
    if kind == 2:
        return page(stream(b"/X Do\n" + _words(chance)), about=b"/Y" + b"<</A" * levels + b" 1" + b">>" * levels)
    chain = [b"<</Type/Pages/Parent %d 0 R/Kids[%d 0 R]/Count 1>>" % (n - 1, n + 1) for n in range(3, 600)]
    return pdf(b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>", *chain, b"<</Type/Page>>")


def lying_length(chance: random.Random) -> bytes:
    length = chance.choice((0, 1, -5, 10**6, 2**31, 2**40))
    return page(stream(_words(chance), length=length, packed=chance.random() < 0.5))


def flate_bomb(chance: random.Random) -> bytes:
    """A stream that takes kilobytes in the file and megabytes unpacked: content, an image, or a font."""
    size = chance.choice((1 << 22, 1 << 25, 1 << 27))
    filling = chance.choice((b"\0", b" ", b"q ", b"0 0 m "))
    packer = zlib.compressobj(9)
    piece = filling * ((1 << 16) // len(filling))
    packed = b"".join(packer.compress(piece) for _ in range(size // len(piece))) + packer.flush()
    if chance.random() < 0.3:
        packed, more = zlib.compress(packed, 9), b"[/FlateDecode/FlateDecode]"
    else:
        more = b"/FlateDecode"
    bomb = b"<<%%s/Filter%s/Length %d>>stream\n" % (more, len(packed))
    if chance.random() < 0.6:
        return page((bomb % b"") + packed + b"\nendstream")
    side = chance.choice((100, 3000, 30_000))
    about = b"/Type/XObject/Subtype/Image/Width %d/Height %d/ColorSpace/DeviceGray/BitsPerComponent 8" % (side, side)
    image = (bomb % about) + packed + b"\nendstream"
    return page(stream(b"200 0 0 100 0 0 cm /X Do\n"), image, resources=b"/XObject<</X 6 0 R>>")


def mad_image(chance: random.Random) -> bytes:
    """An image of garbage behind a filter, of sizes that do not fit it."""
    body = chance.choice(
        (chance.randbytes(300), b"\0\0\0\x0cjP  \r\n\x87\n" + chance.randbytes(400), b"\xff\xd8\xff\xe0" * 40)
    )
    sizes = (0, 1, 17, 200, 5000, 65535, 2**31 - 1, -4)
    about = b"/Type/XObject/Subtype/Image/Width %d/Height %d/BitsPerComponent %d" % (
        chance.choice(sizes), chance.choice(sizes), chance.choice((0, 1, 3, 8, 16, 99)),
    )  # fmt: skip
    colours = (b"/DeviceRGB", b"/DeviceCMYK", b"[/Indexed/DeviceRGB 255 9 0 R]", b"[/ICCBased 6 0 R]", b"/None", b"[]")
    about += b"/ColorSpace%s/Filter%s" % (chance.choice(colours), chance.choice(_MAD_FILTERS))
    about += chance.choice(
        (b"", b"/SMask 6 0 R", b"/DecodeParms<</K -1/Columns 99999999/Rows -3>>", b"/ImageMask true")
    )
    image = stream(body, about, packed=False)
    content = b"q 200 0 0 100 0 0 cm /X Do Q\n" + _words(chance)
    return page(stream(content), image, resources=b"/XObject<</X 6 0 R>>")


def form_cycle(chance: random.Random) -> bytes:
    """Forms that show themselves, patterns that are filled with themselves."""
    form = stream(
        chance.choice((b"/X Do\n", b"/Y Do\n", b"/Y Do /X Do\n")),
        b"/Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<</XObject<</X 6 0 R/Y 7 0 R>>>>",
    )
    resources = b"/XObject<</X 6 0 R/Y 7 0 R>>/Pattern<</P 6 0 R>>"
    return page(stream(b"/X Do /Pattern cs /P scn 0 0 99 99 re f\n" + _words(chance)), form, form, resources=resources)


def locked(chance: random.Random) -> bytes:
    """Said to be encrypted, in ways that no reader knows or that are garbage."""
    version, revision = chance.choice((0, 1, 2, 4, 5, 9)), chance.choice((0, 2, 3, 4, 6, 99))
    key = b"<%s>" % chance.randbytes(chance.choice((0, 3, 32, 48))).hex().encode()
    kind = chance.choice((b"/Standard", b"/Adobe.PubSec", b"/None"))
    encrypt = b"/Encrypt<</Filter%s/V %d/R %d/O%s/U%s/P %d/Length %d>>" % (
        kind, version, revision, key, key, chance.choice((-4, 0, 2**40)), chance.choice((40, 128, 7, -1)),
    )  # fmt: skip
    whole = page(stream(_words(chance)))
    return whole.replace(b"/Root 1 0 R", b"/Root 1 0 R/ID[<00><00>]" + encrypt)


def mad_content(chance: random.Random) -> bytes:
    """Operators in any order with any operands."""
    operators = (
        b"q Q cm w J j M d ri i gs m l c v y h re S s f F f* B B* b n W W* BT ET Tc Tw Tz TL Tf Tr Ts Td TD Tm T* Tj "
        b"TJ ' \" Do sh BI ID EI MP DP BMC BDC EMC cs CS sc SC scn SCN g G rg RG k K"
    ).split()
    operands = (
        *(b"0", b"1", b"-1", b"1e30", b"nan", b"99999999999", b"/F", b"/X", b"(a\\", b"<zz>", b"[", b"]", b"<<"),
        *(b">>", b"()", b"0.00001"),
    )
    words = [chance.choice(operators if chance.random() < 0.4 else operands) for _ in range(chance.choice((50, 2000)))]
    return page(stream(b" ".join(words) + b"\n" + _words(chance)))


def cut_font(chance: random.Random) -> bytes:
    """A font whose program is cut or noise, with widths and meanings that are none."""
    program = chance.choice(
        (b"\0\1\0\0" + chance.randbytes(200), b"OTTO" + bytes(50), b"%!PS-AdobeFont", b"", chance.randbytes(99))
    )
    kind = chance.choice((b"/FontFile", b"/FontFile2", b"/FontFile3"))
    font = b"<</Type/Font/Subtype/TrueType/BaseFont/A/FirstChar %d/LastChar %d/Widths[%s]%s>>" % (
        chance.choice((0, 32, -7)), chance.choice((255, 10, 2**31 - 1)), b"1e9 -5 (x) " * 20,
        b"/FontDescriptor 6 0 R/ToUnicode 8 0 R",
    )  # fmt: skip
    meaning = (
        b"begincmap 1 begincodespacerange <00> <ffff> endcodespacerange 1 beginbfrange <00> <ffff> <d800> endbfrange"
    )
    whole = page(
        stream(_words(chance)),
        b"<</Type/FontDescriptor/FontName/A/Flags 4/FontBBox[0 0 1e9 -1]/Ascent 1e30%s 7 0 R>>" % kind,
        stream(program, b"/Length1 %d" % chance.choice((0, 5, 10**9)), packed=chance.random() < 0.5),
        stream(meaning, packed=False),
    )
    return whole.replace(_HELVETICA, font)


def xref_damage(data: bytes, chance: random.Random) -> bytes:
    """The table of objects, or where it is said to stand, is wrong."""
    kind = chance.randrange(4)
    if kind == 0:
        return re.sub(rb"startxref\s+\d+", b"startxref\n%d" % chance.choice((0, 1, 5, len(data) * 2, 2**40)), data)
    if kind == 1:
        return re.sub(rb"(\d{10}) (\d{5}) n", lambda m: b"%010d %s n" % (chance.randrange(len(data)), m[2]), data)
    if kind == 2:
        return data.replace(b"xref", b"xrfe").replace(b"trailer", b"tailer" if chance.random() < 0.5 else b"trailer")
    return re.sub(rb"/Prev \d+|/Size \d+", b"/Prev %d" % max(0, data.rfind(b"xref")), data)


def objects_spliced(data: bytes, chance: random.Random, pool: Sequence[bytes]) -> bytes:
    """Objects of another document stand in place of this one's, or behind them."""
    pattern = re.compile(rb"\d+ 0 obj\b.{0,40000}?endobj", re.DOTALL)
    mine, others = pattern.findall(data), pattern.findall(chance.choice(pool))
    if not mine or not others:
        return data
    for _ in range(chance.randint(1, 4)):
        old, new = chance.choice(mine), chance.choice(others)
        number = old.split(b" ", 1)[0] if chance.random() < 0.7 else new.split(b" ", 1)[0]
        data = data.replace(old, number + b" " + new.split(b" ", 1)[1], 1)
    return data


def plain_pdf(chance: random.Random, pages: int = 1) -> bytes:
    """A sound document of a few lines on small pages, by a real writer."""
    from reportlab.pdfgen.canvas import Canvas

    out = io.BytesIO()
    canvas = Canvas(out, pagesize=(300, 200), pageCompression=chance.randrange(2), invariant=1)
    for _ in range(pages):
        for line in range(4):
            canvas.drawString(20, 150 - 25 * line, f"Line {line}, number {chance.randrange(10**9)} of the harbour.")
        canvas.showPage()
    canvas.save()
    return out.getvalue()


BUILT: dict[str, Builder] = {
    one.__name__: one
    for one in (
        mad_box, claimed_pages, page_tree_cycle, deep, lying_length, flate_bomb, mad_image, form_cycle, locked,
        mad_content, cut_font,
    )
}  # fmt: skip


def pdf_case(chance: random.Random, pool: Sequence[bytes]) -> tuple[str, bytes]:
    """What was done, and the bytes; `pool` holds whole PDFs, the smaller ones are spoiled more often."""
    if chance.random() < 0.4:
        name = chance.choice(list(BUILT))
        data = BUILT[name](chance)
        if chance.random() < 0.2:
            how, data = spoiled(data, chance, pool)
            name += "+" + how
        return name, data
    data = plain_pdf(chance, chance.randint(1, 3)) if chance.random() < 0.3 else chance.choice(pool)
    how = chance.random()
    if how < 0.25:
        return "xref_damage", xref_damage(data, chance)
    if how < 0.5:
        return "objects_spliced", objects_spliced(data, chance, pool)
    return spoiled(data, chance, pool)
