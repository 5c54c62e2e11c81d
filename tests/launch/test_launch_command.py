"""`llm-ocr launch` and `llm-ocr jobs` as people use them, on a Slurm whose tasks are processes of this machine."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_slurm_programs import running_slurm
from running import cli, said, status_of, when

from llm_ocr.launch import launching

SMALL = ("--hardware", "cpu", "--engine", "embedded", "--render-workers", "1", "--ocr-workers", "1")


@pytest.fixture
def slurm(monkeypatch) -> Iterator[dict[str, str]]:
    """Yield the variables of a login node."""
    monkeypatch.setattr(launching, "EVERY", 0.5)
    with running_slurm() as (_, programs):
        yield {"PATH": f"{programs}:/usr/bin:/bin"}


@pytest.mark.slow
def test_a_pipeline_ends_with_a_result(digital, tmp_path, slurm):
    run = cli(
        *("launch", "slurm", "pipeline", digital / "one.pdf", digital / "two.pdf", "-w", "w", *SMALL),
        *("--pages-per-unit", "1", "--shards", "2", "--wait"),
        cwd=tmp_path,
        env=slurm,
    )
    assert run.returncode == 0, said(run)
    assert run.stdout == "3 ok\n"
    assert status_of(tmp_path / "w")["pages"]["ok"] == 3
    listed = cli("jobs", "-w", "w", "--json", cwd=tmp_path, env=slurm)
    assert [(one["stage"], one["state"]) for one in json.loads(listed.stdout)] == [
        ("extract", "succeeded"),
        ("extract", "succeeded"),
        ("describe", "succeeded"),
        ("describe", "succeeded"),
        ("assemble", "succeeded"),
    ]
    log = cli("jobs", "logs", "-w", "w", cwd=tmp_path, env=slurm)
    assert log.stdout.endswith("3 ok\n"), said(log)
    cleaned = cli("jobs", "clean", "-w", "w", cwd=tmp_path, env=slurm)
    assert cleaned.stdout.count("kept: ") == 5, said(cleaned)


@pytest.mark.slow
def test_what_was_submitted_is_cancelled(digital, tmp_path, slurm):
    # A server that nobody runs: the job waits for it.
    run = cli(
        *("launch", "slurm", "extract", digital / "one.pdf", "-w", "w", "--server-url", "http://127.0.0.1:9"),
        cwd=tmp_path,
        env=slurm,
    )
    assert run.returncode == 0, said(run)
    assert run.stdout == "1 job submitted. Watch: llm-ocr jobs -w w\n"
    cancelled = cli("jobs", "cancel", "-w", "w", cwd=tmp_path, env=slurm)
    assert cancelled.returncode == 0, said(cancelled)

    def over():
        (job,) = json.loads(cli("jobs", "-w", "w", "--json", cwd=tmp_path, env=slurm).stdout)
        return "" if job["state"] in ("queued", "running") else job["state"]

    assert when(over) == "cancelled"
    again = cli("jobs", "cancel", "-w", "w", cwd=tmp_path, env=slurm)
    assert again.stdout == "No job is running.\n"


@pytest.mark.slow
def test_a_job_that_fails_is_an_error_with_its_reason(digital, tmp_path, slurm):
    run = cli(
        *("launch", "slurm", "extract", digital / "one.pdf", "-w", "w", "--engine", "vllm"),
        *("--vllm-command", "no-such-program", "--wait"),
        cwd=tmp_path,
        env=slurm,
    )
    assert run.returncode == 1, said(run)
    assert "the last submission finished none: FAILED, exit code 1: " in run.stderr
    assert "llm-ocr jobs logs -w" in run.stderr
    log = cli("jobs", "logs", "-w", "w", cwd=tmp_path, env=slurm)
    assert "no-such-program" in log.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("modals", "extract", "-w", "s3://b/w"), "unknown platform 'modals'\nDid you mean modal?"),
        (
            ("local", "extract", "-w", "out"),
            "unknown platform 'local'\nPlatforms: cloud-run, hf-jobs, kubernetes, ",
        ),
        (("hf-jobs", "extrakt", "-w", "s3://b/w"), "must be one of extract, describe, assemble, pipeline"),
        (("hf-jobs", "extract", "-w", "out"), "out is on this machine, where jobs on hf-jobs cannot reach it"),
        (("slurm", "pipeline", "-w", "out", "a.pdf"), "Or launch each stage after the one before it."),
        (("slurm", "extract", "-w", "out", "--time-limit", "soon"), "--time-limit"),
        (("hf-jobs", "extract", "-w", "s3://b/w", "--weights", "./mine"), "weights ./mine is on this machine"),
        (
            ("hf-jobs", "extract", "-w", "s3://b/w", "--dataset", "p/*.parquet"),
            "dataset p/*.parquet is on this machine",
        ),
    ],
)
def test_wrong_usage_is_said_and_nothing_is_made(tmp_path, words, message):
    run = cli("launch", *words, cwd=tmp_path)
    assert run.returncode == 2, said(run)
    assert message in run.stderr
    assert not any(tmp_path.iterdir())


def test_jobs_of_a_workspace_without_any(digital, tmp_path):
    cli("plan", digital / "one.pdf", "-w", "w", "--engine", "embedded", cwd=tmp_path)
    assert cli("jobs", "-w", "w", cwd=tmp_path).stdout == "This workspace has no jobs.\n"
    unknown = cli("jobs", "logs", "x", "-w", "w", cwd=tmp_path)
    assert unknown.returncode == 2
    assert "w has no job x" in unknown.stderr
    assert not Path(tmp_path / "w/launches").exists()


def test_a_launch_that_is_not_there_is_an_error(digital, tmp_path):
    cli("plan", digital / "one.pdf", "-w", "w", "--engine", "embedded", cwd=tmp_path)
    run = cli("extract", "-w", "w", "--launch", "20260101-000000-abcd", cwd=tmp_path)
    assert run.returncode == 1, said(run)
    assert "has no launch 20260101-000000-abcd" in run.stderr
