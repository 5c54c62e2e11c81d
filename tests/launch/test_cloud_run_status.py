"""What becomes of a Cloud Run job whose platform gives no reason."""

from datetime import UTC, datetime, timedelta

import pytest

from llm_ocr.launch import Job, State
from llm_ocr.launch.cloud_run.launcher import job_status


def told(seconds, limit=60, **result):
    """The status of a run whose only task ended so, after so many seconds."""
    run_v2 = pytest.importorskip("google.cloud.run_v2")
    start = datetime(2026, 1, 1, tzinfo=UTC)
    task = run_v2.Task(
        timeout=timedelta(seconds=limit),
        start_time=start,
        completion_time=start + timedelta(seconds=seconds),
        last_attempt_result=run_v2.TaskAttemptResult(**result),
    )
    failed = run_v2.Condition(type_="Completed", state="CONDITION_FAILED", message="A task failed.")
    execution = run_v2.Execution(task_count=1, failed_count=1, completion_time=start, conditions=[failed])
    return job_status(Job("x", "x"), execution, [task])


@pytest.mark.parametrize(
    ("seconds", "result", "state"),
    [
        (60, {"exit_code": 4}, State.TIMED_OUT),
        (61, {"term_signal": 9}, State.TIMED_OUT),
        (30, {"exit_code": 4}, State.PREEMPTED),
        (30, {"term_signal": 15}, State.PREEMPTED),
        (30, {"term_signal": 9}, State.FAILED),
        (61, {"exit_code": 1}, State.FAILED),
        (30, {"exit_code": 3}, State.FAILED),
    ],
)
def test_where_the_platform_has_no_words_for_it_the_end_is_told_by_code_and_time(seconds, result, state):
    """A stage that SIGTERM ended has exit code 4."""
    status = told(seconds, **result)
    assert status.state is state
    assert status.seconds == seconds


def test_the_digest_that_a_tag_was_is_kept():
    run_v2 = pytest.importorskip("google.cloud.run_v2")
    digest = f"docker.io/vllm/vllm-openai@sha256:{'a' * 64}"
    for image, kept in ((digest, digest), ("docker.io/vllm/vllm-openai:v0.33.0", "")):
        template = run_v2.TaskTemplate(containers=[run_v2.Container(image=image)])
        assert job_status(Job("x", "x"), run_v2.Execution(template=template), []).image == kept
