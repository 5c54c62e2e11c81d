"""Hugging Face Jobs, by huggingface_hub itself, on a Hub of ours whose jobs really run."""

import json
from dataclasses import replace

import pytest
from cases_hf_jobs import LAUNCH
from hf_jobs_running import WORKSPACE, Platform

import llm_ocr
from llm_ocr.errors import LaunchError
from llm_ocr.launch import State
from llm_ocr.launch.hf_jobs import HfJobs
from llm_ocr.launch.library import library_wheel
from llm_ocr.storage import StoreOptions
from llm_ocr.workspace import Workspace
from tests.fakes.hub import Fault, How, Mishap


@pytest.fixture
def planned(platform: Platform, digital, examples):
    """A workspace in a bucket with two units: an image, and a document of two pages."""
    platform.api.create_bucket("tester/ws", private=True)
    sources = [digital / "one.pdf", examples / "paper.pdf"]
    settings = {"workspace": WORKSPACE, "workspace_endpoint": platform.hub.url}
    llm_ocr.plan(sources, engine="embedded", pages_per_unit=2, **settings)
    return platform


def submitted(platform: Platform, **more):
    plan = platform.launcher.plan(platform.spec(**more))
    platform.launcher.check(plan)
    return platform.submit(plan)


def pages(platform: Platform):
    return llm_ocr.open(WORKSPACE, endpoint=platform.hub.url).status.pages


@pytest.mark.slow
def test_jobs_install_the_wheel_and_do_their_share_of_units(planned):
    planned.hub.state.jobs.image["PYTHONVERBOSE"] = "1"
    jobs = submitted(planned, shards=2)
    assert [job.shard for job in jobs] == [0, 1]
    statuses = planned.over(jobs)
    assert [one.state for one in statuses] == [State.SUCCEEDED] * 2
    assert [one.job for one in statuses] == list(jobs)
    assert all(one.seconds and one.seconds % 60 == 0 for one in statuses)  # billed by the minute
    assert all(one.started and one.ended and one.started <= one.ended for one in statuses)
    found = pages(planned)
    assert found.ok == found.expected == 4
    own = [planned.hub.state.jobs.by_id[job.id] for job in jobs]
    assert [job.spec["environment"]["LLM_OCR_SHARD_INDEX"] for job in own] == ["0", "1"]
    assert [job.labels["shard"] for job in own] == ["0", "1"]
    lines = [line for job in jobs for line in planned.launcher.logs(job)]
    assert sum("page" in line and " ok in " in line for line in lines) == 2
    loaded = [line for line in lines if "llm_ocr/stages/__init__" in line]
    assert loaded and all("/site/" in line for line in loaded)  # not the checkout


def test_the_wheel_lies_in_the_workspace_under_its_hash(platform):
    platform.hub.state.jobs.mishaps.append(Mishap("enough", never_starts=True))
    (job,) = submitted(platform)
    sent = library_wheel(platform.wheel)
    command = platform.hub.state.jobs.by_id[job.id].spec["command"]
    told = json.loads(command[3])
    assert told["sha256"] == sent.sha256
    assert told["wheel"] == f"{WORKSPACE}/launches/{LAUNCH}/{sent.sha256[:16]}/{sent.name}"


@pytest.mark.slow
def test_a_wheel_that_is_another_one_is_not_installed(planned):
    spec = planned.spec()
    (first,) = planned.submit(planned.launcher.plan(spec))
    planned.launcher.cancel(first)
    with Workspace.open(WORKSPACE, options=StoreOptions(endpoint=planned.hub.url)) as workspace:
        (wheel,) = [one.key for one in workspace.store.list(f"launches/{LAUNCH}/") if one.key.endswith(".whl")]
        workspace.store.put(wheel, b"another")
    (job,) = planned.submit(planned.launcher.plan(replace(spec, submission=2)))
    (status,) = planned.over([job])
    assert status.state is State.FAILED
    assert "has changed since the launch" in status.reason


