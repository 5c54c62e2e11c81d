"""Pages whose pictures wait on disk come back as they were."""

from llm_ocr.stages.extract import _join, _size, _split
from llm_ocr.types import Box, EncodedImage, Figure, PageRecord, Status


def test_pictures_come_back_as_they_were():
    picture = EncodedImage(b"\n1 2\n\x00page", "image/png", 3, 4)
    figures = tuple(
        Figure(f"f{n}", "image", Box(0, 0, 1, 1), EncodedImage(bytes([n]) * n, "image/png", 1, 1)) for n in (0, 3, 5)
    )
    for image in (picture, None):
        record = PageRecord("p", "d", "s", 1, 0, Status.OK, image=image, markdown="text", figures=figures)
        light, heavy = _split(record)
        assert _size(light) == 0
        assert light.markdown == "text"
        assert _join(light, heavy) == record


def test_a_page_without_pictures_is_split_too():
    record = PageRecord("p", "d", "s", 1, 0, Status.FAILED)
    assert _join(*_split(record)) == record
