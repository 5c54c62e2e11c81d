"""--min-quality: a sound answer of low quality is asked for again; the best counts, and nothing gets worse."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_model import GOOD, LOOP, PAGE, PROFILE, Fallback, ScriptedEngine, Tools, by_layer, ended, stop

from llm_ocr.engines import Finish
from llm_ocr.engines.vlm.reader import MOST_REREADS, ModelReader
from llm_ocr.engines.vlm.requests import MAX_ATTEMPTS, QualityRule, ReadOptions
from llm_ocr.errors import RequestLost, RequestRefused
from llm_ocr.types import Attempt, Page, Reason, Status


def by_length(page: Page, attempt: Attempt) -> tuple[float, str]:
    """A hundred characters are a page's worth, and half of them are too few."""
    assert page is PAGE
    quality = min(1.0, sum(len(block.text) for block in attempt.blocks) / 100)
    return quality, f"its length of {quality:.2f} is too short" if quality < 0.5 else ""


RULE = QualityRule(by_length, {"min_quality": 0.5, "version": 7})
SHORT, LONGER, LONG = (stop("x" * size) for size in (20, 40, 80))


def read(engine: ScriptedEngine, rule: QualityRule | None = RULE, fallback=None, **options) -> Attempt:
    chosen = ReadOptions(**{"backoff": 0.0, **options})
    return asyncio.run(ModelReader(engine, PROFILE, Tools(), chosen, fallback, rule=rule).read(PAGE))


def size(attempt: Attempt) -> int:
    return sum(len(block.text) for block in attempt.blocks)


def test_a_good_answer_is_asked_for_once():
    engine = ScriptedEngine(LONG)
    attempt = read(engine)
    assert (len(engine.requests), attempt.tries, attempt.detail) == (1, (), "")


def test_a_weak_answer_climbs_the_ladder_and_a_good_one_ends_it():
    engine = ScriptedEngine(SHORT, LONG)
    attempt = read(engine)
    assert (attempt.status, attempt.reason, size(attempt)) == (Status.OK, None, 80)
    assert [request.settings["temperature"] for request in engine.requests] == [0.0, 0.1]
    assert [(one["status"], one["reason"], one["quality"]) for one in attempt.tries] == [
        ("ok", None, 0.2),
        ("ok", None, 0.8),
    ]
    assert "length of 0.20 is too short" in attempt.tries[0]["detail"]
    assert attempt.tokens_out == 100


def test_the_best_of_weak_answers_counts_and_there_is_an_end():
    engine = ScriptedEngine(SHORT, LONGER, SHORT)
    attempt = read(engine)
    assert (attempt.status, size(attempt)) == (Status.OK, 40)
    assert "length of 0.40 is too short" in attempt.detail
    assert len(engine.requests) == 1 + MOST_REREADS


@pytest.mark.parametrize(
    "later",
    [
        ended(f"The Rhine. {LOOP}", Finish.CUT),
        stop(""),
        RequestLost("gone"),
        RequestRefused("no", status=400),
        RequestRefused("maximum context length is 1000 tokens", status=400, too_long=True),
    ],
)
def test_a_weak_answer_stays_where_nothing_better_comes(later):
    fallback = Fallback(by_layer())
    attempt = read(ScriptedEngine(SHORT, later), fallback=fallback)
    assert (attempt.status, attempt.reason, size(attempt)) == (Status.OK, None, 20)
    assert fallback.pages == []
    assert len(attempt.tries) <= 1 + MOST_REREADS


def test_a_bad_answer_before_a_weak_one_is_forgotten():
    attempt = read(ScriptedEngine(ended(f"{'y' * 90} {LOOP}", Finish.CUT), SHORT))
    assert (attempt.status, size(attempt)) == (Status.OK, 20)


def test_the_number_of_tries_is_kept():
    engine = ScriptedEngine(SHORT)
    read(engine, max_attempts=2)
    assert len(engine.requests) == 2


def test_only_with_the_setting_it_is_part_of_the_key():
    def identity(rule: QualityRule | None) -> dict:
        return dict(ModelReader(ScriptedEngine(stop()), PROFILE, Tools(), rule=rule).identity())

    assert "min_quality" not in identity(None)
    assert identity(RULE) == identity(None) | {"min_quality": {"min_quality": 0.5, "version": 7}}


def test_without_the_setting_nothing_is_judged():
    attempt = read(ScriptedEngine(SHORT), rule=None)
    assert (size(attempt), attempt.detail) == (20, "")


def test_a_page_that_is_read_again_begins_with_the_next_way():
    engine = ScriptedEngine(stop(GOOD))
    again = Page(PAGE.id, PAGE.document_id, PAGE.number, PAGE.image, source=PAGE.source, again=True)
    asyncio.run(ModelReader(engine, PROFILE, Tools()).read(again))
    assert [request.settings["temperature"] for request in engine.requests] == [0.1]


REPLIES = st.lists(
    st.sampled_from([SHORT, LONGER, LONG, stop(""), ended(f"The Rhine. {LOOP}", Finish.CUT), RequestLost("gone")]),
    min_size=1,
    max_size=MAX_ATTEMPTS - 1,  # so that the last answer, which can stand, is always asked for
)


@given(REPLIES)
def test_no_page_ends_worse_than_without_the_setting(replies):
    def result(rule: QualityRule | None) -> tuple[int, float, Reason | None]:
        attempt = read(ScriptedEngine(*replies, SHORT), rule)
        order = {Status.DEGRADED: 0, Status.OK: 1}
        return order[attempt.status], by_length(PAGE, attempt)[0], attempt.reason

    before, after = result(None), result(RULE)
    assert after[:2] >= before[:2]
