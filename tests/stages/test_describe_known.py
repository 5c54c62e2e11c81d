"""Which figures are asked about, and what their rows say: those of which something is known, copies, and failures."""

import asyncio

import pytest

from llm_ocr.errors import PageFailure
from llm_ocr.stages import Silent
from llm_ocr.stages.describe import Describe
from llm_ocr.stages.flow import Admission
from llm_ocr.types import Box, EncodedImage, Figure, FigureRecord, PageRecord, Reason, Status

CROP = EncodedImage(b"crop", "image/png", 80, 60)


class Asked:
    """A figure reader that says "asked", after so many failures."""

    name = "other"

    def __init__(self, failures: int) -> None:
        self.figures: list[str] = []
        self.failures = failures

    async def describe(self, figure, page_id, document_id, on_dispatched):
        self.figures.append(figure.id)
        if len(self.figures) <= self.failures:
            raise PageFailure(Reason.ENGINE_TIMEOUT, "too slow", tries=({"tokens_in": 7, "tokens_out": 3},) * 2)
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


def described(
    *, keep_known: bool, failures: int = 0, superseded: tuple[str, ...] = (), earlier: str = ""
) -> tuple[list[FigureRecord], list[str]]:
    figures = tuple(
        Figure(f"d-p00001-f0{number}", "chart", Box(0, 0, 1, 1), CROP, described=said)
        for number, said in enumerate(("A chart of levels.", "", "A chart of rain."), 1)
    )
    page = PageRecord("d-p00001", "d", "a.pdf", 1, 0, Status.OK, engine="lightonocr-3", figures=figures)
    published: list[FigureRecord] = []
    reader = Asked(failures)

    async def publish(unit, rows):
        published.extend(rows)

    async def units():
        yield "0001-000000", [page]

    again = {"0001-000000": superseded}
    stage = Describe(reader, "describe", publish, Silent(), Admission(4), keep_known=keep_known, superseded=again)
    if earlier:
        name = figures[0].id
        stage.remember([page], {name: FigureRecord(name, "", "", Status.OK, "describe", description=earlier)})
    asyncio.run(stage.run(units()))
    return published, reader.figures


def test_page_model_descriptions_are_kept_and_others_requested():
    rows, asked = described(keep_known=True)
    assert [(row.description, row.engine, row.status) for row in rows] == [
        ("A chart of levels.", "lightonocr-3", Status.OK),
        ("asked", "other", Status.OK),
        ("A chart of rain.", "lightonocr-3", Status.OK),
    ]
    assert [row.figure_id for row in rows] == ["d-p00001-f01", "d-p00001-f02", "d-p00001-f03"]
    assert asked == ["d-p00001-f02"]


def test_where_nothing_is_to_be_kept_all_are_asked_about():
    rows, _ = described(keep_known=False)
    assert {row.description for row in rows} == {"asked"}


def test_failed_figure_keeps_its_cost_and_picture_is_retried():
    rows, asked = described(keep_known=False, failures=1)
    assert len(asked) == 2
    assert sorted((row.status, row.description) for row in rows) == [
        (Status.FAILED, ""),
        (Status.OK, "asked"),
        (Status.OK, "asked"),
    ]
    (failed,) = (row for row in rows if row.status is Status.FAILED)
    assert (failed.reason, failed.detail, failed.figure_id) == (Reason.ENGINE_TIMEOUT, "too slow", asked[0])
    assert (failed.tokens_in, failed.tokens_out) == (14, 6)


def test_cost_of_a_repeated_picture_is_counted_once():
    rows, asked = described(keep_known=False)
    assert (len(rows), len(asked)) == (3, 1)
    assert sum(row.tokens_in for row in rows) == 100
    assert sum(row.tokens_out for row in rows) == 10
    assert sum(row.seconds for row in rows) == 2.0


@pytest.mark.parametrize("keep_known", [False, True])
def test_figures_of_superseded_pages_are_not_asked(keep_known):
    rows, asked = described(keep_known=keep_known, superseded=("d-p00001",))
    assert asked == []
    assert {(row.status, row.reason, row.description) for row in rows} == {(Status.FAILED, Reason.GIVEN_UP, "")}
    rows, asked = described(keep_known=keep_known, superseded=("d-p00001",), earlier="A chart")  # for later readings
    assert (asked, {row.description for row in rows}) == ([], {"A chart"})
