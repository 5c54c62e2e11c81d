"""Google Cloud Run: what is planned, and what is refused before anybody is asked."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from cases_cloud_run import cases

from llm_ocr.errors import UsageError
from llm_ocr.launch import Job, JobSpec, State
from llm_ocr.launch.cloud_run import CloudRun, job_status

CASES = dict(cases())


def plan(stage="extract", **more):
    return CloudRun().plan(JobSpec(stage, "gs://bucket/run", "20260101-000000-abcd", **more))


def task(made):
    return made.requests[0].body["job"]["template"]["template"]


@pytest.mark.parametrize("name", CASES)
def test_google_knows_every_field_that_is_sent(name):
    """Google's own messages take the bodies, and nothing of them is lost."""
    run_v2 = pytest.importorskip("google.cloud.run_v2")
    patch, run = CloudRun().plan(CASES[name]).requests
    for kind, body in ((run_v2.UpdateJobRequest, patch.body), (run_v2.RunJobRequest, run.body)):
        message = kind.from_json(json.dumps(body), ignore_unknown_fields=False)
        back = json.loads(
            kind.to_json(message, always_print_fields_with_no_presence=False, use_integers_for_enums=False)
        )
        assert back == body, kind


def test_l4_with_an_older_driver_loads_compatibility_libraries():
    compatible = {"name": "VLLM_ENABLE_CUDA_COMPATIBILITY", "value": "1"}
    made = plan("extract")
    (container,) = task(made)["containers"]
    assert (container["image"], container["env"]) == ("docker.io/vllm/vllm-openai:v0.33.0", [compatible])
    assert any("driver for CUDA 12.2" in note for note in made.notes)
    for other in (plan(hardware="nvidia-rtx-pro-6000"), plan("assemble"), plan(image="mine/vllm:cu129")):
        assert "env" not in task(other)["containers"][0]


@pytest.mark.parametrize(
    ("options", "limits"),
    [({"cpu": 4}, ("4", "16Gi")), ({"memory": "16Gi"}, ("8", "16Gi")), ({"cpu": 6, "memory": "20Gi"}, ("6", "20Gi"))],
)
def test_cores_and_memory_may_be_said(options, limits):
    found = task(plan(options=options))["containers"][0]["resources"]["limits"]
    assert (found["cpu"], found["memory"]) == limits


def test_assemble_in_a_pipeline_does_not_need_gpu_stage_size():
    large = {"cpu": 22, "memory": "96Gi"}
    plan(hardware="nvidia-rtx-pro-6000", options=large)
    assert task(plan("assemble", options=large))["containers"][0]["resources"]["limits"] == {
        "cpu": "2",
        "memory": "4Gi",
    }


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"hardware": "nvidia-l40"}, "no hardware 'nvidia-l40'\nDid you mean nvidia-l4"),
        ({"options": {"cpu": 2}}, "nvidia-l4 needs at least 4 cores and 16Gi, not 2 cores"),
        ({"options": {"memory": "8Gi"}}, "needs at least 4 cores and 16Gi, not 8 cores and 8Gi"),
        ({"options": {"cpu": 4, "memory": "32Gi"}}, "4 cores can have at most 16Gi, not 32Gi\nUse --cpu 8"),
        ({"options": {"cpu": 5}}, "--cpu 5: must be one of 1, 2, 4, 6, 8"),
        ({"options": {"memory": "32GB"}}, "--memory 32GB: must be a number with Gi or Mi"),
        ({"hardware": "nvidia-rtx-pro-6000", "options": {"cpu": 8}}, "needs at least 20 cores and 80Gi"),
        ({"shards": 10_001}, "at most 10000 tasks"),
        ({"time_limit": 13 * 3600}, "with GPU ends after 12 hours"),
        ({"hardware": "cpu", "time_limit": 169 * 3600}, "without GPU ends after 168 hours"),
        ({"secrets": {"HF_TOKEN": "a b"}}, "'a b' is not a valid name in Secret Manager"),
        ({"options": {"platform_endpoint": "http://example.com"}}, "must be an https URL, or http on this machine"),
    ],
)
def test_what_can_never_work_is_refused(more, message):
    with pytest.raises(UsageError) as raised:
        plan(**more)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("where", "reference"),
    [
        ("", {"secret": "HF_TOKEN", "version": "latest"}),
        ("hub", {"secret": "hub", "version": "latest"}),
        ("hub:7", {"secret": "hub", "version": "7"}),
        ("projects/p/secrets/hub", {"secret": "projects/p/secrets/hub", "version": "latest"}),
        ("projects/p/secrets/hub/versions/7", {"secret": "projects/p/secrets/hub", "version": "7"}),
    ],
)
def test_a_secret_is_named_and_never_sent(where, reference):
    made = task(plan("assemble", secrets={"HF_TOKEN": where}))
    assert made["containers"][0]["env"] == [{"name": "HF_TOKEN", "valueSource": {"secretKeyRef": reference}}]


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
def test_end_without_platform_reason_follows_from_code_and_time(seconds, result, state):
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