@pytest.mark.slow
def test_failed_download_is_repeated_and_the_log_followed(planned):
    (job,) = submitted(planned)
    planned.launcher.cancel(job)
    planned.hub.faults.add(Fault("bucket_resolve", name="whl", status=503))
    (again,) = submitted(planned, submission=2)
    followed = list(planned.launcher.logs(again, follow=True))
    (status,) = planned.over([again])
    assert status.state is State.SUCCEEDED, followed
    assert planned.hub.faults.listed() == []
    assert any(line.startswith("extract: ") for line in followed)
    assert list(planned.launcher.logs(again, tail=1)) == followed[-1:]


def test_secrets_are_sent_as_secrets_and_stand_nowhere_else(platform, monkeypatch):
    monkeypatch.setenv("MY_KEY", "geheimnis")
    spec = platform.spec(secrets={"LLM_OCR_API_KEY": "MY_KEY"})
    plan = platform.launcher.plan(spec)
    assert "geheimnis" not in repr(plan)
    (job,) = platform.submit(plan)
    platform.launcher.cancel(job)
    sent = platform.hub.state.jobs.by_id[job.id].spec
    assert sent.pop("secrets") == {"HF_TOKEN": "hf_fake", "LLM_OCR_API_KEY": "geheimnis"}
    assert "geheimnis" not in json.dumps(sent)
    assert "hf_fake" not in json.dumps(sent)


def test_submit_sends_exactly_what_the_plan_shows(platform):
    spec = platform.spec(shards=2, time_limit=5400)
    plan = platform.launcher.plan(spec)
    jobs = platform.submit(plan)
    for job in jobs:
        platform.launcher.cancel(job)
    shown = [request.body for request in plan.requests if request.call == "run_job"]
    for job, body in zip(jobs, shown, strict=True):
        sent = platform.hub.state.jobs.by_id[job.id].spec
        assert sent["dockerImage"] == body["image"] == "python:3.12-slim"
        assert sent["flavor"] == body["flavor"]
        assert sent["timeoutSeconds"] == body["timeout"] == 5400
        assert sent["attempts"] == body["attempts"] == 1
        assert sent["labels"] == {**body["labels"], "name": body["name"]}
        assert sent["environment"] == {**body["env"], "HF_ENDPOINT": platform.hub.url}
        assert "<wheel" not in json.dumps(sent)
        assert "<namespace>" not in json.dumps(sent)


def test_another_process_finds_the_jobs_and_creates_none_again(platform):
    spec = platform.spec(shards=2)
    assert platform.launcher.find(spec) == []
    jobs = platform.submit(platform.launcher.plan(spec))
    again = HfJobs()
    assert again.find(spec) == list(jobs)
    assert again.submit(again.plan(spec)) == list(jobs)
    assert len(platform.hub.state.jobs.by_id) == 2
    assert platform.hub.requests["run_job"] == 2


def test_what_a_crash_left_out_is_made_and_nothing_else(platform):
    spec = platform.spec(shards=3)
    platform.hub.faults.add(Fault("run_job", how=How.DROP, after=1), Fault("cancel_job"))
    with pytest.raises(LaunchError, match="still running: http"):
        platform.submit(platform.launcher.plan(spec))
    first = set(platform.hub.state.jobs.by_id)
    jobs = platform.submit(platform.launcher.plan(spec))
    assert first < {job.id for job in jobs}
    assert len(platform.hub.state.jobs.by_id) == 3


def test_an_answer_that_is_lost_makes_no_second_job(platform):
    platform.hub.faults.add(Fault("run_job", how=How.LOSE, status=502))
    jobs = platform.submit(platform.launcher.plan(platform.spec()))
    assert [job.id for job in jobs] == list(platform.hub.state.jobs.by_id)


