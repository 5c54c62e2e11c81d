"""The embedded figure reader quotes sentences inside a figure and adds nothing."""

import asyncio
import json

import pytest

from llm_ocr.engines import FigureReader
from llm_ocr.engines.descriptions import current_form, known_text
from llm_ocr.errors import UsageError
from llm_ocr.types import Box, EncodedImage, Figure, FigureRecord, Status
from llm_ocr_cpu.describe import EmbeddedFigureReader, ReadInside

PIXEL = EncodedImage(b"", "image/png", 1, 1)


def described(caption: str = "", inside: str = "", read_inside: ReadInside | None = None) -> FigureRecord:
    reader: FigureReader = EmbeddedFigureReader(read_inside=read_inside)
    figure = Figure("d-p00001-f01", "chart", Box(0, 0, 1, 1), PIXEL, caption, inside)

    return asyncio.run(reader.describe(figure, "d-p00001", "d"))


def test_sentences_inside_are_quoted_and_all_text_inside_is_data():
    inside = "2019  2020\n\nThe quay was under water\nfor six days in March.\nSales, €\n"
    record = described("Figure 1. Sales\nby year.", inside)
    assert record.description == "Text inside the figure: The quay was under water for six days in March."
    assert json.loads(record.data) == {"inside": inside.strip()}
    assert (record.status, record.mode, record.engine, record.detail) == (Status.OK, "describe", "embedded", "")
    assert (record.figure_id, record.page_id, record.document_id) == ("d-p00001-f01", "d-p00001", "d")


@pytest.mark.parametrize(
    "inside",
    [
        "metres\nUpper Tarn\nMill Weir\n3.0\n2.5\nOctober\nNovember",
        "D D D D D D D D D D D.",
        "Jan Feb Mar Apr May Jun Jul",  # no end mark
        "Mean level of the river (m)",
        "Mill.\nWeir.\nNo. of floods",
        "水位（米）\n十月",
    ],
)
def test_labels_tick_marks_and_fragments_are_data_only(inside):
    record = described("Figure 1. Levels.", inside)
    assert (record.description, json.loads(record.data)) == ("", {"inside": inside})
    assert record.detail == "no sentences inside"


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        ("Register\nWe will talk about the floods.\n$100", "We will talk about the floods."),
        ("He said to all of them,\n“Come.”\nMenu", "He said to all of them, “Come.”"),
        ("水位在十月的傍晚开始下降。\n米", "水位在十月的傍晚开始下降。"),
    ],
)
def test_sentences_are_found_among_labels(inside, words):
    assert described(inside=inside).description == f"Text inside the figure: {words}"


def test_description_is_what_the_model_wrote_while_reading_page():
    figure = Figure("d-p00001-f01", "chart", Box(0, 0, 1, 1), PIXEL, "Figure 1", described="A chart of levels.")

    async def never(image: EncodedImage) -> str:
        raise AssertionError("the figure was read")

    record = asyncio.run(EmbeddedFigureReader(read_inside=never).describe(figure, "d-p00001", "d"))
    assert (record.description, record.engine) == ("A chart of levels.", "embedded")


def test_text_is_read_from_the_picture_only_if_extract_has_none():
    async def read(image: EncodedImage) -> str:
        return "North\nSouth"

    assert json.loads(described("A map", read_inside=read).data) == {"inside": "North\nSouth"}
    assert json.loads(described("A map", "East", read_inside=read).data) == {"inside": "East"}


def test_a_caption_alone_is_no_description():
    record = described("Figure 1. The river in October, looking upstream.", " \n ")
    assert (record.status, record.description, record.data, record.detail) == (Status.OK, "", "", "no sentences inside")


@pytest.mark.parametrize(
    ("old", "description", "inside"),
    [
        ('Caption: "Fig. 1. A "dry" river."', "", ""),
        ('Text inside the figure: "North; South"', "", "North\nSouth"),
        (
            'Caption: "Fig. 1" Text inside the figure: "North; The quay was under water; for six days."',
            "Text inside the figure: The quay was under water for six days.",
            "North\nThe quay was under water\nfor six days.",
        ),
    ],
)
def test_rows_of_older_versions_are_read_in_the_current_form(old, description, inside):
    row = FigureRecord("f", "p", "d", Status.OK, "describe", description=old)
    read = current_form(row)
    assert read.description == description
    assert read.data == (json.dumps({"inside": inside}) if inside else "")
    assert current_form(read) == read


def test_rows_of_models_are_unchanged():
    row = FigureRecord("f", "p", "d", Status.OK, "describe", description='A chart. Caption: "Figure 1"')
    assert current_form(row) is row


def test_a_prompt_quotes_the_caption_and_the_text_inside():
    assert known_text("Figure 1.\nSales", "2019  2020\n\n€\n") == (
        'Caption: "Figure 1. Sales" Text inside the figure: "2019 2020; €"'
    )
    assert known_text("A map", "") == 'Caption: "A map"'
    assert known_text("", "North") == 'Text inside the figure: "North"'


def test_long_inside_text_is_cut_at_a_word():
    text = known_text("", "\n".join(f"row {n}" for n in range(500)))
    assert len(text) < 1050
    assert text.endswith(' …"')
    assert text.removesuffix(' …"').rpartition(" ")[2].rstrip(";").isdecimal()
    assert known_text("", "x" * 2000) == f'Text inside the figure: "{"x" * 1000} …"'
    assert len(described(inside="\n".join(["One row of the long report."] * 500)).description) < 1050


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
