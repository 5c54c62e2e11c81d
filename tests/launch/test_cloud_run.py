"""Google Cloud Run's launcher with Google's own client against a stand-in whose tasks really run."""

import itertools
import sys
from dataclasses import replace

import pytest
from jobs_running import ended, submitted

from llm_ocr.errors import LaunchError, MissingExtra, UsageError
from llm_ocr.launch import Job, JobSpec, State, cloud_run
from llm_ocr.launch.cloud_run import CloudRun
from llm_ocr.launch.launching import complete_plan
from tests.fakes.cloud_run import Fault, running

pytestmark = pytest.mark.needs("google.cloud.run_v2")

PROJECT, REGION, IMAGE = "my-project", "us-central1", "us-central1-docker.pkg.dev/my-project/llm-ocr/cpu:1"
LAUNCH = "20260101-000000-abcd"
SLEEP = "import time; print('begun', flush=True); time.sleep(600)"


@pytest.fixture
def platform():
    with running(grace=2) as run:
        yield run


@pytest.fixture
def launcher():
    made = CloudRun()
    made.poll_seconds = 0.05
    return made


@pytest.fixture
def spec(platform, monkeypatch):
    """Makes a job that runs Python code."""

    def make(code="pass", **more):
        monkeypatch.setattr(JobSpec, "command", property(lambda self: ("python", "-c", code)))
        options = {
            "project": PROJECT,
            "region": REGION,
            "platform_endpoint": platform.url,
            "wheel": "image",
            **more.pop("options", {}),
        }
        return JobSpec("extract", "gs://b/w", LAUNCH, **{"hardware": "cpu", "image": IMAGE, "options": options, **more})

    return make


def calls(platform, method, part):
    return [one for one in platform.requests if one[0] == method and part in one[1]]


def test_every_task_has_its_number_its_variables_and_its_secrets(platform, launcher, spec):
    platform.account.secrets["hub-token"] = "geheimnis"
    names = ("CLOUD_RUN_TASK_INDEX", "CLOUD_RUN_TASK_COUNT", "A", "HF_TOKEN")
    code = f"import os; print(*(os.environ[name] for name in {names}))"
    asked = spec(code, shards=3, environment={"A": "1"}, secrets={"HF_TOKEN": "hub-token"})
    job = submitted(launcher, asked)
    status = ended(launcher, job)
    assert (status.state, status.reason, status.job) == (State.SUCCEEDED, "", job)
    assert status.started <= status.ended
    assert status.seconds > 0
    assert sorted(launcher.logs(job)) == [f"[{index}] {index} 3 1 geheimnis" for index in range(3)]
    assert "geheimnis" not in repr(platform.requests)


def test_exactly_the_plan_is_sent(platform, launcher, spec):
    plan = launcher.plan(spec(shards=2, environment={"A": "1"}))
    launcher.submit(plan)
    patch, run = (one for one in platform.requests if one[0] in ("PATCH", "POST"))
    job = plan.requests[0].body["job"]
    assert patch[1] == f"/v2/{job['name']}"
    assert patch[3] == {key: value for key, value in job.items() if key != "name"}
    assert run[1] == f"/v2/{job['name']}:run"
    assert run[3] == {"overrides": plan.requests[1].body["overrides"]}


def test_the_job_of_a_stage_is_made_once_and_run_again(platform, launcher, spec):
    first, second = submitted(launcher, spec()), submitted(launcher, spec(submission=2))
    assert len(platform.api.jobs) == 1
    assert first.id != second.id
    assert ended(launcher, first).state is ended(launcher, second).state is State.SUCCEEDED


def test_what_was_created_before_a_crash_is_found(platform, launcher, spec):
    assert list(launcher.find(spec())) == []
    job = submitted(launcher, spec())
    assert list(CloudRun().find(spec())) == [job]
    assert list(launcher.find(spec(submission=2))) == []


def test_checking_creates_nothing(platform, launcher, spec):
    launcher.check(launcher.plan(spec()))
    assert platform.api.jobs == {}
    assert platform.executions == []


def test_the_credentials_project_is_used_where_none_is_said(platform, launcher, spec, monkeypatch):
    asked = spec(options={"project": None})
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    with pytest.raises(LaunchError, match="contain no project\nSet --project"):
        CloudRun().check(launcher.plan(asked))
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "theirs")
    assert submitted(launcher, asked).id.startswith("projects/theirs/")


def test_a_plan_with_gaps_is_not_submitted(launcher, spec):
    with pytest.raises(UsageError, match="--region"):
        complete_plan(launcher, spec(options={"region": None}))


