"""Costs of a run come from its own records, and gaps are noted."""

import json
from dataclasses import replace

import pytest

from llm_ocr.costs.report import Spent, cost_report, other_machines, spent, spent_text, spent_to_json, totals, unknown
from llm_ocr.launch import Job, JobSpec, JobStatus, State
from llm_ocr.launch.records import write_end
from llm_ocr.types import Counts
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.metrics import Sample, Series, Spending
from llm_ocr.workspace.status import RunStatus, StageStatus

STATUS = RunStatus(
    url="/w",
    generations=1,
    documents=1,
    pages=Counts(1000, 990, 8, 2),
    figures=Counts(),
    stages={name: StageStatus("abc", 10, 10) for name in ("extract", "describe", "assemble")},
    reasons={},
    figure_reasons={},
    examples=(),
    skipped={},
    workers=(Spending("w1", "extract", items=500, seconds=300.0), Spending("w2", "extract", items=500, seconds=300.0)),
    model="deepseek-ocr",
)


JOBS = Spent("l1", "extract-1", "extract", "hf-jobs", "a100-large", 2, 1200.0, 2.5, "USD", 0.8333)


def test_rate_startup_and_money_are_those_of_the_run():
    extract = cost_report(STATUS, [replace(JOBS, seconds=2400.0)]).stages[0]
    assert extract.pages_per_minute == pytest.approx(100)  # 1,000 pages in 10 minutes of work
    assert extract.startup_share == pytest.approx(0.75)
    assert extract.per_thousand == pytest.approx(0.8333 / 4)  # without start-up


def test_loading_a_model_is_start_up_and_not_reading():
    series = [
        Series(worker, "extract", samples=(Sample(200.0), Sample(40.0, servers=0.0), Sample(60.0, ok=500, servers=1.0)))
        for worker in ("w1", "w2")
    ]
    report = cost_report(STATUS, [JOBS], series)
    extract = report.stages[0]
    assert extract.pages_per_minute == pytest.approx(500)  # of a worker whose server was ready
    assert extract.startup_share == pytest.approx(0.9)
    assert report.per_thousand == pytest.approx(0.08333)


def test_costs_of_more_pages_have_no_start_up():
    report = cost_report(STATUS, [replace(JOBS, seconds=2400.0)])
    thousand, _, hundred_thousand = report.projected
    assert (thousand.pages, hundred_thousand.pages) == (1_000, 100_000)
    assert thousand.cost == pytest.approx(0.8333 / 4) and thousand.startup == pytest.approx(0.8333 * 3 / 4)
    assert hundred_thousand.cost == pytest.approx(100 * thousand.cost)
    assert hundred_thousand.startup == thousand.startup and hundred_thousand.hours == pytest.approx(600 / 36)
    assert "$0.2083 per 1,000 pages without start-up" in report.title


def test_a_stage_of_unknown_start_up_is_named_and_not_multiplied():
    assemble = replace(JOBS, submission="assemble-1", stage="assemble", hardware="cpu-upgrade", seconds=60.0, cost=0.01)
    report = cost_report(STATUS, [JOBS, assemble])
    assert report.per_thousand == pytest.approx(0.8333 / 2)
    assert "costs of 1,000 pages and more are without assemble" in report.notes


def test_four_pages_do_not_judge_hardware_by_its_start_up():
    tiny = replace(STATUS, pages=Counts(4, 4), workers=(Spending("w", "extract", items=4, seconds=2.0),))
    report = cost_report(tiny, [replace(JOBS, hardware="cpu-upgrade")])
    machine = next(one for one in report.what_if if one.hardware == "hf-jobs:l4x1")
    assert machine.cost.likely * 250 > 10  # dollars per 1,000 pages, with start-up
    assert machine.per_thousand.likely < 0.5
    assert any("4 pages" in line and "500 pages" in line for line in report.notes)


def test_machine_hours_of_workers_are_billed_from_their_start():
    worker = Spending("w1", "extract", items=1000, seconds=900.0, price_per_hour=2.0, paid=1800.0)
    report = cost_report(replace(STATUS, workers=(worker,)), [])
    assert report.stages[0].startup_share == pytest.approx(0.5)
    assert report.projected[0].cost == pytest.approx(0.5)


def test_tokens_and_jobs_are_both_paid():
    priced = replace(STATUS, workers=(Spending("w", "extract", tokens_in=10**6, price_in=0.5),))
    report = cost_report(priced, [JOBS])
    assert report.per_thousand == pytest.approx(1.3333)
    assert report.title == "1,000 pages; $0.8333 for jobs; $0.5000 for tokens; $1.33 per 1,000 pages"


def test_other_hardware_has_this_runs_rate_or_a_published_one():
    others = other_machines("hf-jobs:a100-large", "deepseek-ocr", 1000, 600.0, 1200.0)
    assert cost_report(STATUS, [JOBS]).what_if == others[:10]
    by_name = {one.hardware: one for one in others}
    assert "hf-jobs:a100-large" not in by_name
    more = by_name["hf-jobs:a100x4"]
    assert more.scaled and more.pages_per_minute == pytest.approx(100 * 4)
    assert more.hours * 3600 == pytest.approx(600 / 4 + 600)  # the same start-up
    assert more.cost.likely == pytest.approx(more.hours * 10)
    other = by_name["hf-jobs:l40sx1"]
    assert not other.scaled and other.pages_per_minute == pytest.approx(83)
    assert "hf-jobs:a10g-small" not in by_name  # nobody measured this model there
    assert [one.cost.likely for one in by_name.values()] == sorted(one.cost.likely for one in by_name.values())


