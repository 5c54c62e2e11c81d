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

SHOWN = b"q 500 0 0 350 47 400 cm /X Do Q"


def photo(**options: bool) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(1).integers(0, 255, (350, 500), dtype=np.uint8)).save(file, "JPEG", **options)
    return file.getvalue()


def scan(data: bytes, coding: bytes = b"DCTDecode", bits: int = 8) -> bytes:
    about = b"/Type/XObject/Subtype/Image/Width 500/Height 350/ColorSpace/DeviceGray/BitsPerComponent %d/Filter/%s"
    image = b"<<%s/Length %d>>stream\n%s\nendstream" % (about % (bits, coding), len(data), data)
    return pages(SHOWN, extra=(image,))


def page_of(tmp_path, data: bytes, number: int = 1):
    async def steps(renderer):
        return await outcome(renderer, written(tmp_path / "a.pdf", data), number)

    return with_renderer(steps)


@pytest.mark.parametrize(
    "data",
    [
        scan(b""),
        scan(photo()[:200] + bytes(5000)),
        scan(b"garbage" * 500, b"JBIG2Decode", 1),
        scan(b"garbage" * 500, b"JPXDecode"),
    ],
    ids=["empty", "zeros", "jbig2", "jpx"],
)
def test_page_with_only_an_undecodable_image_fails(tmp_path, data):
    assert page_of(tmp_path, data) is Reason.UNREADABLE


