"""Stages that really run as Cloud Run jobs: command line, stand-in for Cloud Run, workspace on a server."""

import json
import os
import threading
import time

import pytest
from store_servers import aws_environment, s3_server

from llm_ocr.cli import main
from llm_ocr.launch import launching
from llm_ocr.storage import StoreOptions, open_store
from llm_ocr_simulator import running as simulator
from tests.fakes.cloud_run import running
from tests.fakes.gcs import running as gcs_running

pytestmark = pytest.mark.needs("google.cloud.run_v2", "google.cloud.storage")

SMALL = ("--engine", "embedded", "--render-workers", "1", "--ocr-workers", "1", "--pages-per-unit", "1")
SHORT = ("--lease-seconds", "5")  # a worker that finds all units taken looks again soon


@pytest.fixture
def gcs():
    with gcs_running("bucket") as server:
        yield server


@pytest.fixture
def platform(gcs):
    """Its containers reach Google Cloud Storage as a job's account would: without being told how."""
    with running(environment={"STORAGE_EMULATOR_HOST": gcs.url}) as run:
        yield run


@pytest.fixture
def place(platform, gcs):
    """Flags of every command: where the workspace is, where Cloud Run is."""
    workspace = ("-w", "gs://bucket/run", "--workspace-endpoint", gcs.url)
    run = ("--platform-endpoint", platform.url, "--project", "my-project", "--region", "us-central1")
    return workspace, run


@pytest.fixture
def bucket(platform):
    """Flags for a workspace on an S3 server, whose keys are secrets of the platform."""
    with s3_server("of-cloud-run") as endpoint, aws_environment(AWS_SECRET_ACCESS_KEY="geheimnis"):
        keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        platform.account.secrets |= {name: os.environ[name] for name in keys}
        place = ("-w", "s3://of-cloud-run/run", "--workspace-endpoint", endpoint, "--workspace-region", "us-east-1")
        yield place, ("--source-endpoint", endpoint, "--secret", keys[0], "--secret", keys[1])


@pytest.mark.slow
def test_a_pipeline_of_many_tasks_ends_with_a_result(place, bucket, platform, digital, monkeypatch, capsys):
    monkeypatch.setattr(launching, "EVERY", 0.5)
    (_, run), (workspace, of_jobs) = place, bucket
    code = main(
        [
            *("launch", "cloud-run", "pipeline", str(digital / "one.pdf"), str(digital / "two.pdf"), *SMALL),
            *("--hardware", "cpu", "--shards", "2", *SHORT, "--wait", *workspace, *of_jobs, *run),
        ]
    )
    wrote = capsys.readouterr()
    assert (code, wrote.out) == (0, "3 ok\n"), wrote.err
    names = sorted(name.rpartition("/")[2] for name in platform.api.jobs)
    assert [name.rpartition("-")[2] for name in names] == ["assemble", "describe", "extract"]
    assert len({name.rpartition("-")[0] for name in names}) == 1  # the launch
    assert [len(one.tasks) for one in platform.executions] == [2, 2, 1]
    assert "geheimnis" not in wrote.err + repr(platform.requests)
    images = {one["template"]["template"]["containers"][0]["image"] for one in platform.api.jobs.values()}
    assert images == {"docker.io/library/python:3.12-slim"}
    assert main(["jobs", "--json", *workspace]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(one["stage"], one["state"]) for one in listed] == [
        ("extract", "succeeded"),
        ("describe", "succeeded"),
        ("assemble", "succeeded"),
    ]
    assert main(["jobs", "clean", *workspace]) == 0
    assert capsys.readouterr().out.count("deleted: job") == 3
    assert platform.api.jobs == {}


@pytest.mark.slow
def test_ended_job_is_continued_and_nothing_is_done_twice(place, platform, gcs, digital, monkeypatch, capsys):
    """After the first unit the server hangs and the platform ends the task; a new job does the rest."""
    monkeypatch.setattr(launching, "EVERY", 0.5)
    store = open_store("gs://bucket/run", StoreOptions(endpoint=gcs.url))
    published: list[str] = []

    def interrupt(server):
        while not published:
            published.extend(info.key for info in store.list("extract/") if info.key.endswith(".done"))
            time.sleep(0.05)
        server.set_faults({})
        platform.executions[0].time_out(0)

    with simulator(fault={"hang-after": 1}) as server:
        threading.Thread(target=interrupt, args=(server,), daemon=True).start()
        reading = ("--server-url", server.url, "--max-inflight-requests", "1", "--pages-per-unit", "1")
        words = ("--hardware", "cpu", "--image", "registry.example/llm-ocr:1", "--wheel", "image", "--wait")
        sources = (str(digital / "one.pdf"), str(digital / "two.pdf"))
        code = main(["launch", "cloud-run", "extract", *sources, *reading, *words, *place[0], *place[1]])
    wrote = capsys.readouterr()
    assert (code, wrote.out) == (0, "3 ok\n"), wrote.err
    assert "maximum timeout" in wrote.err
    assert len(platform.executions) == 2
    assert "submitting again" in wrote.err
    data = [info.key for info in store.list("extract/") if info.key.endswith(".parquet")]
    markers = [info.key for info in store.list("extract/") if info.key.endswith(".done")]
    assert len(markers) == 3 <= len(data) <= 4  # data whose marker was not written yet counts for nothing