def test_a_run_without_a_gpu_is_not_scaled_to_one():
    report = cost_report(replace(STATUS, model="", workers=()), [replace(JOBS, platform="slurm", hardware="cpu")])
    assert report.what_if and not any(one.scaled for one in report.what_if)
    assert any("other GPUs: published rates of deepseek-ocr" in line for line in report.notes)


def test_missing_records_are_noted_and_not_guessed():
    report = cost_report(replace(STATUS, workers=()), [replace(JOBS, cost=None, seconds=None)])
    extract = report.stages[0]
    assert (extract.pages_per_minute, extract.startup_share, extract.cost, report.per_thousand) == (None,) * 4
    assert "1 of 1 submissions have an unknown cost" in report.notes
    assert "this workspace has no jobs of a platform" in cost_report(STATUS, []).notes


def test_pages_of_a_stage_on_mixed_hardware_are_not_divided():
    report = cost_report(STATUS, [JOBS, replace(JOBS, submission="extract-2", hardware="l4x1")])
    extracts = [one for one in report.stages if one.stage == "extract"]
    assert [one.pages_per_minute for one in extracts] == [None, None]
    assert any("several kinds of hardware" in line for line in report.notes)


def test_an_unfinished_run_has_a_report():
    nothing = replace(
        STATUS, pages=Counts(), stages={name: StageStatus("", 0, 0) for name in STATUS.stages}, workers=()
    )
    assert cost_report(nothing, []).per_thousand is None
    assert "0 pages" in str(cost_report(nothing, []))


def test_report_escapes_names_in_html_and_markdown():
    report = cost_report(STATUS, [replace(JOBS, hardware="<script>|x")])
    assert "<table>" in report._repr_html_() and "<script>" not in report._repr_html_()
    assert "\\|x" in report._repr_markdown_() and "100.0" in str(report)
    assert json.loads(json.dumps(report.to_json()))["stages"][0]["startup_share"] == 0.5


def test_status_shows_pages_per_second_as_the_guide_promises():
    from llm_ocr.cli.outcome import status_text

    assert STATUS.pages_per_second == pytest.approx(1000 / 600)
    assert "speed      1.7 pages/s (average of 2 workers)" in status_text(STATUS)
    assert "speed" not in status_text(replace(STATUS, workers=()))


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    return Workspace.open(str(tmp_path / "w"), create=True)


def ended(workspace: Workspace, stage: str, number: int, **bill) -> None:
    """As launching writes it."""
    spec = JobSpec(stage=stage, workspace="/w", launch="l1", submission=number, hardware="a100-large")
    job = JobStatus(Job("j", spec.name), State.SUCCEEDED, started=100.0, ended=460.0)
    write_end(workspace, spec, [job], bill)


KNOWN = {"platform": "hf-jobs", "machines": 2, "seconds": 720.0, "price_per_hour": 2.5, "currency": "USD", "cost": 0.5}


def test_spent_reads_the_records_of_launching(workspace):
    ended(workspace, "extract", 1, **KNOWN)
    assert spent(workspace) == [
        Spent("l1", "extract-1", "extract", "hf-jobs", "a100-large", 2, 720.0, 2.5, "USD", 0.5, 100.0, 460.0)
    ]


def test_costs_are_summed_by_currency_and_unknown_ones_counted(workspace):
    ended(workspace, "extract", 1, **KNOWN)
    ended(workspace, "extract", 2, **KNOWN)
    ended(workspace, "describe", 1, **KNOWN | {"currency": "EUR", "cost": 2.0})
    ended(workspace, "assemble", 1, platform="modal", cost=None)
    found = spent(workspace)
    assert totals(found) == {"USD": 1.0, "EUR": 2.0} and unknown(found) == 1
    text = spent_text(found)
    assert "$1.00 and 2.00 EUR for jobs" in text and "extract $1.00 on hf-jobs:a100-large" in text
    assert "1 submission with unknown cost" in text
    value = json.loads(json.dumps(spent_to_json(found)))
    assert value["total"] == {"USD": 1.0, "EUR": 2.0} and len(value["jobs"]) == 4 and value["unknown"] == 1


def test_a_damaged_record_does_not_hide_the_others(workspace):
    ended(workspace, "extract", 1, **KNOWN)
    workspace.store.put("launches/l1/describe-1.end.json", b"{")
    workspace.store.put("launches/l2/extract-1.end.json", b'{"cost": "much", "machines": true}')
    found = spent(workspace)
    assert [one.launch for one in found] == ["l1", "l2"]
    assert (found[1].stage, found[1].cost, found[1].machines) == ("extract", None, None)


def test_jobs_that_are_not_over_have_cost_nothing_yet(workspace):
    workspace.store.put("launches/l1/extract-1.jobs.json", b'{"jobs": []}')
    assert spent(workspace) == [] and spent_text([]) == ""
