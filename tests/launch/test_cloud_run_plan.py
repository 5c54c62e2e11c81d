"""Google Cloud Run: what is planned, and what is refused before anybody is asked."""

import json

import pytest
from cases_cloud_run import cases

from llm_ocr.errors import UsageError
from llm_ocr.launch import JobSpec
from llm_ocr.launch.cloud_run.launcher import CloudRun

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


def test_what_is_not_known_is_a_named_placeholder():
    made = plan()
    assert set(made.missing) == {"<region>"}
    assert all(name in json.dumps(made.requests[0].body) for name in made.missing)
    # The project is the credentials', which nobody has asked yet.
    assert made.requests[1].body["name"] == "projects/<project>/locations/<region>/jobs/llm-ocr-extract-nvidia-l4"


def test_an_l4_whose_driver_is_older_than_the_stock_image_loads_the_compatibility_libraries():
    compatible = {"name": "VLLM_ENABLE_CUDA_COMPATIBILITY", "value": "1"}
    made = plan("extract")
    (container,) = task(made)["containers"]
    assert (container["image"], container["env"]) == ("docker.io/vllm/vllm-openai:v0.33.0", [compatible])
    assert any("driver for CUDA 12.2" in note for note in made.notes)
    for other in (plan(hardware="nvidia-rtx-pro-6000"), plan("assemble"), plan(image="mine/vllm:cu129")):
        assert "env" not in task(other)["containers"][0]


def test_each_stage_gets_a_machine_that_fits():
    gpu, cpu = task(plan("describe")), task(plan("assemble"))
    assert gpu["containers"][0]["resources"]["limits"] == {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "1"}
    assert (gpu["nodeSelector"], gpu["gpuZonalRedundancyDisabled"]) == ({"accelerator": "nvidia-l4"}, True)
    assert gpu["timeout"] == "3600s"
    assert cpu["containers"][0]["resources"]["limits"] == {"cpu": "2", "memory": "4Gi"}
    assert "nodeSelector" not in cpu


@pytest.mark.parametrize(
    ("options", "limits"),
    [({"cpu": 4}, ("4", "16Gi")), ({"memory": "16Gi"}, ("8", "16Gi")), ({"cpu": 6, "memory": "20Gi"}, ("6", "20Gi"))],
)
def test_cores_and_memory_may_be_said(options, limits):
    found = task(plan(options=options))["containers"][0]["resources"]["limits"]
    assert (found["cpu"], found["memory"]) == limits


def test_assemble_in_a_pipeline_does_not_need_the_size_of_the_gpu_stages():
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


def test_more_than_an_hour_on_a_gpu_is_said_to_be_a_preview():
    assert any("preview" in note for note in plan(time_limit=7200).notes)
    assert not any("preview" in note for note in plan(time_limit=3600).notes)
