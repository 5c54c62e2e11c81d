"""What runs in a container of SageMaker: secrets, signals, and the failure that is left for the job's description."""

import datetime
import os
import signal
import subprocess
import sys

import pytest
from sagemaker_account import opened

from llm_ocr.config.environment import leave_error
from llm_ocr.errors import LaunchError
from llm_ocr.launch import Job, State
from llm_ocr.launch.sagemaker import status_of
from llm_ocr.launch.sagemaker.entry import fetched

SHOW = "import os; print(os.environ.get('KEY'), os.environ.get('LLM_OCR_SECRETS'))"


@pytest.fixture(scope="module")
def account():
    with opened() as found:
        store = found.client("secretsmanager")
        store.create_secret(Name="entry/key", SecretString="geheimnis\n")
        store.create_secret(Name="entry/pairs", SecretString='{"KEY": "of the pairs", "OTHER": "x"}')
        store.create_secret(Name="entry/bytes", SecretBinary=b"x")
        yield found


def entry(command, **variables):
    words = [sys.executable, "-m", "llm_ocr.launch.sagemaker.entry", *command]
    own = {**os.environ, "LLM_OCR_SECRETS": "", **variables}
    return subprocess.run(words, env=own, capture_output=True, text=True)


def test_the_command_gets_its_secrets_and_not_their_list(account):
    run = entry(["python", "-c", SHOW], LLM_OCR_SECRETS="KEY=entry/key")
    assert (run.returncode, run.stdout) == (0, "geheimnis None\n"), run.stderr


def test_command_replaces_the_program_and_gets_its_signals(account):
    code = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    assert entry(["python", "-c", code]).returncode == -signal.SIGTERM


def test_secrets_by_name_by_arn_and_as_pairs(account):
    arn = account.client("secretsmanager").describe_secret(SecretId="entry/key")["ARN"]
    assert fetched(f"KEY=entry/key,TWO={arn}", {}) == {"KEY": "geheimnis", "TWO": "geheimnis"}
    assert fetched("KEY=entry/pairs", {}) == {"KEY": "of the pairs"}
    assert fetched("THIRD=entry/pairs", {}) == {"THIRD": '{"KEY": "of the pairs", "OTHER": "x"}'}
    assert fetched("", {}) == {}


@pytest.mark.parametrize(
    "variables",
    [{"AWS_REGION": "us-east-1"}, {"TRAINING_JOB_ARN": "arn:aws:sagemaker:us-east-1:123456789012:training-job/x"}],
)
def test_the_region_is_the_jobs(account, monkeypatch, variables):
    """SageMaker does not say it in the variable that boto3 reads."""
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert fetched("KEY=entry/key", variables) == {"KEY": "geheimnis"}


@pytest.mark.parametrize(("where", "hint"), [("entry/absent", "create-secret"), ("entry/bytes", "--secret-string")])
def test_a_secret_that_cannot_be_had_says_what_to_do(account, where, hint):
    with pytest.raises(LaunchError, match=where) as error:
        fetched(f"KEY={where}", {})
    assert hint in error.value.hint


def test_a_secret_that_cannot_be_had_is_the_jobs_failure(account, tmp_path):
    where = "entry/absent"
    file = tmp_path / "failure"
    run = entry(["python", "-c", "print('ran')"], LLM_OCR_SECRETS=f"KEY={where}", LLM_OCR_ERROR_FILE=str(file))
    assert (run.returncode, run.stdout) == (1, "")
    assert where in file.read_text()


def test_an_error_is_left_as_whole_utf_8_within_a_kilobyte(tmp_path, monkeypatch):
    monkeypatch.setenv("LLM_OCR_ERROR_FILE", str(tmp_path / "failure"))
    leave_error("x" + "ü" * 1000)
    assert (tmp_path / "failure").read_bytes().decode() == "x" + "ü" * 511


START = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


def after(seconds):
    return START + datetime.timedelta(seconds=seconds)


def training(status, second, *, machines=1, before=(), **more):
    job = Job("arn", "job", place={"kind": "training", "machines": machines})
    transitions = [{"Status": one, "StartTime": START} for one in (*before, second)]
    stopping = {"StoppingCondition": {"MaxRuntimeInSeconds": 3600}}
    found = {"TrainingJobStatus": status, "SecondaryStatus": second, "SecondaryStatusTransitions": transitions}
    return status_of(job, {**found, **stopping, "TrainingStartTime": START, **more})


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (training("InProgress", "Pending"), State.QUEUED),
        (training("InProgress", "Training", TrainingStartTime=None), State.QUEUED),
        (training("InProgress", "Training"), State.RUNNING),
        (training("InProgress", "Interrupted"), State.QUEUED),
        (training("Stopping", "Stopping"), State.RUNNING),
        (training("Completed", "Completed"), State.SUCCEEDED),
        (training("Completed", "Completed", before=("Interrupted",)), State.SUCCEEDED),
        (training("Failed", "Failed"), State.FAILED),
        (training("Failed", "Failed", before=("Training", "Interrupted")), State.PREEMPTED),
        (training("Failed", "Failed", before=("Interrupted", "Training")), State.FAILED),
        (training("Stopped", "Stopped"), State.CANCELLED),
        (training("Stopped", "MaxRuntimeExceeded"), State.TIMED_OUT),
        (training("Stopped", "MaxWaitTimeExceeded"), State.TIMED_OUT),
        (training("Stopped", "MaxWaitTimeExceeded", before=("Training", "Interrupted")), State.PREEMPTED),
        (training("Deleting", "Stopped"), State.FAILED),
    ],
)
def test_each_state_is_one_of_ours(found, state):
    assert found.state is state
    assert bool(found.reason) == (state.over and state is not State.SUCCEEDED)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            training("Failed", "Failed", FailureReason="AlgorithmError: no\nmore\nno\n"),
            "AlgorithmError: no; more; no",
        ),
        (training("Failed", "Failed", FailureReason="AlgorithmError: no"), "AlgorithmError: no"),
        (training("Stopped", "Stopped"), "Stopped"),
        (training("Stopped", "MaxRuntimeExceeded"), "MaxRuntimeExceeded: MaxRuntimeInSeconds is 3600"),
        (training("Stopped", "MaxWaitTimeExceeded", before=("Interrupted",)), "MaxWaitTimeExceeded"),
    ],
)
def test_the_reason_is_in_sagemakers_words(found, words):
    assert found.reason == words


def test_what_is_billed_is_summed_over_machines():
    assert training("InProgress", "Pending", TrainingStartTime=None).seconds is None
    billed = training("Completed", "Completed", machines=2, BillableTimeInSeconds=30, TrainingEndTime=after(100))
    assert (billed.seconds, billed.started, billed.ended) == (60, START.timestamp(), after(100).timestamp())
    assert training("Stopped", "Stopped", machines=3, TrainingEndTime=after(100)).seconds == 300
