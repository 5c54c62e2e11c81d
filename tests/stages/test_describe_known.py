"""Figures of which the model that read the page has said something already."""

import asyncio

from llm_ocr.stages import Silent
from llm_ocr.stages.admission import Admission
from llm_ocr.stages.describe import Describe
from llm_ocr.types import Box, EncodedImage, Figure, FigureRecord, PageRecord, Status

CROP = EncodedImage(b"crop", "image/png", 80, 60)


class Asked:
    """A figure reader that says "asked"."""

    name = "other"

    def __init__(self) -> None:
        self.figures: list[str] = []

    async def describe(self, figure, page_id, document_id, admitted):
        self.figures.append(figure.id)
        return FigureRecord(
            figure.id,
            page_id,
            document_id,
            Status.OK,
            "describe",
            description="asked",
            engine="other",
            tokens_in=100,
            tokens_out=10,
            seconds=2.0,
        )


def described(*, keep_known: bool) -> tuple[list[FigureRecord], list[str]]:
    figures = tuple(
        Figure(f"d-p00001-f0{number}", "chart", Box(0, 0, 1, 1), CROP, described=said)
        for number, said in enumerate(("A chart of levels.", "", "A chart of rain."), 1)
    )
    page = PageRecord("d-p00001", "d", "a.pdf", 1, 0, Status.OK, engine="lightonocr-3", figures=figures)
    published: list[FigureRecord] = []
    reader = Asked()

    async def publish(unit, rows):
        published.extend(rows)

    async def units():
        yield "0001-000000", [page]

    stage = Describe(reader, "describe", publish, Silent(), Admission(4), keep_known=keep_known)
    asyncio.run(stage.run(units()))
    return published, reader.figures


def test_they_keep_it_and_only_the_others_are_asked_about():
    rows, asked = described(keep_known=True)
    assert [(row.description, row.engine, row.status) for row in rows] == [
        ("A chart of levels.", "lightonocr-3", Status.OK),
        ("asked", "other", Status.OK),
        ("A chart of rain.", "lightonocr-3", Status.OK),
    ]
    assert [row.figure_id for row in rows] == ["d-p00001-f01", "d-p00001-f02", "d-p00001-f03"]
    assert asked == ["d-p00001-f02"]


def test_unless_all_are_to_be_asked_about():
    rows, _ = described(keep_known=False)
    assert {row.description for row in rows} == {"asked"}


def test_what_a_picture_cost_is_counted_once_however_often_it_comes():
    rows, asked = described(keep_known=False)
    assert (len(rows), len(asked)) == (3, 1)
    assert sum(row.tokens_in for row in rows) == 100
    assert sum(row.tokens_out for row in rows) == 10
    assert sum(row.seconds for row in rows) == 2.0
