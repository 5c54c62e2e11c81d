"""The server answers, and the answer is no good: cut, asked for in another way, and recorded."""

from collections import Counter
from random import Random

import pytest
from faulty import PAGES, PAGES_EACH, accounted, asked, extract, pages, simulator
from PIL import Image
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen import canvas

from llm_ocr.engines.vlm.retry import SHRINK_IMAGE
from llm_ocr_simulator.answers import data_url

#: Rungs of the ladder up to the one at which the simulator's model does not loop, or answers something.
RUNGS = 2


def test_loops_are_cut_during_streaming_and_retried_differently(documents, clean, tmp_path):
    with simulator(loop_rate=0.5, speed=5) as server:
        run = extract(documents / "0.pdf", tmp_path / "w", server_url=server.url)
        assert run.code == 0, run.said
        requests = server.log()["requests"]
    rows = accounted(tmp_path / "w", total=PAGES_EACH)
    looped = [row for row in rows.values() if len(row.attempts) > 1]
    assert looped
    assert Counter(one["finish"] for one in requests) == {"stop": PAGES_EACH, "abort": RUNGS * len(looped)}
    for row in looped:
        assert [one["reason"] for one in row.attempts] == ["repetition loop"] * RUNGS + [None]
        assert all(one["tokens_out"] for one in row.attempts)
        assert row.tokens_out == sum(one["tokens_out"] for one in row.attempts)
    assert all(row.markdown == clean[page] for page, row in rows.items() if row not in looped)


def test_loop_on_every_try_keeps_sound_part_and_degrades_page(documents, tmp_path):
    with simulator(loop_rate=0.5) as server:
        run = extract(documents / "0.pdf", tmp_path / "w", server_url=server.url, max_page_attempts=RUNGS)
        assert run.code == 0, run.said
    degraded = [row for row in pages(tmp_path / "w") if row.status == "degraded"]
    assert degraded
    accounted(tmp_path / "w", total=PAGES_EACH, degraded=len(degraded))
    for row in degraded:
        assert str(row.reason) == "repetition loop"
        assert "page-" in row.markdown
        assert [one["reason"] for one in row.attempts] == ["repetition loop"] * RUNGS


def test_empty_answers_are_not_accepted(documents, tmp_path):
    with simulator(empty_rate=0.5) as server:
        run = extract(documents / "0.pdf", tmp_path / "w", server_url=server.url)
        assert run.code == 0, run.said
        count = asked(server).total()
    rows = accounted(tmp_path / "w", total=PAGES_EACH)
    empty = [row for row in rows.values() if len(row.attempts) > 1]
    assert empty
    assert count == PAGES_EACH + RUNGS * len(empty)
    for row in rows.values():
        assert [one["reason"] for one in row.attempts[:-1]] == ["empty answer"] * RUNGS * (row in empty)
        assert row.markdown


def test_blank_page_is_ok_without_a_request(tmp_path):
    made = canvas.Canvas(str(tmp_path / "empty.pdf"), pagesize=(300, 400))
    made.showPage()
    made.save()
    with simulator() as server:
        run = extract(tmp_path / "empty.pdf", tmp_path / "w", server_url=server.url)
        assert run.code == 0, run.said
        assert asked(server).total() == 0
    (row,) = pages(tmp_path / "w")
    assert (row.status, row.blank) == ("ok", True)


@pytest.mark.parametrize(
    ("faulty", "settings", "tries", "reason"),
    [
        ({"empty_rate": 1.0}, {"max_page_attempts": RUNGS}, RUNGS, "empty answer"),
        ({"fault": {"too-long": 1}}, {}, 5, "prompt too long"),
    ],
    ids=["empty", "never fits"],
)
def test_pages_without_an_answer_fail_without_made_up_text(documents, tmp_path, faulty, settings, tries, reason):
    with simulator(**faulty) as server:
        run = extract(documents / "0.pdf", tmp_path / "w", server_url=server.url, **settings)
        assert run.code == 3, run.said
        assert asked(server).total() == PAGES_EACH * tries
    rows = accounted(tmp_path / "w", total=PAGES_EACH, failed=PAGES_EACH)
    assert {(str(row.reason), row.markdown) for row in rows.values()} == {(reason, "")}