def test_cut_jpeg_of_a_page_is_damage(tmp_path):
    whole = photo()
    assert page_of(tmp_path, scan(whole[: 6 * len(whole) // 10])).damage
    assert not page_of(tmp_path, scan(whole)).damage
    assert not page_of(tmp_path, scan(whole[:-2])).damage


def test_cut_jpeg_of_four_channels_is_damage(tmp_path):
    file = io.BytesIO()
    lines("CMYK").save(file, "JPEG")
    whole = file.getvalue()
    for cut in (whole[: 6 * len(whole) // 10], whole):
        page = page_of(tmp_path, scan(cut).replace(b"/DeviceGray", b"/DeviceCMYK"))
        assert bool(page.damage) == (cut is not whole)


def lines(mode: str) -> Image.Image:
    """Return a picture of 500 x 350 pixels with ink in most rows."""
    picture = Image.new("L", (500, 350), 255)
    draw = ImageDraw.Draw(picture)
    for y in range(20, 330, 15):
        draw.text((30, y), f"{y} crates of glass are in the north hall of the warehouse", fill=0)
    return picture.convert(mode)


def fax(compression: str = "group4") -> bytes:
    file = io.BytesIO()
    lines("1").save(file, "TIFF", compression=compression, strip_size=1 << 20)
    with Image.open(file) as saved:
        begin, size = saved.tag_v2[273][0], saved.tag_v2[279][0]
    return file.getvalue()[begin : begin + size]


def fax_scan(data: bytes, parameters: bytes = b"/K -1/Columns 500/Rows 350") -> bytes:
    return scan(data, b"CCITTFaxDecode/DecodeParms<<%s>>" % parameters, 1)


@pytest.mark.parametrize("share", [0.4, 0.6, 0.9])
def test_cut_fax_of_a_page_is_damage(tmp_path, share):
    whole = fax()
    assert page_of(tmp_path, fax_scan(whole[: int(share * len(whole))])).damage


@pytest.mark.parametrize(
    "parameters", [b"/K -1/Columns 500/Rows 350", b"/K -1/Columns 500/Rows 350/BlackIs1 true", b"/K -1/Columns 500"]
)
@pytest.mark.parametrize("end", [None, -3], ids=["end of block", "no end of block"])
def test_whole_fax_of_a_page_is_no_damage(tmp_path, parameters, end):
    assert not page_of(tmp_path, fax_scan(fax()[:end], parameters)).damage


@pytest.mark.parametrize("share", [0.6, 0.95])
def test_cut_jpeg_2000_of_a_page_fails(tmp_path, share):
    file = io.BytesIO()
    with Image.open(io.BytesIO(photo())) as picture:
        picture.save(file, "JPEG2000", tile_size=(100, 100))
    whole = file.getvalue()
    assert page_of(tmp_path, scan(whole[: int(share * len(whole))], b"JPXDecode")) is Reason.UNREADABLE
    assert not page_of(tmp_path, scan(whole, b"JPXDecode")).damage


def test_white_scan_is_blank_and_not_damaged(tmp_path):
    file = io.BytesIO()
    Image.new("L", (500, 350), 255).save(file, "JPEG")
    page = page_of(tmp_path, scan(file.getvalue()))
    assert (page.damage, page.evidence.ink.blank) == ("", True)


def test_content_that_ends_early_is_damage(tmp_path):
    lines = b"".join(text(f"{number}. Captains report to the harbor", y=740 - 20 * number) for number in range(30))
    packed = zlib.compress(lines)

    def compressed(data: bytes) -> bytes:
        plain = stream(b"PLACE")
        made = b"<</Length %d/Filter/FlateDecode>>stream\n%s\nendstream" % (len(data), data)
        return pages(b"PLACE").replace(plain, made)

    assert page_of(tmp_path, compressed(packed[: len(packed) // 2])).damage
    assert not page_of(tmp_path, compressed(packed)).damage
    assert not page_of(tmp_path, compressed(packed[:-4])).damage  # only the checksum is missing


def test_empty_content_is_a_blank_page(tmp_path):
    nothing = b"<</Length 0/Filter/FlateDecode>>stream\n\nendstream"
    page = page_of(tmp_path, pages(b"PLACE").replace(stream(b"PLACE"), nothing))
    assert (page.damage, page.evidence.ink.blank) == ("", True)


def segment(number: int, kind: int, data: bytes) -> bytes:
    return struct.pack(">IBBBI", number, kind, 0, 1, len(data)) + data


def jbig2() -> bytes:
    """Return an embedded JBIG2 page with one region, which is a Group 4 picture (MMR)."""
    page = segment(0, 48, struct.pack(">IIIIBH", 500, 350, 0, 0, 0, 0))
    return page + segment(1, 39, struct.pack(">IIIIBB", 500, 350, 0, 0, 0, 1) + fax())


#: Data of an image, its filters, and its bits per pixel.
WHOLE = {
    "flate": (zlib.compress(lines("L").tobytes()), b"FlateDecode", 8),
    "progressive": (photo(progressive=True), b"DCTDecode", 8),
    "packed jpeg": (zlib.compress(photo()), b"FlateDecode/DCTDecode", 8),
    "group 3": (fax("group3"), b"CCITTFaxDecode/DecodeParms<</K 0/Columns 500/Rows 350>>", 1),
    "jbig2": (jbig2(), b"JBIG2Decode", 1),
}


def figure(data: bytes, coding: bytes, bits: int, size: int = 350) -> bytes:
    """A page of text with an image of this width, whose data and filters are given."""
    first, _, second = coding.partition(b"/")
    filters = b"[/%s/%s]" % (first, second) if second.endswith(b"Decode") else b"/" + coding
    about = b"/Type/XObject/Subtype/Image/Width 500/Height 350/ColorSpace/DeviceGray/BitsPerComponent %d/Filter%s"
    image = b"<<%s/Length %d>>stream\n%s\nendstream" % (about % (bits, filters), len(data), data)
    return pages(
        text("The figure shows the harbor", y=760) + b" q %d 0 0 %d 47 300 cm /X Do Q" % (size, size), extra=(image,)
    )


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("share", [0.5, 0.9])
def test_an_image_whose_data_ends_early_is_damage(tmp_path, kind, share):
    data, *coding = WHOLE[kind]
    if kind == "packed jpeg":
        inner = photo()
        cut = zlib.compress(inner[: int(share * len(inner))])
    else:
        cut = data[: int(share * len(data))]
    assert "ends early" in page_of(tmp_path, figure(cut, *coding)).damage
    assert page_of(tmp_path, figure(data, *coding)).damage == ""


@pytest.mark.parametrize(("coding", "size"), [(b"FooDecode", 350), (b"JBIG2Decode", 25), (b"JPXDecode", 25)])
def test_image_beside_text_that_cannot_be_decoded_is_damage(tmp_path, coding, size):
    page = page_of(tmp_path, figure(b"garbage" * 50, coding, 8, size))
    assert page.damage == "an image of the page cannot be decoded"
    assert not page.evidence.ink.blank


def form(data: bytes, coding: bytes = b"FlateDecode") -> bytes:
    about = b"/Type/XObject/Subtype/Form/BBox[0 0 612 792]/Resources<</Font<</F 3 0 R>>>>"
    return b"<<%s/Filter/%s/Length %d>>stream\n%s\nendstream" % (about, coding, len(data), data)


def test_cut_form_of_a_page_is_damage(tmp_path):
    whole = zlib.compress(b"".join(text(f"Row {row} pays {100 + row}.50", y=600 - 14 * row) for row in range(30)))
    shown = text("The harbour opens at nine") + b"/X Do"
    assert not page_of(tmp_path, pages(shown, extra=(form(whole),))).damage
    assert page_of(tmp_path, pages(shown, extra=(form(whole[: len(whole) // 2]),))).damage
    assert page_of(tmp_path, pages(shown, extra=(form(b"rows", b"NoSuchDecode"),))).damage
