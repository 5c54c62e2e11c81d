"""--min-quality where pages are read by regions: a weak page is read whole as well, and the better answer counts."""

import asyncio

import pytest
from region_parts import (
    GLM,
    PAGE,
    GivenDetector,
    RegionWorkbench,
    SeeingModel,
    WholeReader,
    rows,
    shown,
    whole_page,
)

from llm_ocr.engines.regions.detection import tasks_with
from llm_ocr.engines.regions.reader import LayoutReader
from llm_ocr.engines.vlm.requests import QualityRule, ReadOptions
from llm_ocr.errors import PageFailure
from llm_ocr.types import Attempt, Page, Reason, Status


def by_length(page: Page, attempt: Attempt) -> tuple[float, str]:
    assert page is PAGE
    quality = min(1.0, sum(len(block.text) for block in attempt.blocks) / 100)
    return quality, "too short" if quality < 0.5 else ""


def read(answer: str, whole: WholeReader, below: float | None = 0.5) -> Attempt:
    rule = None if below is None else QualityRule(by_length, {"least": below})
    parts = (SeeingModel({"01": answer}), GLM, GivenDetector(rows("text")), RegionWorkbench(), tasks_with(()), whole)
    return asyncio.run(LayoutReader(*parts, ReadOptions(backoff=0.0), rule).read(PAGE))


@pytest.mark.parametrize(("answer", "below"), [("x" * 60, 0.5), ("x", None)])
def test_a_page_that_is_good_enough_is_not_read_whole(answer, below):
    whole = WholeReader()
    assert shown(read(answer, whole, below)) == [("text", answer)]
    assert whole.pages == []


def test_weak_page_is_read_whole_and_the_better_result_counts():
    attempt = read("x" * 30, WholeReader(whole_page("y" * 40)))
    assert (attempt.status, shown(attempt)) == (Status.OK, [("text", "y" * 40)])
    assert "its regions are not good enough: too short" in attempt.detail
    assert (len(attempt.tries), attempt.tokens_in) == (2, 1100)


@pytest.mark.parametrize("other", [whole_page("y" * 20), whole_page("y" * 90, Status.DEGRADED)])
def test_the_regions_count_where_the_whole_page_is_no_better(other):
    attempt = read("x" * 30, WholeReader(other))
    assert (attempt.status, shown(attempt)) == (Status.OK, [("text", "x" * 30)])
    assert "the whole page is not better" in attempt.detail
    assert attempt.tokens_in == sum(one["tokens_in"] for one in attempt.tries) == 1100


def test_whole_page_cost_counts_even_without_region_requests():
    parts = (SeeingModel({}), GLM, GivenDetector(rows("text")), RegionWorkbench(crop=lambda box: b"blank"))
    rule = QualityRule(by_length, {})
    reader = LayoutReader(*parts, tasks_with(()), WholeReader(whole_page("")), ReadOptions(backoff=0.0), rule)
    attempt = asyncio.run(reader.read(PAGE))
    assert "the whole page is not better" in attempt.detail
    assert (attempt.tokens_in, attempt.tokens_out, attempt.seconds) == (1000, 500, 5.0)


def test_a_page_that_cannot_be_read_whole_stays_as_it_is():
    row = {"status": "failed", "reason": "truncated", "tokens_in": 7, "tokens_out": 5, "seconds": 1.0}
    attempt = read("x" * 30, WholeReader(PageFailure(Reason.TRUNCATED, "too long", tries=(row,))))
    assert (attempt.status, shown(attempt)) == (Status.OK, [("text", "x" * 30)])
    assert "the whole page could not be read" in attempt.detail
    assert attempt.tokens_in == 107
