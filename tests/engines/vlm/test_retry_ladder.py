"""A page whose answers are no good: what is tried next, what is kept, and that every page ends."""

import asyncio
import json
import zlib
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_model import (
    GOOD,
    LOOP,
    PAGE,
    PROFILE,
    Fallback,
    Reply,
    ScriptedEngine,
    Tools,
    by_layer,
    ended,
    read,
    reader,
    stop,
    text_of,
)

from llm_ocr.engines import Completion, Finish
from llm_ocr.engines.vlm import retry
from llm_ocr.engines.vlm.reader import ModelReader
from llm_ocr.errors import PageFailure, RequestLost, RequestRefused, ServerError
from llm_ocr.types import Attempt, Evidence, InkMap, Reason, Status

CUT = ended(f"The Rhine is long. {LOOP}", Finish.CUT)
LONG = ended("A river that goes on and on, past hills and towns", Finish.LENGTH)
TOO_LONG = RequestRefused("maximum context length is 1000 tokens", status=400, too_long=True)


def failure_of(engine: ScriptedEngine, *args, **options) -> PageFailure:
    with pytest.raises(PageFailure) as caught:
        read(engine, *args, **options)
    return caught.value


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (CUT, Reason.LOOP),
        (ended(f"The Rhine. {LOOP}", Finish.LENGTH), Reason.LOOP),
        (stop(f"The Rhine. {LOOP}"), Reason.LOOP),
        (LONG, Reason.TRUNCATED),
        (stop(""), Reason.EMPTY),
        (stop(" \n "), Reason.EMPTY),
    ],
)
def test_a_bad_answer_climbs_and_the_next_good_one_counts(bad, reason):
    engine = ScriptedEngine(bad, stop())
    attempt = read(engine)
    assert (attempt.status, attempt.reason, attempt.raw) == (Status.OK, None, GOOD)
    assert [one["reason"] for one in attempt.tries] == [reason.value, None]
    assert [one["status"] for one in attempt.tries] == ["failed", "ok"]
    assert (attempt.tokens_in, attempt.tokens_out, attempt.seconds) == (200, 100, 4.0)
    assert [request.settings["temperature"] for request in engine.requests] == [0.0, 0.1]
    json.dumps(attempt.tries)


def test_answers_of_reasoning_alone_end_after_two():
    engine = ScriptedEngine(*[replace(stop(""), reasoned=812)] * 8)
    failure = failure_of(engine)
    assert (failure.reason, len(engine.requests)) == (Reason.EMPTY, 2)
    assert "812 characters of reasoning" in failure.detail
    assert "--reasoning-parser" in failure.detail


def test_an_answer_of_which_most_was_lost_climbs():
    attempt = read(ScriptedEngine(stop("bad\nbad\none"), stop("bad"), stop("one")), mode="marked")
    assert [one["reason"] for one in attempt.tries] == ["malformed answer", "malformed answer", None]
    assert attempt.tries[0]["detail"] == "the box of line 0 is malformed; the box of line 1 is malformed"


def test_rungs_change_temperature_scale_prompt_and_last_repeats():
    engine = ScriptedEngine(stop(""))
    attempt = read(engine, max_attempts=5, fallback=Fallback(by_layer()))
    asked = [(one["temperature"], one["scale"], one["mode"]) for one in attempt.tries]
    assert asked == [
        (0.0, 1.0, "layout"),
        (0.1, 1.0, "layout"),
        (0.2, 0.8, "layout"),
        (0.3, 1.0, "text"),
        (0.3, 1.0, "text"),
    ]
    assert [request.image.data for request in engine.requests][:4] == [
        b"pixels",
        b"pixels",
        b"pixels at 0.80",
        b"pixels",
    ]
    assert engine.requests[3].prompt == "Read it."


def test_a_blank_page_costs_no_request():
    engine = ScriptedEngine(stop("An invented page."))
    blank = replace(PAGE, evidence=Evidence(InkMap(8, 1, zlib.compress(b"\0"), blank=True)))
    attempt = asyncio.run(ModelReader(engine, PROFILE, Tools()).read(blank))
    assert (attempt.status, attempt.blocks, engine.requests) == (Status.OK, (), [])


def test_an_empty_answer_for_a_page_with_only_pale_ink_is_right():
    engine = ScriptedEngine(stop(""))
    pale = replace(PAGE, evidence=Evidence(InkMap(8, 1, zlib.compress(b"\1"), pale=True)))
    attempt = asyncio.run(ModelReader(engine, PROFILE, Tools()).read(pale))
    assert (attempt.status, attempt.blocks, len(engine.requests)) == (Status.OK, (), 1)


def test_lost_requests_do_not_climb_but_count():
    engine = ScriptedEngine(
        RequestLost("reset"), RequestLost("500", status=500), stop(""), RequestLost("reset"), stop()
    )
    attempt = read(engine)
    assert [one["temperature"] for one in attempt.tries] == [0.0, 0.0, 0.0, 0.1, 0.1]
    assert [one["reason"] for one in attempt.tries][:2] == ["server error", "server error"]
    assert attempt.status is Status.OK


