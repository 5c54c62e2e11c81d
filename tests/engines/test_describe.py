"""The embedded figure reader quotes what the document says and adds nothing."""

import asyncio
import json

import pytest

from llm_ocr.engines import FigureReader
from llm_ocr.engines.embedded.describe import EmbeddedFigureReader, ReadInside, known_text
from llm_ocr.errors import UsageError
from llm_ocr.types import Box, EncodedImage, Figure, FigureRecord, Status

PIXEL = EncodedImage(b"", "image/png", 1, 1)


def described(caption: str = "", inside: str = "", read_inside: ReadInside | None = None) -> FigureRecord:
    reader: FigureReader = EmbeddedFigureReader(read_inside=read_inside)
    figure = Figure("d-p00001-f01", "chart", Box(0, 0, 1, 1), PIXEL, caption, inside)

    async def once() -> FigureRecord:
        record = await reader.describe(figure, "d-p00001", "d")
        await reader.close()
        return record

    return asyncio.run(once())


def test_caption_and_inside_text_are_quoted_and_marked():
    record = described("Figure 1. Sales\nby year.", "2019  2020\n\nSales, €\n")
    assert record.description == ('Caption: "Figure 1. Sales by year." Text inside the figure: "2019 2020; Sales, €"')
    assert (record.status, record.mode, record.engine, record.detail) == (Status.OK, "describe", "embedded", "")
    assert (record.figure_id, record.page_id, record.document_id) == ("d-p00001-f01", "d-p00001", "d")


def test_what_the_model_said_when_it_read_the_page_is_the_description():
    figure = Figure("d-p00001-f01", "chart", Box(0, 0, 1, 1), PIXEL, "Figure 1", described="A chart of levels.")

    async def never(image: EncodedImage) -> str:
        raise AssertionError("the figure was read")

    record = asyncio.run(EmbeddedFigureReader(read_inside=never).describe(figure, "d-p00001", "d"))
    assert (record.description, record.engine) == ("A chart of levels.", "embedded")


def test_the_part_that_is_not_known_is_left_out():
    assert described("A map").description == 'Caption: "A map"'
    assert described(inside="North").description == 'Text inside the figure: "North"'


def test_text_is_read_from_the_picture_only_where_extract_knows_none():
    async def read(image: EncodedImage) -> str:
        return "North\nSouth"

    assert described("A map", read_inside=read).description == 'Caption: "A map" Text inside the figure: "North; South"'
    assert described("A map", "East", read_inside=read).description == 'Caption: "A map" Text inside the figure: "East"'


def test_nothing_known_is_ok_empty_and_says_so():
    record = described("", " \n ")
    assert (record.status, record.description, record.detail) == (Status.OK, "", "no caption and no text inside")


def test_long_inside_text_is_cut_at_a_word():
    text = known_text("", "\n".join(f"row {n}" for n in range(500)))
    assert len(text) < 1050
    assert text.endswith(' …"')
    assert text.removesuffix(' …"').rpartition(" ")[2].rstrip(";").isdecimal()
    assert known_text("", "x" * 2000) == f'Text inside the figure: "{"x" * 1000} …"'


@pytest.mark.parametrize("mode", ["parse", "classify", "my-prompt"])
def test_other_modes_are_refused_with_what_to_use(mode):
    with pytest.raises(UsageError, match=mode) as caught:
        EmbeddedFigureReader(mode)
    assert "`describe_mode=describe`" in caught.value.hint


def test_prompts_of_ones_own_are_refused():
    with pytest.raises(UsageError, match="does not use a prompt"):
        EmbeddedFigureReader(prompt="What is this?")


def test_its_identity_is_plain_json():
    assert json.loads(json.dumps(dict(EmbeddedFigureReader().identity()))) == EmbeddedFigureReader().identity()
