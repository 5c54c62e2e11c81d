"""A page whose images or content cannot be decoded is never taken for a blank or a whole page."""

import io
import zlib

import numpy as np
import pytest
from making import pages, stream, text, written
from PIL import Image
from test_rendering import outcome, with_renderer

from llm_ocr.types import Reason

SHOWN = b"q 500 0 0 350 47 400 cm /X Do Q"


def photo() -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(1).integers(0, 255, (350, 500), dtype=np.uint8)).save(file, "JPEG")
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