def test_pauses_grow_after_lost_requests_and_reset_on_an_answer(monkeypatch):
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(retry, "asyncio", SimpleNamespace(sleep=sleep))
    gone = RequestLost("reset")
    read(ScriptedEngine(gone, gone, gone, stop(""), gone, stop()), backoff=0.5)
    assert pauses == [0.5, 1.0, 2.0, 0.5]
    pauses.clear()
    failure_of(ScriptedEngine(gone), backoff=20.0, max_attempts=5)
    assert pauses == [retry.LONGEST_BACKOFF] * 4  # none after the last try


def test_page_with_every_request_lost_fails_and_can_be_retried():
    failure = failure_of(ScriptedEngine(RequestLost("connection reset by peer")))
    assert (failure.reason, failure.retryable, len(failure.tries)) == (Reason.SERVER_ERROR, True, 8)
    assert "connection reset by peer" in failure.detail


def test_a_page_that_does_not_fit_is_made_smaller():
    engine = ScriptedEngine(TOO_LONG, stop(""), stop(""), stop())
    attempt = read(engine)
    assert [(one["scale"], one["temperature"]) for one in attempt.tries] == [
        (1.0, 0.0),
        (0.7, 0.0),
        (0.7, 0.1),
        (0.56, 0.2),
    ]
    assert engine.requests[1].settings["max_tokens"] == 400  # the answer may be what did not fit
    assert attempt.status is Status.OK


def test_images_shrink_until_the_encoder_cache_holds_them():
    small = RequestRefused("exceeds the pre-allocated encoder cache size 2048", status=400, too_long=True)
    attempt = read(ScriptedEngine(small, small, small, stop()))
    assert [one["scale"] for one in attempt.tries] == [1.0, 0.7, 0.49, 0.343]
    assert attempt.status is Status.OK


def test_a_page_that_never_fits_fails_after_five_requests():
    engine = ScriptedEngine(TOO_LONG)
    failure = failure_of(engine)
    assert (failure.reason, len(failure.tries), len(engine.requests)) == (Reason.TOO_LONG, 5, 5)


def test_a_page_that_loops_is_not_paid_eight_times():
    engine = ScriptedEngine(CUT)
    assert read(engine).reason is Reason.LOOP
    assert len(engine.requests) == 4


def test_a_try_says_that_its_tokens_are_estimated():
    attempt = read(ScriptedEngine(replace(stop(""), estimated=True), stop("one")))
    assert ["tokens_estimated" in one for one in attempt.tries] == [True, False]


def test_a_refused_page_fails_at_once_with_the_servers_words():
    engine = ScriptedEngine(RequestRefused("Failed to load image: cannot identify", status=400))
    failure = failure_of(engine)
    assert (failure.reason, len(engine.requests), len(failure.tries)) == (Reason.REFUSED, 1, 1)
    assert "Failed to load image: cannot identify" in failure.detail


@pytest.mark.parametrize(
    ("refusal", "reason", "requests"),
    [(RequestRefused("no image", status=400), Reason.REFUSED, 1), (TOO_LONG, Reason.TOO_LONG, 5)],
)
def test_refused_page_is_read_by_fallback_like_other_failures(refusal, reason, requests):
    engine = ScriptedEngine(refusal)
    attempt = read(engine, fallback=Fallback(by_layer()))
    assert (attempt.status, attempt.reason, attempt.source) == (Status.DEGRADED, reason, "text-layer")
    assert len(engine.requests) == requests


def test_a_page_that_kills_servers_passes_through_with_its_tries():
    killer = PageFailure(Reason.QUARANTINED, "killed 3 servers", hint="Look at it.")
    failure = failure_of(ScriptedEngine(stop(""), killer), fallback=Fallback(by_layer()))
    assert (failure.reason, failure.detail, failure.hint) == (Reason.QUARANTINED, "killed 3 servers", "Look at it.")
    assert [one["reason"] for one in failure.tries] == ["empty answer", "quarantined"]


def test_text_that_was_had_before_the_server_refused_is_kept():
    attempt = read(ScriptedEngine(LONG, RequestRefused("no", status=422)))
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.TRUNCATED)
    assert "request refused: no" in attempt.detail


def test_without_a_server_the_run_ends():
    with pytest.raises(ServerError, match="gone"):
        read(ScriptedEngine(ServerError("gone")))


def test_the_longest_sound_text_is_kept_with_its_loop_cut_off():
    short = ended(f"The Rhine. {LOOP}", Finish.LENGTH)
    engine = ScriptedEngine(short, ended(f"The Rhine is a long river in Europe. {LOOP}", Finish.CUT), short)
    attempt = read(engine, max_attempts=3)
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.LOOP)
    assert text_of(attempt).startswith("The Rhine is a long river in Europe.")
    assert len(text_of(attempt)) < 200
    assert attempt.raw == f"The Rhine is a long river in Europe. {LOOP}"
    assert "best of 3 tries" in attempt.detail
    assert (len(attempt.tries), attempt.tokens_in) == (3, 300)


