"""Filters and samples given to `llm-ocr launch` reach the job that plans."""

import bad_documents as bad
import pytest
from fake_slurm_programs import running_slurm
from running import FRUGAL, cli, said, status_of

import llm_ocr
from llm_ocr.launch import launching
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import read_units


def planned(workspace) -> set[str]:
    with Workspace.open(str(workspace)) as opened:
        return {part.relative for unit in read_units(opened) for part in unit.parts}


@pytest.mark.slow
def test_what_is_given_to_launch_reaches_the_job_that_plans(tmp_path, monkeypatch):
    monkeypatch.setattr(launching, "EVERY", 0.5)
    (tmp_path / "documents").mkdir()
    for number in range(6):
        data = bad.text_pdf(*bad.good_pages(f"report {number}", 1)) if number % 2 else bad.blank()
        (tmp_path / f"documents/{number}.pdf").write_bytes(data)
    with running_slurm() as (_, programs):
        run = cli(
            *("launch", "slurm", "extract", "documents", "-w", "w", "--sample", "4", "--seed", "1", "--filter-blank"),
            *(*FRUGAL, "--hardware", "cpu", "--wait"),
            cwd=tmp_path,
            env={"PATH": f"{programs}:/usr/bin:/bin"},
        )
    assert run.returncode == 0, said(run)
    status = status_of(tmp_path / "w")
    assert status["documents"] + status["filtered"]["documents"] == 4
    assert set(status["filtered"]["reasons"]) == {"blank"}
    wanted = {"sample": 4, "seed": 1, "filter_blank": True, "engine": "embedded"}
    same = llm_ocr.plan(tmp_path / "documents", workspace=tmp_path / "same", **wanted)
    assert planned(tmp_path / "w") == planned(tmp_path / "same")
    assert same.status.filtered == {"blank": status["filtered"]["documents"]}
