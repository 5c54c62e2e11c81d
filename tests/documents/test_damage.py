"""A page whose images or content cannot be decoded is never taken for a blank or a whole page."""

import io
import struct
import zlib

import numpy as np
import pytest
from pdf_writing import pages, stream, text, written
from PIL import Image, ImageDraw
from test_rendering import outcome, with_renderer

from llm_ocr.types import Reason


def pages_of(tmp_path, *files: bytes):
    """The first page of each PDF, or the reason why there is none."""

    async def steps(renderer):
        paths = [written(tmp_path / f"{number}.pdf", data) for number, data in enumerate(files)]
        return [await outcome(renderer, path) for path in paths]

    return with_renderer(steps)


def encoded(picture: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def noise() -> Image.Image:
    return Image.fromarray(np.random.default_rng(1).integers(0, 255, (350, 500), dtype=np.uint8))


def lines(mode: str) -> Image.Image:
    """Return a picture of 500 x 350 pixels with ink in most rows."""
    picture = Image.new("L", (500, 350), 255)
    draw = ImageDraw.Draw(picture)
    for y in range(20, 330, 15):
        draw.text((30, y), f"{y} crates of glass are in the north hall of the warehouse", fill=0)
    return picture.convert(mode)


def fax(compression: str = "group4") -> bytes:
    file = encoded(lines("1"), "TIFF", compression=compression, strip_size=1 << 20)
    with Image.open(io.BytesIO(file)) as saved:
        begin, size = saved.tag_v2[273][0], saved.tag_v2[279][0]
    return file[begin : begin + size]


def jbig2() -> bytes:
    """Return an embedded JBIG2 page with one region, which is a Group 4 picture (MMR)."""

    def segment(number: int, kind: int, data: bytes) -> bytes:
        return struct.pack(">IBBBI", number, kind, 0, 1, len(data)) + data

    page = segment(0, 48, struct.pack(">IIIIBH", 500, 350, 0, 0, 0, 0))
    return page + segment(1, 39, struct.pack(">IIIIBB", 500, 350, 0, 0, 0, 1) + fax())


def image(data: bytes, filters: bytes, bits: int, space: bytes = b"Gray") -> bytes:
    about = b"/Type/XObject/Subtype/Image/Width 500/Height 350/ColorSpace/Device%s/BitsPerComponent %d/Filter%s"
    return b"<<%s/Length %d>>stream\n%s\nendstream" % (about % (space, bits, filters), len(data), data)


def scan(data: bytes, filters: bytes = b"/DCTDecode", bits: int = 8, space: bytes = b"Gray") -> bytes:
    """A page with nothing but an image, whose data and filters are given."""
    return pages(b"q 500 0 0 350 47 400 cm /X Do Q", extra=(image(data, filters, bits, space),))


def figure(data: bytes, filters: bytes, bits: int = 8, size: int = 350) -> bytes:
    """A page of text with an image of this width."""
    drawn = text("The figure shows the harbor", y=760) + b" q %d 0 0 %d 47 300 cm /X Do Q" % (size, size)
    return pages(drawn, extra=(image(data, filters, bits),))


def fax_scan(data: bytes, parameters: bytes = b"/K -1/Columns 500/Rows 350") -> bytes:
    return scan(data, b"/CCITTFaxDecode/DecodeParms<<%s>>" % parameters, 1)


def content(data: bytes) -> bytes:
    """A page with this compressed content."""
    made = b"<</Length %d/Filter/FlateDecode>>stream\n%s\nendstream" % (len(data), data)
    return pages(b"PLACE").replace(stream(b"PLACE"), made)


def form(data: bytes, coding: bytes = b"FlateDecode") -> bytes:
    """A page of text with this compressed form."""
    about = b"/Type/XObject/Subtype/Form/BBox[0 0 612 792]/Resources<</Font<</F 3 0 R>>>>"
    made = b"<<%s/Filter/%s/Length %d>>stream\n%s\nendstream" % (about, coding, len(data), data)
    return pages(text("The harbour opens at nine") + b"/X Do", extra=(made,))


def cut(data: bytes, share: float) -> bytes:
    return data[: int(share * len(data))]


@pytest.mark.parametrize(
    "data",
    [
        scan(b""),
        scan(encoded(noise())[:200] + bytes(5000)),
        scan(b"garbage" * 500, b"/JBIG2Decode", 1),
        scan(b"garbage" * 500, b"/JPXDecode"),
    ],
    ids=["empty", "zeros", "jbig2", "jpx"],
)
def test_page_with_only_an_undecodable_image_fails(tmp_path, data):
    assert pages_of(tmp_path, data) == [Reason.UNREADABLE]


PHOTO, COLORS, FAX = encoded(noise()), encoded(lines("CMYK")), fax()
FLATE, ROWS = zlib.compress(lines("L").tobytes()), encoded(noise(), progressive=True)
GROUP_3 = (fax("group3"), b"/CCITTFaxDecode/DecodeParms<</K 0/Columns 500/Rows 350>>", 1)
CONTENT = zlib.compress(b"".join(text(f"{n}. Captains report to the harbor", y=740 - 20 * n) for n in range(30)))
FORM = zlib.compress(b"".join(text(f"Row {row} pays {100 + row}.50", y=600 - 14 * row) for row in range(30)))


@pytest.mark.parametrize(
    ("whole", "damaged"),
    [
        pytest.param([scan(PHOTO), scan(PHOTO[:-2])], [scan(cut(PHOTO, 0.6))], id="jpeg"),
        pytest.param([scan(COLORS, space=b"CMYK")], [scan(cut(COLORS, 0.6), space=b"CMYK")], id="four channels"),
        pytest.param([], [fax_scan(cut(FAX, share)) for share in (0.4, 0.6, 0.9)], id="fax"),
        *(
            pytest.param(
                [figure(data, *how)], [figure(cut(data, share), *how) for share in (0.5, 0.9)], id=f"figure {number}"
            )
            for number, (data, *how) in enumerate(
                [(FLATE, b"/FlateDecode"), (ROWS, b"/DCTDecode"), GROUP_3, (jbig2(), b"/JBIG2Decode", 1)]
            )
        ),
        pytest.param(
            [figure(zlib.compress(PHOTO), b"[/FlateDecode/DCTDecode]")],
            [figure(zlib.compress(cut(PHOTO, share)), b"[/FlateDecode/DCTDecode]") for share in (0.5, 0.9)],
            id="packed jpeg",
        ),
        # Only the checksum of the second one is missing.
        pytest.param([content(CONTENT), content(CONTENT[:-4])], [content(cut(CONTENT, 0.5))], id="content"),
        pytest.param([form(FORM)], [form(cut(FORM, 0.5)), form(b"rows", b"NoSuchDecode")], id="form"),
    ],
)
def test_data_that_ends_early_is_damage(tmp_path, whole, damaged):
    found = [page.damage for page in pages_of(tmp_path, *whole, *damaged)]
    assert found[: len(whole)] == [""] * len(whole)
    assert all("ends early" in damage for damage in found[len(whole) :])


def test_whole_fax_of_a_page_is_no_damage(tmp_path):
    usual = b"/K -1/Columns 500/Rows 350"
    kinds = (usual, usual + b"/BlackIs1 true", b"/K -1/Columns 500")
    files = [fax_scan(data, parameters) for parameters in kinds for data in (FAX, FAX[:-3])]  # without end of block
    assert [page.damage for page in pages_of(tmp_path, *files)] == [""] * 6


def test_cut_jpeg_2000_of_a_page_fails(tmp_path):
    whole = encoded(noise(), "JPEG2000", tile_size=(100, 100))
    *damaged, last = pages_of(tmp_path, *(scan(cut(whole, share), b"/JPXDecode") for share in (0.6, 0.95, 1)))
    assert damaged == [Reason.UNREADABLE] * 2
    assert last.damage == ""


def test_white_scan_and_empty_content_are_blank_and_not_damaged(tmp_path):
    white = scan(encoded(Image.new("L", (500, 350), 255)))
    for page in pages_of(tmp_path, white, content(b"")):
        assert (page.damage, page.evidence.ink.blank) == ("", True)


def test_image_beside_text_that_cannot_be_decoded_is_damage(tmp_path):
    kinds = ((b"/FooDecode", 350), (b"/JBIG2Decode", 25), (b"/JPXDecode", 25))
    for page in pages_of(tmp_path, *(figure(b"garbage" * 50, coding, size=size) for coding, size in kinds)):
        assert page.damage == "an image of the page cannot be decoded"
        assert not page.evidence.ink.blank
