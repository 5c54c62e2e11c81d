"""Launching on RunPod, against a RunPod on loopback whose jobs the real worker does."""

import os
import time
from unittest import mock

import pytest
from cases_runpod import spec
from running import when
from store_servers import s3

import llm_ocr
from llm_ocr.cli import main
from llm_ocr.errors import LaunchError, UsageError
from llm_ocr.launch import Job, State
from llm_ocr.launch.runpod import api
from llm_ocr.launch.runpod.launcher import GPUS, RunPod
from tests.fakes.runpod import ENDPOINT, KEY, FakeRunPod

pytestmark = pytest.mark.needs("runpod")
FRUGAL = {"LLM_OCR_RENDER_WORKERS": "1", "LLM_OCR_OCR_WORKERS": "1", "LLM_OCR_ENGINE": "embedded"}
AWS = {
    "AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST",
    "AWS_SECRET_ACCESS_KEY": "of the tests",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}


@pytest.fixture(autouse=True)
def machine(tmp_path):
    """A machine with a key for RunPod and for the store, and nothing else of this one's user."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "RUNPOD_", "LLM_OCR_"))}
    own = {"RUNPOD_API_KEY": KEY, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"), **AWS}
    with mock.patch.dict(os.environ, {**kept, **own}, clear=True):
        yield


def allowing(bucket):
    """What the endpoint's environment says about workspaces of stage requests."""
    url, server = bucket
    return {"LLM_OCR_ALLOWED_WORKSPACES": url, "LLM_OCR_WORKSPACE_ENDPOINT": server}


@pytest.fixture
def bucket():
    """A workspace URL, and the address of its server."""
    with s3() as (url, reached):
        yield url, reached["workspace_endpoint"]


def on(server, stage="extract", workspace="s3://runpod/run", **more):
    options = {"platform_endpoint": server.url, "runpod_endpoint": ENDPOINT, **more.pop("options", {})}
    environment = {"LLM_OCR_WORKSPACE": workspace, **more.pop("environment", {})}
    made = spec(stage, options=options, **more)
    # Without a launch in the workspace the worker's own settings hold.
    return type(made)(**{**{name: getattr(made, name) for name in made.__slots__}, "environment": environment})


def over(launcher, jobs, seconds=180):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        statuses = launcher.status(jobs)
        if all(one.state.over for one in statuses):
            return statuses
        time.sleep(0.1)
    raise AssertionError(statuses)


@pytest.mark.slow
def test_jobs_do_the_units_of_their_shards(bucket, examples):
    url, endpoint = bucket
    reach = {"LLM_OCR_WORKSPACE_ENDPOINT": endpoint}
    sources = [examples / "paper.pdf", examples / "invoice.png"]
    llm_ocr.plan(sources, workspace=url, workspace_endpoint=endpoint, engine="embedded", pages_per_unit=1)
    launcher = RunPod()
    with FakeRunPod({**FRUGAL, **AWS, **allowing(bucket)}) as server:
        wanted = on(server, workspace=url, shards=2, environment=reach)
        plan = launcher.plan(wanted)
        launcher.check(plan)
        assert launcher.find(wanted) == []
        jobs = launcher.submit(plan)
        assert [job.shard for job in jobs] == [0, 1]
        assert launcher.find(wanted) == jobs
        statuses = over(launcher, jobs)
        assert [one.state for one in statuses] == [State.SUCCEEDED] * 2, server.logs()
        assert all(one.seconds and one.seconds > 0 for one in statuses)
        lines = list(launcher.logs(jobs[1]))
        assert "console.runpod.io" in lines[0]
        assert any('"units"' in line for line in lines)
        assert launcher.clean(jobs) == [f"kept: endpoint {ENDPOINT} ({jobs[0].url})"]
        assert launcher.find(wanted) == []
    status = llm_ocr.open(url, endpoint=endpoint).status
    assert status.pages.ok == status.pages.expected == 4


@pytest.mark.slow
def test_a_job_that_fails_has_the_stages_words_as_its_reason(bucket):
    launcher = RunPod()
    with FakeRunPod({**FRUGAL, **AWS, **allowing(bucket)}) as server:
        url, endpoint = bucket
        wanted = on(server, "describe", url, environment={"LLM_OCR_WORKSPACE_ENDPOINT": endpoint})
        [status] = over(launcher, launcher.submit(launcher.plan(wanted)))
        assert status.state is State.FAILED
        assert status.reason.startswith("describe ended with exit code 1: ")
        assert any("exit code 1" in line for line in launcher.logs(status.job, tail=5))