def test_all_jobs_of_a_submission_are_asked_for_at_once(platform):
    jobs = platform.submit(platform.launcher.plan(platform.spec(shards=3)))
    before = platform.hub.requests
    platform.launcher.status(jobs)
    asked = {name: count - before.get(name, 0) for name, count in platform.hub.requests.items()}
    # The jobs themselves may read from the bucket meanwhile.
    assert {name: count for name, count in asked.items() if count and "job" in name} == {"list_jobs": 1}


def test_cancel_ends_a_job_and_does_nothing_to_an_ended_one(platform):
    (job,) = platform.submit(platform.launcher.plan(platform.spec()))
    platform.launcher.cancel(job)
    (status,) = platform.launcher.status([job])
    assert status.state is State.CANCELLED
    platform.launcher.cancel(job)
    assert platform.hub.requests["cancel_job"] == 1


def test_cleaning_up_says_what_the_hub_keeps(platform):
    (job,) = platform.submit(platform.launcher.plan(platform.spec()))
    platform.launcher.cancel(job)
    assert platform.launcher.clean([job]) == [
        f"kept: finished jobs and their logs on the Hub: {platform.hub.url}/jobs/tester"
    ]


def test_an_organisation_pays_where_it_is_named(platform):
    (job,) = submitted(platform, options={"namespace": "team"})
    platform.launcher.cancel(job)
    assert job.place["namespace"] == "team"


@pytest.mark.slow
def test_the_library_of_the_image_is_used_where_it_is_named(planned):
    (job,) = submitted(planned, options={"wheel": "image"})
    (status,) = planned.over([job])
    assert status.state is State.SUCCEEDED
    assert planned.hub.state.jobs.by_id[job.id].spec["command"] == ["python3", "-m", "llm_ocr.stages", "extract"]


def model_on(platform: Platform) -> str:
    """A model on the Hub; its commit."""
    platform.api.create_repo("tester/model")
    return platform.api.upload_file(path_or_fileobj=b"{}", path_in_repo="config.json", repo_id="tester/model").oid


def test_a_job_with_a_gpu_gets_the_model_as_a_volume(platform):
    commit = model_on(platform)
    platform.hub.state.jobs.mishaps.append(Mishap("enough", never_starts=True))
    (job,) = submitted(platform, hardware="l4x1", options={"hub_model": ["tester/model", ""]})
    spec = platform.hub.state.jobs.by_id[job.id].spec
    path = f"/models/models--tester--model/snapshots/{commit}"
    volume = {"type": "model", "source": "tester/model", "mountPath": path, "revision": commit, "readOnly": True}
    assert spec["volumes"] == [volume]
    assert spec["environment"]["HF_HUB_CACHE"] == "/models"


@pytest.mark.parametrize(
    ("model", "environment"), [("tester/missing", {}), ("tester/model", {"HF_HUB_CACHE": "/tmp/models"})]
)
def test_a_model_that_cannot_be_mounted_is_downloaded(platform, model, environment):
    model_on(platform)
    platform.hub.state.jobs.mishaps.append(Mishap("enough", never_starts=True))
    more = {"options": {"hub_model": [model, ""]}, "environment": environment}
    (job,) = submitted(platform, hardware="l4x1", **more)
    assert "volumes" not in platform.hub.state.jobs.by_id[job.id].spec


def test_a_mounted_model_is_not_downloaded(platform, tmp_path):
    """The place of the volume is the one where huggingface_hub looks for a commit; a mount has no links."""
    commit = model_on(platform)
    plan = platform.launcher.plan(platform.spec(hardware="l4x1", options={"hub_model": ["tester/model", commit]}))
    (volume,) = plan.requests[0].body["volumes"]
    mounted = tmp_path / volume["mount_path"].lstrip("/")
    mounted.mkdir(parents=True)
    (mounted / "config.json").write_text("{}")
    cache = {"cache_dir": tmp_path / "models", "allow_patterns": ["*.json"]}  # as vLLM asks
    found = platform.api.snapshot_download("tester/model", revision=commit, **cache)
    assert found == str(mounted)
    assert not platform.hub.requests.get("resolve")