def test_as_many_tasks_as_are_allowed_run_at_a_time(platform, launcher, spec):
    job = submitted(launcher, spec(SLEEP, shards=3, options={"parallelism": 2}))
    lines = launcher.logs(job, follow=True)
    assert sorted(itertools.islice(lines, 2)) == ["[0] begun", "[1] begun"]
    (status,) = launcher.status([job])
    assert status.state is State.RUNNING
    assert status.seconds > 0
    assert sum(1 for task in platform.executions[0].tasks if task.started) == 2
    launcher.cancel(job)
    assert list(lines) == []
    status = ended(launcher, job)
    assert status.state is State.CANCELLED
    assert platform.executions[0].json()["cancelledCount"] == 3
    launcher.cancel(job)  # nothing happens to one that is over


def test_failed_task_is_named_with_exit_code_and_not_repeated(platform, launcher, spec):
    code = "import os, sys; print('no model'); sys.exit(int(os.environ['CLOUD_RUN_TASK_INDEX']))"
    job = submitted(launcher, spec(code, shards=2))
    status = ended(launcher, job)
    assert status.state is State.FAILED
    why = "1 of 2 tasks failed: task 1: exit code 1: The container exited with an error.: "
    assert status.reason in (f"{why}[0] no model", f"{why}[1] no model")  # the end of the log
    assert [len(task.containers) for task in platform.executions[0].tasks] == [1, 1]
    assert list(launcher.logs(job, tail=1)) in (["[0] no model"], ["[1] no model"])


def test_a_task_that_ends_by_its_time_limit_is_told_apart(platform, launcher, spec):
    platform.hurry = 0.01
    status = ended(launcher, submitted(launcher, spec(SLEEP, time_limit=60)))
    assert status.state is State.TIMED_OUT
    assert "maximum timeout of 60 seconds" in status.reason


def test_a_machine_that_is_taken_away_is_told_apart(platform, launcher, spec):
    job = submitted(launcher, spec(SLEEP))
    assert next(launcher.logs(job, follow=True)) == "begun"
    platform.executions[0].take_away(0)
    status = ended(launcher, job)
    assert status.state is State.PREEMPTED
    assert "maintenance" in status.reason


def test_a_container_that_does_not_start_is_a_failure(platform, launcher, spec):
    platform.start_failures = 1
    status = ended(launcher, submitted(launcher, spec()))
    assert (status.state, "failed to start" in status.reason) == (State.FAILED, True)


def test_what_is_cleaned_up_and_what_is_left_is_said(platform, launcher, spec):
    job = submitted(launcher, spec())
    other = submitted(launcher, spec(SLEEP, submission=2))
    ended(launcher, job)
    left = launcher.clean([job])
    assert "1 run in progress" in left[0]
    assert len(platform.api.jobs) == 1
    launcher.cancel(other)
    ended(launcher, other)
    removed = launcher.clean([job, other])
    assert removed[0].startswith("deleted: job projects/my-project/")
    assert "Artifact Registry" in removed[1]
    assert platform.api.jobs == {}
    assert "no longer exists" in launcher.clean([job])[0]
    (status,) = launcher.status([job])
    assert (status.state, "no longer has" in status.reason) == (State.FAILED, True)
    assert list(launcher.find(spec())) == []


def unreadable(run):
    run.account.secrets["HF_TOKEN"] = "x"
    run.account.unreadable.add("HF_TOKEN")


def denies(message):
    return lambda run: run.refuse(Fault("PATCH", "/jobs/", 403, "PERMISSION_DENIED", message))