@pytest.mark.slow
def test_a_prompt_that_is_too_long_shrinks_its_image_once(tmp_path):
    """A page of noise: its image has few bytes only when it is small."""
    noise = Image.frombytes("L", (150, 200), Random(0).randbytes(150 * 200)).resize(
        (300, 400), Image.Resampling.NEAREST
    )
    made = canvas.Canvas(str(tmp_path / "two.pdf"), pagesize=(300, 400))
    made.drawImage(ImageReader(noise), 0, 0, 300, 400)
    made.showPage()
    made.drawString(30, 300, "Nothing but this.")
    made.showPage()
    made.save()
    limit = largest_url(tmp_path) - 1
    with simulator(fault={"too-long": limit}) as server:
        run = extract(tmp_path / "two.pdf", tmp_path / "w", server_url=server.url)
        assert run.code == 0, run.said
        assert asked(server).total() == 3
    long, short = pages(tmp_path / "w")
    assert (long.status, short.status) == ("ok", "ok")
    assert [one["reason"] for one in long.attempts] == ["prompt too long", None]
    assert [one["scale"] for one in long.attempts] == [1.0, SHRINK_IMAGE]
    assert len(short.attempts) == 1


def largest_url(folder):
    """Bytes of the data URL of the first page."""
    with simulator() as server:
        run = extract(folder / "two.pdf", folder / "whole", server_url=server.url)
        assert run.code == 0, run.said
    return len(data_url(pages(folder / "whole", images=True)[0].image))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "tries", "reason"), [({"too-long": 1}, 5, "prompt too long"), ({"500": 1.0}, 1, "server error")]
)
def test_refused_page_or_one_out_of_tries_uses_its_text_layer(documents, tmp_path, fault, tries, reason):
    settings = {"max_page_attempts": tries, "fallback": "text-layer"}
    with simulator(fault=fault) as server:
        run = extract(documents / "0.pdf", tmp_path / "w", server_url=server.url, **settings)
        assert run.code == 0, run.said
        assert asked(server).total() == PAGES_EACH * tries
    rows = accounted(tmp_path / "w", total=PAGES_EACH, degraded=PAGES_EACH)
    assert {(row.text_source, str(row.reason)) for row in rows.values()} == {("text-layer", reason)}
    assert all("This is page" in row.markdown for row in rows.values())


@pytest.mark.parametrize(("share", "code"), [(1.0, 1), (0.5, 0)])
def test_only_a_server_that_refuses_every_page_is_an_error(share, code, documents, tmp_path):
    with simulator(fault={"400": share}) as server:
        run = extract(documents / "0.pdf", tmp_path / "w", server_url=server.url, fallback="text-layer")
        assert run.code == code, run.said
        refused = sum(one["fault"] == "400" for one in server.log()["requests"])
    assert 0 < refused <= PAGES_EACH
    rows = accounted(tmp_path / "w", total=PAGES_EACH, degraded=refused)
    assert sum(str(row.reason) == "request refused" for row in rows.values()) == refused
    assert (f"such requests; the server answered none of {refused} requests" in run.said) is (code == 1)


@pytest.mark.slow
def test_many_bad_answers_of_a_faulty_server_stay_distinct(documents, tmp_path):
    faults = {"reset": 0.1, "500": 0.1, "429": 0.1, "retry-after": 0.1}
    with simulator(loop_rate=0.1, empty_rate=0.1, fault=faults) as server:
        run = extract(documents, tmp_path / "w", server_url=server.url, max_page_attempts=20)
        assert run.code == 0, run.said
        requests = server.log()["requests"]
    rows = accounted(tmp_path / "w")
    reasons = [one["reason"] for row in rows.values() for one in row.attempts if one["status"] == "failed"]
    lost = sum(one["fault"] in ("reset", "500") for one in requests)
    assert reasons.count("server error") == lost
    assert set(reasons) == {"server error", "repetition loop", "empty answer"}
    assert len(requests) == PAGES + len(reasons) + sum(one["fault"] == "429" for one in requests)