@pytest.mark.slow
def test_the_time_limit_ends_a_job_and_what_it_published_stays(bucket, examples):
    url, endpoint = bucket
    reach = {"LLM_OCR_WORKSPACE_ENDPOINT": endpoint}
    document = examples / "paper.pdf"
    planned = llm_ocr.plan(document, workspace=url, workspace_endpoint=endpoint, engine="embedded", pages_per_unit=1)
    launcher = RunPod()
    slow = {**FRUGAL, **AWS, **allowing(bucket), "LLM_OCR_TEXT_LAYER": "never", "LLM_OCR_WORKERS": "1"}
    with FakeRunPod(slow) as server:
        [job] = launcher.submit(launcher.plan(on(server, workspace=url, environment=reach, time_limit=60)))
        when(lambda: llm_ocr.open(url, endpoint=endpoint).status.stages["extract"].done)
        server.jobs[job.id].body["policy"]["executionTimeout"] = 1
        [status] = over(launcher, [job])
        assert status.state is State.TIMED_OUT
        assert "time limit" in status.reason
        [again] = launcher.submit(launcher.plan(on(server, workspace=url, environment=reach, submission=2)))
        [status] = over(launcher, [again])
        assert status.state is State.SUCCEEDED, server.logs()
    assert llm_ocr.open(url, endpoint=endpoint).status.pages.ok == planned.status.pages.expected > 1


SLEEPS = ("python", "-c", "import time; time.sleep(600)")


def test_a_job_that_is_over_is_not_cancelled_again():
    launcher = RunPod()
    with FakeRunPod(command=SLEEPS) as server:
        jobs = launcher.submit(launcher.plan(on(server)))
        assert [one.state for one in launcher.status(jobs)] == [State.QUEUED]
        for _ in range(2):
            launcher.cancel(jobs[0])
            assert [one.state for one in launcher.status(jobs)] == [State.CANCELLED]
        assert list(launcher.logs(jobs[0], follow=True))[-1].endswith("cancelled")


def test_a_lost_worker_is_a_job_that_timed_out():
    launcher = RunPod()
    with FakeRunPod(command=SLEEPS) as server:
        jobs = launcher.submit(launcher.plan(on(server)))
        server.jobs[jobs[0].id].status = "IN_PROGRESS"
        server.lose_workers()
        assert [one.state for one in launcher.status(jobs)] == [State.TIMED_OUT]


def test_a_job_that_is_forgotten_is_over_and_says_why():
    launcher = RunPod()
    with FakeRunPod(command=SLEEPS) as server:
        jobs = launcher.submit(launcher.plan(on(server)))
        server.forget()
        [status] = launcher.status(jobs)
        assert status.state is State.FAILED
        assert "30 minutes" in status.reason
        launcher.cancel(jobs[0])  # nothing happens


@pytest.mark.parametrize(
    ("word", "more", "state"),
    [
        ("PAUSED", {}, State.RUNNING),
        ("EXPLODED", {"error": "boom"}, State.FAILED),
        ("FAILED", {"error": '{"error_type": "E", "error_message": "the words\\nmore"}'}, State.FAILED),
    ],
)
def test_states_that_are_not_known_are_shown_by_their_word(word, more, state):
    launcher = RunPod()
    with FakeRunPod(command=SLEEPS) as server:
        [job] = launcher.submit(launcher.plan(on(server)))
        server.jobs[job.id].status = word
        server.jobs[job.id].error = more.get("error", "")
        [status] = launcher.status([job])
        assert status.state is state
        assert (word if word != "FAILED" else "the words") in status.reason
        assert "more" not in status.reason


def test_nothing_is_left_when_one_of_many_submissions_is_refused():
    launcher = RunPod()
    with FakeRunPod(command=SLEEPS) as server:
        wanted = on(server, shards=3)
        server.refuse(429, "too many jobs in the queue", after=2)
        with pytest.raises(LaunchError, match=r"(?s)429.*too many jobs in the queue.*Max workers"):
            launcher.submit(launcher.plan(wanted))
        assert [job.status for job in server.jobs.values()] == ["CANCELLED"] * 2
        assert launcher.find(wanted) == []


def check(server, stage="extract", **more):
    launcher = RunPod()
    launcher.check(launcher.plan(on(server, stage, **more)))


def test_what_can_be_known_before_is_said_before():
    with FakeRunPod({"HF_TOKEN": "x"}, gpus=["NVIDIA A40"]) as server:
        check(server, hardware="NVIDIA A40", secrets={"HF_TOKEN": ""})
        with pytest.raises(LaunchError, match=r"(?s)no variable MY_KEY.*RUNPOD_SECRET_mine"):
            check(server, secrets={"HF_TOKEN": "", "MY_KEY": "mine"})
        with pytest.raises(LaunchError, match="has no NVIDIA H200: NVIDIA A40"):
            check(server, hardware="NVIDIA H200")
        with pytest.raises(LaunchError, match=r"(?s)no endpoint other.*--runpod-endpoint"):
            check(server, options={"runpod_endpoint": "other"})
        with pytest.raises(LaunchError, match=r"(?s)runs on GPUs.*for a CPU"):
            check(server, hardware="cpu")
    with FakeRunPod(compute="CPU") as server:
        check(server, hardware="cpu")
        check(server, "assemble", hardware="endpoint")
        with pytest.raises(LaunchError, match=r"(?s)runs on CPUs.*--hardware cpu"):
            check(server, hardware="gpu")
    with FakeRunPod(workers=0) as server, pytest.raises(LaunchError, match=r"(?s)has no workers.*quota"):
        check(server)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 500, 503])