@pytest.mark.parametrize(
    ("arrange", "more", "words", "to_do"),
    [
        (lambda run: None, {"secrets": {"HF_TOKEN": ""}}, "HF_TOKEN", "gcloud secrets create"),
        (unreadable, {"secrets": {"HF_TOKEN": ""}}, "Permission denied on secret", "secretmanager.secretAccessor"),
        (
            lambda run: setattr(run.account, "images", set()),
            {},
            f"Image '{IMAGE}' not found",
            "google-cloud-run/README.md",
        ),
        (
            lambda run: setattr(run.account, "accounts", set()),
            {"options": {"service_account": "a@b"}},
            "a@b does not exist",
            "--service-account",
        ),
        (
            lambda run: run.account.quota.update({"nvidia-l4": 0}),
            {"hardware": "nvidia-l4"},
            "do not have quota",
            "Request a higher quota",
        ),
        (lambda run: setattr(run.account, "regions", set()), {}, "us-central1 is not found", "--region"),
        (denies("Permission 'run.jobs.create' denied on resource."), {}, "run.jobs.create", "roles/run.developer"),
        (denies("Cloud Run Admin API has not been used in project 1."), {}, "not been used", "gcloud services enable"),
        (denies("'iam.serviceaccounts.actAs' denied on x."), {}, "actAs", "roles/iam.serviceAccountUser"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_created(platform, launcher, spec, arrange, more, words, to_do):
    arrange(platform)
    with pytest.raises(LaunchError) as raised:
        launcher.check(launcher.plan(spec(**more)))
    assert words in raised.value.args[0]
    assert to_do in raised.value.hint
    assert platform.api.jobs == {}


def test_without_a_login_it_is_said_how_to_log_in(launcher, spec, monkeypatch, tmp_path):
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(LaunchError, match="cannot sign in") as raised:
        launcher.check(launcher.plan(spec(options={"platform_endpoint": None})))
    assert "gcloud auth application-default login" in raised.value.hint


@pytest.mark.parametrize(
    ("secrets", "states", "words"),
    [({}, {}, "Secret not found"), ({"HF_TOKEN": "x"}, {"HF_TOKEN": "DISABLED"}, ": version latest is disabled")],
)
def test_secrets_are_looked_at_before_cloud_run_is_asked(platform, launcher, spec, secrets, states, words):
    platform.account.secrets.update(secrets)
    platform.account.states.update(states)
    with pytest.raises(LaunchError, match=words):
        launcher.check(launcher.plan(spec(secrets={"HF_TOKEN": ""})))
    assert not calls(platform, "PATCH", "/jobs/")


def test_without_the_client_library_the_pip_command_is_said(launcher, spec, monkeypatch):
    plan = launcher.plan(spec())
    monkeypatch.setitem(sys.modules, "google.cloud.run_v2", None)
    monkeypatch.delattr("google.cloud.run_v2")
    with pytest.raises(MissingExtra) as raised:
        launcher.check(plan)
    assert 'pip install "google-cloud-run>=' in raised.value.hint


def test_a_secret_that_nobody_may_look_at_does_not_stop_a_launch(platform, launcher, spec):
    platform.account.secrets["HF_TOKEN"] = "x"
    platform.refuse(Fault("GET", "/secrets/", 403, "PERMISSION_DENIED", "secretmanager.versions.get denied"))
    assert ended(launcher, submitted(launcher, spec(secrets={"HF_TOKEN": ""}))).state is State.SUCCEEDED


def test_launches_share_no_job_and_cleaning_one_keeps_the_other(platform, launcher, spec):
    mine = submitted(launcher, spec())
    theirs = submitted(launcher, replace(spec(), launch="20260101-000000-beef"))
    ended(launcher, mine)
    ended(launcher, theirs)
    assert mine.id.split("/")[5] != theirs.id.split("/")[5]
    assert launcher.clean([mine])[0].startswith("deleted: job ")
    (status,) = launcher.status([theirs])
    assert status.state is State.SUCCEEDED
    assert [name.rpartition("/")[2] for name in platform.api.jobs] == ["llm-ocr-20260101-000000-beef-extract"]


def test_cleaning_keeps_a_job_that_earlier_versions_shared(platform, launcher, spec):
    job = submitted(launcher, spec())
    ended(launcher, job)
    shared = replace(job, name="llm-ocr-20251201-000000-0123-extract-1")  # another launch ran on the same job
    assert launcher.clean([shared])[0].startswith("kept projects/my-project/")
    assert len(platform.api.jobs) == 1


def test_unreachable_server_is_a_retryable_error(launcher):
    with running() as gone:
        url = gone.url
    name = f"projects/p/locations/{REGION}/jobs/j/executions/e"
    with pytest.raises(LaunchError, match="cannot read the log") as raised:
        list(launcher.logs(Job(name, "n", place={"endpoint": url})))
    assert raised.value.retryable


def test_a_log_that_may_not_be_read_says_where_it_is(platform, launcher, spec):
    job = submitted(launcher, spec())
    ended(launcher, job)
    platform.refuse(Fault("POST", "entries:list", 403, "PERMISSION_DENIED", "logging.logEntries.list denied"))
    with pytest.raises(LaunchError) as raised:
        list(launcher.logs(job))
    assert "roles/logging.viewer" in raised.value.hint
    assert "https://console.example/logs" in raised.value.hint


def test_a_long_log_is_read_page_by_page(platform, launcher, spec, monkeypatch):
    monkeypatch.setattr(cloud_run, "_PAGE", 10)
    job = submitted(launcher, spec("for number in range(95): print(number)"))
    lines = [str(number) for number in range(95)]
    assert list(launcher.logs(job, follow=True)) == lines
    assert list(launcher.logs(job)) == lines
    assert list(launcher.logs(job, tail=25)) == lines[-25:]
