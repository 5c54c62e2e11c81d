"""Every state that SageMaker has, as one of ours, with its reason, its times and what is billed."""

import datetime

import pytest

from llm_ocr.launch import Job, State
from llm_ocr.launch.sagemaker.launcher import status_of

START = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


def after(seconds):
    return START + datetime.timedelta(seconds=seconds)


def processing(status, *, machines=1, limit=3600, ran=None, **more):
    job = Job("arn", "job", place={"kind": "processing", "machines": machines})
    times = {} if ran is None else {"ProcessingStartTime": START, "ProcessingEndTime": after(ran)}
    stopping = {"StoppingCondition": {"MaxRuntimeInSeconds": limit}}
    return status_of(job, {"ProcessingJobStatus": status, **stopping, **times, **more})


def training(status, second, *, machines=1, before=(), **more):
    job = Job("arn", "job", place={"kind": "training", "machines": machines})
    transitions = [{"Status": one, "StartTime": START} for one in (*before, second)]
    stopping = {"StoppingCondition": {"MaxRuntimeInSeconds": 3600}}
    found = {"TrainingJobStatus": status, "SecondaryStatus": second, "SecondaryStatusTransitions": transitions}
    return status_of(job, {**found, **stopping, "TrainingStartTime": START, **more})


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (processing("InProgress"), State.QUEUED),
        (processing("InProgress", ProcessingStartTime=START), State.RUNNING),
        (processing("Stopping", ProcessingStartTime=START), State.RUNNING),
        (processing("Completed", ran=10), State.SUCCEEDED),
        (processing("Completed", ran=3599), State.SUCCEEDED),
        (processing("Failed", ran=10), State.FAILED),
        (processing("Failed"), State.FAILED),
        (processing("Stopped", ran=10), State.CANCELLED),
        (processing("Stopped", ran=3600), State.TIMED_OUT),
        (processing("Failed", ran=3605), State.TIMED_OUT),
        (processing("Failed", ran=10, FailureReason="MaxRuntimeExceeded"), State.TIMED_OUT),
        (processing("SomethingNew", ran=10), State.FAILED),
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
            processing(
                "Failed", ran=1, FailureReason="AlgorithmError: , exit code: 1", ExitMessage="llm-ocr: no\nno\n"
            ),
            "AlgorithmError: , exit code: 1; llm-ocr: no; no",
        ),
        (training("Failed", "Failed", FailureReason="AlgorithmError: no"), "AlgorithmError: no"),
        (processing("Stopped", ran=10), "Stopped"),
        (processing("Stopped", ran=3600), "Stopped: MaxRuntimeInSeconds is 3600"),
        (training("Stopped", "MaxRuntimeExceeded"), "MaxRuntimeExceeded: MaxRuntimeInSeconds is 3600"),
        (training("Stopped", "MaxWaitTimeExceeded", before=("Interrupted",)), "MaxWaitTimeExceeded"),
        (processing("SomethingNew", ran=10), "SomethingNew"),
    ],
)
def test_the_reason_is_in_sagemakers_words(found, words):
    assert found.reason == words


def test_what_is_billed_is_summed_over_machines():
    assert processing("Completed", ran=100, machines=4).seconds == 400
    assert processing("InProgress").seconds is None
    billed = training("Completed", "Completed", machines=2, BillableTimeInSeconds=30, TrainingEndTime=after(100))
    assert (billed.seconds, billed.started, billed.ended) == (60, START.timestamp(), after(100).timestamp())
    assert training("Stopped", "Stopped", machines=3, TrainingEndTime=after(100)).seconds == 300
