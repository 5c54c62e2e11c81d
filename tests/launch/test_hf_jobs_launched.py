"""Whole launches on Hugging Face Jobs: what is submitted again, and a run on another store."""

import pytest
from hf_jobs_running import WORKSPACE, Platform
from store_servers import s3

import llm_ocr
from llm_ocr.config.loading import settings_from
from llm_ocr.config.models import LaunchSettings
from llm_ocr.launch import State
from llm_ocr.launch.launching import begin
from tests.fakes.hub import Mishap

pytestmark = pytest.mark.slow


def launch(platform: Platform, *sources, **more):
    options = {"platform_endpoint": platform.hub.url, "workspace_endpoint": platform.hub.url}
    options |= {"image": "registry.example/llm-ocr:1", "wheel": "image"}
    asked = {"platform": "hf-jobs", "stage": "extract", "workspace": WORKSPACE, "hardware": "cpu-upgrade", **options}
    settings = {**asked, "engine": "embedded", "sources": tuple(map(str, sources)), "pages_per_unit": 1, **more}
    said: list[str] = []
    return begin(settings_from(LaunchSettings, "submit", settings), said.append), said


def test_a_launch_whose_job_ran_out_of_time_goes_on_where_it_was(bucket, examples):
    bucket.hub.state.jobs.mishaps.append(Mishap("Job timeout", shard=1, never_starts=True))
    launched, said = launch(bucket, examples / "paper.pdf", shards=2)
    launched.wait()
    assert llm_ocr.open(WORKSPACE, endpoint=bucket.hub.url).status.pages.ok == 3
    jobs = list(bucket.hub.state.jobs.by_id.values())
    assert [(job.labels["submission"], job.labels["shard"]) for job in jobs] == [*(("1", "0"), ("1", "1"), ("2", "0"))]
    assert any("Job timeout" in line and "submitting again" in line for line in said)
    assert "extract: 3 pages, 2 already done" in jobs[2].lines


def test_a_workspace_on_s3_is_reached_with_keys_that_are_secrets(platform, digital):
    with s3() as (workspace, reached):
        endpoint = reached["workspace_endpoint"]
        there = {"LLM_OCR_WORKSPACE_ENDPOINT": endpoint, "LLM_OCR_WORKSPACE_REGION": "us-east-1"}
        llm_ocr.plan(digital / "one.pdf", workspace=workspace, engine="embedded", **reached)
        keys = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
        plan = platform.launcher.plan(platform.spec(workspace=workspace, environment=there, secrets=keys))
        platform.launcher.check(plan)
        (status,) = platform.over(platform.submit(plan))
        assert status.state is State.SUCCEEDED, list(platform.launcher.logs(status.job))
        assert llm_ocr.open(workspace, endpoint=endpoint).status.pages.ok == 1