def test_an_endpoint_that_cannot_be_described_is_launched_and_the_log_says_what_was_not_checked(status, caplog):
    launcher = RunPod()
    with FakeRunPod(command=SLEEPS, about=status) as server:
        plan = launcher.plan(on(server, secrets={"MY_KEY": ""}, hardware="NVIDIA A40"))
        launcher.check(plan)
        assert len(launcher.submit(plan)) == 1
    assert "workers, GPU, and variables of endpoint fake-endpoint were not checked" in caplog.text
    assert f"RunPod returned {status} " in caplog.text
    assert "the endpoint cannot be read" in caplog.text


@pytest.mark.parametrize("answer", ["", "not JSON", "[]", "{}", '{"workers": 3}', '{"workers": {"max": "many"}}'])
def test_an_answer_of_another_form_does_not_end_a_launch(answer, caplog):
    with FakeRunPod(about=answer) as server:
        check(server, secrets={"MY_KEY": ""})
    assert "were not checked" in caplog.text


def test_a_management_server_that_does_not_answer_does_not_end_a_launch(monkeypatch, caplog):
    monkeypatch.setattr(api, "MANAGEMENT_SECONDS", 0.2)
    with FakeRunPod(about="{}", about_seconds=5) as server:
        check(server)
    assert "were not checked" in caplog.text


def test_an_endpoint_that_says_nothing_of_its_variables_is_launched(caplog):
    with FakeRunPod(about='{"workers": {"min": 0, "max": 3}, "gpu": {"pools": ["ADA_24"], "count": 1}}') as server:
        check(server, secrets={"MY_KEY": ""})
    assert "variables of endpoint fake-endpoint were not checked" in caplog.text


def test_an_endpoint_of_several_gpus_is_told_apart_by_pool_and_exclusion():
    with FakeRunPod(gpus=["NVIDIA A40", "NVIDIA L40S"]) as server:
        check(server, hardware="NVIDIA L40S")
        check(server, hardware="gpu")
        with pytest.raises(LaunchError, match="has no NVIDIA RTX A6000: NVIDIA A40, NVIDIA L40S"):
            check(server, hardware="NVIDIA RTX A6000")


def test_without_a_key_or_with_a_wrong_one(tmp_path, monkeypatch):
    with FakeRunPod() as server:
        monkeypatch.setenv("RUNPOD_API_KEY", "wrong")
        with pytest.raises(LaunchError, match=r"(?s)401.*invalid api key.*RUNPOD_API_KEY"):
            check(server)
        monkeypatch.delenv("RUNPOD_API_KEY")
        with pytest.raises(LaunchError, match="RUNPOD_API_KEY is not set"):
            check(server)
        (tmp_path / ".runpod").mkdir()
        (tmp_path / ".runpod" / "config.toml").write_text(f'[default]\napi_key = "{KEY}"\n')
        check(server)


def test_a_platform_that_cannot_be_reached():
    launcher = RunPod()
    with FakeRunPod() as server:
        wanted = on(server)
    with pytest.raises(LaunchError, match="RunPod cannot be reached"):
        launcher.check(launcher.plan(wanted))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"image": "mine:1"}, "--image"),
        ({"hardware": "NVIDIA A4O"}, "Similar: .*NVIDIA A40"),
        ({"time_limit": 8 * 86_400}, "--time-limit"),
        ({"environment": {"MORE": "x"}}, "--env MORE: requests to an endpoint cannot set variables"),
    ],
)
def test_what_can_never_work_is_wrong_usage(more, said):
    with pytest.raises(UsageError, match=f"(?s){said}"):
        RunPod().plan(spec(**more))


def test_a_folder_of_this_machine_is_no_workspace(capsys):
    words = ["launch", "runpod", "extract", "paper.pdf", "-w", "/tmp/run", "--runpod-endpoint", ENDPOINT, "--dry-run"]
    assert main(words) == 2
    assert "/tmp/run is on this machine, where jobs on runpod cannot reach it" in capsys.readouterr().err


def test_gpus_are_known_by_runpods_names():
    launcher = RunPod()
    assert launcher.gpus(launcher.hardware("extract")) == 1  # of whatever kind
    assert launcher.gpus(launcher.hardware("assemble")) is None
    assert (launcher.gpus("NVIDIA A40"), launcher.gpus("cpu"), launcher.gpus("a100-large")) == (1, 0, None)
    assert all(GPUS[name] == 1 for name in GPUS if name != "cpu")


def test_a_job_can_be_asked_for_by_another_process():
    launcher = RunPod()
    with FakeRunPod(command=SLEEPS) as server:
        [job] = launcher.submit(launcher.plan(on(server)))
        same = Job(job.id, job.name, job.shard, job.url, dict(job.place))
        assert RunPod().status([same])[0].state is State.QUEUED
