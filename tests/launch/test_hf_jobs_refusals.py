"""What Hugging Face Jobs refuses, and how its jobs end badly: said in the Hub's words, before a machine is paid."""

from datetime import UTC, datetime

import pytest
from cases_hf_jobs import spec
from hf_jobs_running import Platform
from huggingface_hub import JobInfo, constants

from llm_ocr.errors import LaunchError, MissingExtra, UsageError
from llm_ocr.launch import Job, State
from llm_ocr.launch.hf_jobs import HfJobs, status_of
from llm_ocr.launch.launching import complete_plan
from tests.fakes.hub import Account, Fault, Mishap


def refused(platform: Platform, **more) -> LaunchError:
    """What is said before anything is created."""
    plan = platform.launcher.plan(platform.spec(**more))
    with pytest.raises((LaunchError, UsageError)) as caught:
        platform.launcher.check(plan)
    assert platform.hub.state.jobs.by_id == {}
    return caught.value


@pytest.mark.parametrize(
    ("more", "words", "hint"),
    [
        ({"hardware": "a100-larg"}, "no hardware 'a100-larg'", "a100-large ($2.50 per hour)"),
        ({"secrets": {"MY_KEY_OF_NOTHING": ""}}, "MY_KEY_OF_NOTHING", "export MY_KEY_OF_NOTHING"),
        ({"options": {"namespace": "teem"}}, "not a member of the organization teem", "Did you mean team?"),
        ({"workspace": "s3://bucket/run"}, "no credentials for s3://bucket/run", "--secret AWS_ACCESS_KEY_ID"),
        ({"workspace": "gs://b/run"}, "no credentials for gs://b/run", "GOOGLE_APPLICATION_CREDENTIALS_JSON"),
    ],
)
def test_what_an_account_does_not_have_is_named(platform, more, words, hint):
    error = refused(platform, **more)
    assert words in str(error)
    assert hint in error.hint


def test_client_that_cannot_start_jobs_names_a_release_that_can(platform, monkeypatch):
    monkeypatch.setattr("huggingface_hub.__version__", "1.33.0")
    plan = platform.launcher.plan(platform.spec())
    with pytest.raises(MissingExtra, match=r"needs huggingface_hub 2.1, but 1.33.0 is installed") as caught:
        platform.launcher.check(plan)
    assert 'pip install --upgrade "huggingface_hub>=2.1"' in caught.value.hint


def test_nobody_is_logged_in(platform, monkeypatch, tmp_path):
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    error = refused(platform)
    assert "no Hugging Face token found" in str(error)
    assert "hf auth login" in error.hint


def test_a_stored_login_is_enough(platform, monkeypatch, tmp_path):
    monkeypatch.delenv("HF_TOKEN")
    (tmp_path / "token").write_text("hf_fake")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    plan = platform.launcher.plan(platform.spec())
    platform.launcher.check(plan)
    (job,) = platform.submit(plan)
    platform.launcher.cancel(job)
    assert platform.hub.state.jobs.by_id[job.id].spec["secrets"] == {"HF_TOKEN": "hf_fake"}


def test_a_token_that_nobody_has(platform, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_expired")
    assert "expired or was revoked" in refused(platform).hint


def test_a_token_that_may_only_read(platform):
    platform.hub.state.accounts.by_token["hf_fake"] = Account("tester", role="read")
    assert "is read-only" in str(refused(platform))


def test_jobs_are_not_for_this_account(platform):
    platform.hub.faults.add(Fault("list_jobs", status=403, message="Jobs are not enabled for tester"))
    error = refused(platform)
    assert "Jobs are not enabled for tester" in str(error)
    assert "credits" in error.hint


@pytest.mark.parametrize("given", ["llm-ocr", "llm-ocr==1.2.3", "requests==2", "other", "missing", "no-wheel"])
def test_unusable_wheel_is_refused_before_anything_is_sent(given, tmp_path):
    (tmp_path / "other-1-py3-none-any.whl").write_bytes(b"no wheel")
    files = {"missing": tmp_path / "llm_ocr-1-py3-none-any.whl", "no-wheel": tmp_path / "other-1-py3-none-any.whl"}
    words = {"missing": "the file does not exist", "no-wheel": "is not a wheel of llm-ocr"}
    given_spec = spec("extract", options={"wheel": str(files.get(given, given))})
    with pytest.raises(UsageError, match=words.get(given, "must be a wheel file")):
        complete_plan(HfJobs(), given_spec)


def test_no_credits_leave_nothing_under_way(platform):
    words = "Pre-paid credit balance is insufficient"
    platform.hub.faults.add(Fault("run_job", status=402, message=words, after=1))
    with pytest.raises(LaunchError, match=words) as caught:
        platform.submit(platform.launcher.plan(platform.spec(shards=2)))
    assert "settings/billing" in caught.value.hint
    assert [job.stage for job in platform.hub.state.jobs.by_id.values()] == ["CANCELED"]


def test_a_job_that_runs_into_its_time_limit(platform):
    platform.hub.state.jobs.second = 1e-9
    (status,) = platform.over(platform.submit(platform.launcher.plan(platform.spec())))
    assert status.state is State.TIMED_OUT
    assert status.reason == "Job timeout"


@pytest.mark.parametrize(
    ("message", "state"),
    [
        ("Image not found: docker.io/vllm/none", State.FAILED),
        ("Job failed with exit code: 137. Reason: OOMKilled", State.FAILED),
        ("The node was preempted", State.PREEMPTED),
    ],
)
def test_a_machine_that_fails_is_told_from_a_job_that_fails(platform, message, state):
    platform.hub.state.jobs.mishaps.append(Mishap(message, never_starts=True))
    (status,) = platform.over(platform.submit(platform.launcher.plan(platform.spec())))
    assert status.state is state
    assert status.reason == message
    assert status.started is None


def test_a_job_that_the_hub_does_not_know_any_more(platform):
    (job,) = platform.submit(platform.launcher.plan(platform.spec()))
    platform.launcher.cancel(job)
    platform.hub.state.jobs.by_id.clear()
    (status,) = platform.launcher.status([job])
    assert status.state is State.FAILED
    assert "does not have this job" in status.reason


def told(stage: str, **more) -> State:
    at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    owner = {"id": "0", "name": "me", "type": "user"}
    found = {"id": "1", "owner": owner, "createdAt": at, "status": {"stage": stage}, **more}
    return status_of(Job("1", "job"), JobInfo(**found)).state


def test_every_stage_of_the_hub_and_those_that_may_come():
    ended = {"finishedAt": "2026-01-01T00:00:00.000Z"}
    assert [told(stage) for stage in ("SCHEDULING", "RUNNING")] == [State.QUEUED, State.RUNNING]
    assert [told(stage, **ended) for stage in ("COMPLETED", "CANCELED", "DELETED", "ERROR")] == [
        *(State.SUCCEEDED, State.CANCELLED, State.CANCELLED, State.FAILED)
    ]
    assert told("UPDATING") is State.RUNNING
    assert told("EXPLODED", **ended) is State.FAILED
    ran = {"durations": {"runningSecs": 600}, "labels": {"limit": "600"}, **ended}
    assert told("ERROR", **ran) is State.TIMED_OUT  # whatever the words are
