"""What jobs have cost is read from what launches leave in the workspace."""

import json

import pytest

from llm_ocr.costs.report import Spent, spent, spent_text, spent_to_json, totals, unknown
from llm_ocr.launch import Job, JobSpec, JobStatus, State
from llm_ocr.launch.records import write_end
from llm_ocr.workspace import Workspace


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    return Workspace.open(str(tmp_path / "w"), create=True)


def ended(workspace: Workspace, stage: str, number: int, **bill) -> None:
    """As launching writes it."""
    spec = JobSpec(stage=stage, workspace="/w", launch="l1", submission=number, hardware="a100-large")
    job = JobStatus(Job("j", spec.name), State.SUCCEEDED, started=100.0, ended=460.0)
    write_end(workspace, spec, [job], bill)


KNOWN = {"platform": "hf-jobs", "machines": 2, "seconds": 720.0, "price_per_hour": 2.5, "currency": "USD", "cost": 0.5}


def test_what_launching_wrote_is_read(workspace):
    ended(workspace, "extract", 1, **KNOWN)
    assert spent(workspace) == [
        Spent("l1", "extract-1", "extract", "hf-jobs", "a100-large", 2, 720.0, 2.5, "USD", 0.5, 100.0, 460.0)
    ]


def test_costs_are_summed_by_currency_and_what_is_not_known_is_counted(workspace):
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


def test_jobs_of_ones_own_machine_have_no_bill(workspace):
    ended(workspace, "extract", 1, platform="local", seconds=720.0, cost=None)
    found = spent(workspace)
    assert len(found) == 1 and unknown(found) == 0 and spent_text(found) == ""


def test_jobs_that_are_not_over_have_cost_nothing_yet(workspace):
    workspace.store.put("launches/l1/extract-1.jobs.json", b'{"jobs": []}')
    assert spent(workspace) == [] and spent_text([]) == ""
