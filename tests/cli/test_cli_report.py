"""The words at the end of a command, and those of status."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from llm_ocr import runs
from llm_ocr.cli import outcome
from llm_ocr.cli.outcome import status_as_text
from llm_ocr.config.models import StatusSettings
from llm_ocr.types import Counts
from llm_ocr.workspace.status import RunStatus, StageStatus
from llm_ocr.workspace.summaries import Example, WeakPage

STATUS = RunStatus(
    url="/w",
    generations=1,
    documents=1,
    pages=Counts(100, 100),
    figures=Counts(3, 3),
    stages={name: StageStatus("abc", 1, 1) for name in ("extract", "describe", "assemble")},
    reasons={},
    figure_reasons={},
    examples=(),
    skipped={},
)


def test_many_failures_are_summed_up_by_reason():
    limits = [Example("p", f"/x/{number}.pdf", number, "render limit") for number in range(1, 6)]
    status = replace(
        STATUS,
        pages=Counts(100, 7, 0, 93),
        reasons={"render limit": 90, "encrypted": 1, "unreadable": 2},
        examples=(*limits, Example("q", "s3://b/k.pdf", None, "encrypted")),
    )
    assert outcome.failures_text(status) == (
        "render limit 90: 1.pdf page 1, 2.pdf page 2, 3.pdf page 3, ...; unreadable 2; encrypted: k.pdf"
    )


def test_reasons_of_degraded_pages_are_not_said_of_failed_ones():
    status = replace(
        STATUS,
        pages=Counts(100, 90, 8, 2),
        reasons={"script not supported": 8, "encrypted": 2},
        examples=(Example("p", "a.pdf", None, "encrypted"),),
    )
    assert outcome.last_line(status, "w") == (
        "90 ok, 8 degraded, 2 failed (encrypted: a.pdf). Retry: llm-ocr retry-failed -w w --password-file FILE. "
        "Degraded pages: llm-ocr status -w w --worst 20"
    )
    assert "degraded   script not supported 8. Read again with a model: llm-ocr repair -w " in outcome.status_text(
        status
    )


def test_pages_of_a_lost_server_need_no_other_model():
    counts = Counts(100, 92, 8)
    lost = replace(STATUS, model="deepseek-ocr", pages=counts, reasons={"model lost": 7, "server error": 1})
    again = "model lost 7, server error 1. Read again when the server answers: llm-ocr repair -w"
    assert outcome.degraded_text(lost).startswith(again)
    weak = replace(lost, reasons={"model lost": 7, "unread": 1})
    assert "Read again with another model" in outcome.degraded_text(weak)


def test_placeholder_pages_are_not_sent_to_another_reader():
    covers = replace(STATUS, pages=Counts(100, 98, 2), reasons={"placeholder page": 2})
    assert outcome.degraded_text(covers).startswith("placeholder page 2. Save the attached files")
    assert "repair" not in outcome.degraded_text(covers)


@pytest.mark.parametrize(
    ("pages", "line"),
    [
        (Counts(100, 92, 8), "92 ok, 8 degraded. Degraded pages: llm-ocr status -w w --worst 20"),  # no reason to retry
        (Counts(100, 40), "40 ok, 60 not done yet"),  # by other workers
    ],
)
def test_last_line_says_what_is_left_to_do(pages, line):
    assert (
        outcome.last_line(replace(STATUS, pages=pages, reasons={"script not supported": pages.degraded}), "w") == line
    )


def test_failed_figures_are_said_with_their_reasons():
    status = replace(STATUS, figures=Counts(3, 2, 0, 1), figure_reasons={"engine error": 1})
    line = "3 figures: 2 ok, 1 failed (engine error). Retry: llm-ocr retry-failed -w w"
    assert outcome.figures_line(status, "w") == line


NOT_DONE = replace(STATUS, pages=Counts(100, 40))


@pytest.mark.parametrize(
    ("looks", "shown"),
    [
        ([NOT_DONE, NOT_DONE, STATUS], 2),
        ([NOT_DONE, replace(STATUS, estimated=True), STATUS], 3),  # about a hundred pages may be more
        ([replace(STATUS, generations=0, pages=Counts()), replace(STATUS, pages=Counts())], 2),  # all were left out
    ],
)
def test_watching_ends_only_when_every_page_is_accounted_for(monkeypatch, capsys, looks, shown):
    left, waits = iter(looks), []
    monkeypatch.setattr(runs, "open", lambda *_, **__: SimpleNamespace(status=next(left), spent=()))
    monkeypatch.setattr(outcome.time, "sleep", waits.append)
    outcome.run_status("status", StatusSettings(workspace="w", watch=True, json_output=True))
    assert (len(capsys.readouterr().out.splitlines()), len(waits)) == (shown, len(looks) - 1)


LOOPING = replace(
    STATUS,
    pages=Counts(1000, 960, 31, 9),
    reasons={"repetition loop": 31, "unreadable": 9},
    model="deepseek-ai/DeepSeek-OCR",
)


def test_a_run_that_loops_on_many_pages_is_told_what_to_try():
    line = next(line for line in outcome.status_text(LOOPING).splitlines() if line.startswith("advice"))
    assert "repetition loops on 3.1 % of the pages: try --model " in line
    shown = StatusSettings(workspace="/w", json_output=True)
    assert json.loads(status_as_text(LOOPING, shown))["advice"] in line


@pytest.mark.parametrize(
    "changes", [{"reasons": {"repetition loop": 20}}, {"model": ""}, {"reasons": {"unreadable": 500}}]
)
def test_a_run_that_loops_little_or_on_no_model_is_told_nothing(changes):
    status = replace(LOOPING, **changes)
    assert "advice" not in outcome.status_text(status)
    assert json.loads(status_as_text(status, StatusSettings(workspace="/w", json_output=True)))["advice"] is None


def test_a_score_that_counts_as_low_is_shown_below_the_limit():
    pages = [WeakPage(score, "id", "a.pdf", 1, "text is missing") for score in (0.29, 0.7974, 0.79999, 0.8)]
    lines = outcome.worst_text(pages, len(pages)).splitlines()[2:]
    assert [line.split()[0] for line in lines] == ["0.29", "0.79", "0.79", "0.80"]