def test_nothing_usable_is_a_failure_with_all_tries():
    failure = failure_of(ScriptedEngine(stop("")), max_attempts=3)
    assert (failure.reason, failure.detail) == (Reason.EMPTY, "the model answered nothing")
    assert [one["tokens_out"] for one in failure.tries] == [50, 50, 50]


def test_the_fallback_reads_what_the_model_could_not():
    tools, fallback = Tools(), Fallback(by_layer())
    attempt = read(ScriptedEngine(CUT), tools, fallback, max_attempts=2)
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.LOOP)
    assert (attempt.engine, attempt.source, text_of(attempt)) == ("embedded", "text-layer", by_layer().blocks[0].text)
    assert attempt.detail.startswith("read by embedded (text layer) after 2 tries of scripted")
    assert (attempt.tokens_in, attempt.seconds, len(attempt.tries)) == (200, 5.0, 2)
    assert "content" in tools.done
    assert fallback.pages[0].content is not None


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (PageFailure(Reason.EMPTY, "the page has no text layer"), "the page has no text layer"),
        (by_layer(""), "found nothing"),
        (by_layer("????", Status.DEGRADED), "read less"),
        (by_layer("page 7"), "read less"),
    ],
)
def test_the_best_answer_stands_when_the_fallback_is_of_no_use(reply, why):
    attempt = read(ScriptedEngine(LONG), fallback=Fallback(reply), max_attempts=2)
    assert (attempt.status, attempt.engine, attempt.reason) == (Status.DEGRADED, "scripted", Reason.TRUNCATED)
    assert why in attempt.detail


def test_a_fallback_that_cannot_is_told_in_the_failure():
    fallback = Fallback(PageFailure(Reason.EMPTY, "the page has no text layer"))
    failure = failure_of(ScriptedEngine(stop("")), fallback=fallback, max_attempts=2)
    assert failure.reason is Reason.EMPTY
    assert "embedded could not read it either: the page has no text layer" in failure.detail


def test_failed_image_reduction_ends_the_ladder_not_the_page():
    attempt = read(ScriptedEngine(LONG), Tools(fails=["resized"]))
    assert (attempt.status, attempt.reason, len(attempt.tries)) == (Status.DEGRADED, Reason.TRUNCATED, 2)
    assert "no resized" in attempt.detail
    attempt = read(ScriptedEngine(stop("")), Tools(fails=["resized"]), Fallback(by_layer()))
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.RENDER_CRASHED)


ANSWERS = st.builds(
    Completion,
    st.sampled_from(["", GOOD, LOOP, f"{GOOD}\n{LOOP}", "bad\nbad", "bad\none\ntwo", "fig:image"])
    | st.text(max_size=50),
    st.sampled_from(list(Finish)),
    st.integers(0, 500),
    st.integers(0, 500),
    st.floats(0, 100),
)
ERRORS = st.sampled_from(
    [RequestLost("reset"), TOO_LONG, RequestRefused("no", status=400), PageFailure(Reason.QUARANTINED, "killed 3")]
)


@given(
    replies=st.lists(ANSWERS | ANSWERS | ERRORS, min_size=1, max_size=10),
    most=st.integers(1, 9),
    mode=st.sampled_from(["layout", "marked"]),
    fallback=st.sampled_from([None, by_layer(), by_layer(""), PageFailure(Reason.EMPTY)]),
    tools=st.builds(Tools, fails=st.sets(st.sampled_from(["resized", "content"]))),
)
def test_page_always_ends_within_its_tries_and_tokens_add_up(
    replies: list[Reply], most: int, mode: str, fallback: Attempt | PageFailure | None, tools: Tools
):
    engine = ScriptedEngine(*replies)
    made = reader(engine, tools, Fallback(fallback) if fallback else None, max_attempts=most, mode=mode)
    try:
        attempt = asyncio.run(made.read(PAGE))
    except PageFailure as failure:
        tries, tokens = failure.tries, None
    else:
        tries, tokens = attempt.tries, (attempt.tokens_in, attempt.tokens_out)
        assert (attempt.status is Status.OK) == (attempt.reason is None)
        assert attempt.status is not Status.FAILED
    asked = len(engine.requests)
    assert 1 <= asked <= most
    assert len(tries) == asked or (asked == 1 and not tries)
    given_back = [*replies, *[replies[-1]] * most][:asked]
    answers = [reply for reply in given_back if isinstance(reply, Completion)]
    spent = (sum(one.tokens_in for one in answers), sum(one.tokens_out for one in answers))
    if tokens is not None:
        assert tokens == spent
    if tries:
        assert (sum(one["tokens_in"] for one in tries), sum(one["tokens_out"] for one in tries)) == spent
        json.dumps(tries)
