"""What a plan for SageMaker refuses, names as missing and never holds; its bodies against SageMaker's own model."""

import gzip
import json
from pathlib import Path

import pytest
from cases_sagemaker import IMAGE, ROLE, cases, spec

from llm_ocr.errors import UsageError
from llm_ocr.launch.sagemaker import SageMaker
from llm_ocr.launch.sagemaker.requests import SECRETS, gpus_of, has_local_disks

PLAN = SageMaker().plan


def body(job):
    (request,) = PLAN(job).requests
    return request.body


@pytest.fixture(scope="module")
def model():
    return pytest.importorskip("botocore.session").get_session().get_service_model("sagemaker")


#: Jobs at SageMaker's limits, and on machines without a GPU.
LARGEST = {
    "longest variable": spec(workspace="s3://bucket/" + "x" * 500),
    "most machines and time": spec(shards=500, time_limit=2_419_200),
    "spot without a GPU": spec(hardware="ml.t3.medium", options={"spot": True}),
}


@pytest.mark.parametrize("job", [pytest.param(job, id=name) for name, job in [*cases(), *LARGEST.items()]])
def test_the_body_is_what_sagemaker_takes(model, job):
    """By botocore's own validation, patterns and lengths included; placeholders of roles apart."""
    from botocore.validate import ParamValidator

    (request,) = PLAN(job).requests
    operation = "".join(word.capitalize() for word in request.call.split("_"))
    shape = model.operation_model(operation).input_shape
    filled = json.loads(json.dumps(request.body).replace('"<role>"', f'"{ROLE}"'))
    report = ParamValidator().validate(filled, shape)
    assert not report.has_errors(), report.generate_report()


def test_the_machines_are_those_that_sagemaker_and_ec2_know(model):
    """GPUs and disks are EC2's own numbers."""
    moto = pytest.importorskip("moto")
    file = Path(moto.__file__).parent / "ec2" / "resources" / "instance_types.json.gz"
    known = json.loads(gzip.decompress(file.read_bytes()))
    for name in model.shape_for("TrainingInstanceType").enum:
        found = known.get(name.removeprefix("ml."))
        if found is None:
            assert gpus_of(name) in (None, 0), name
        elif not name.startswith("ml.trn"):
            assert gpus_of(name) == sum(one["Count"] for one in found.get("GpuInfo", {}).get("Gpus", ())), name
            assert has_local_disks(name) == bool(found.get("InstanceStorageSupported")), name


@pytest.mark.parametrize("name", ["g6e.2xlarge", "ml.g6e", "ml.g6e.3xlarge", "ml.p3.2xlarge", "", "ml..", "a100-large"])
def test_gpus_of_other_names_are_not_known(name):
    assert gpus_of(name) is None


def test_a_spot_job_may_wait_as_long_as_it_may_run():
    limits = body(spec(options={"spot": True}, time_limit=3600))["StoppingCondition"]
    assert limits == {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 7200}
    longest = body(spec(options={"spot": True}, time_limit=2_419_200))["StoppingCondition"]
    assert longest["MaxWaitTimeInSeconds"] >= longest["MaxRuntimeInSeconds"]


def test_a_workspace_on_another_s3_needs_a_place_at_amazons():
    elsewhere = {"LLM_OCR_WORKSPACE_ENDPOINT": "https://s3.hf.co/me"}
    assert set(PLAN(spec(environment=elsewhere)).missing) == {"<output>"}
    assert not PLAN(spec(environment=elsewhere, options={"training_output": "s3://mine/sagemaker"})).missing


def test_secrets_are_names_only():
    environment = body(spec(secrets={"HF_TOKEN": "", "KEY": "prod/key"}))["Environment"]
    assert environment[SECRETS] == "HF_TOKEN=HF_TOKEN,KEY=prod/key"
    assert environment["AWS_REGION"] == "eu-west-1"  # the image's
    assert "HF_TOKEN" not in environment
    assert SECRETS not in body(spec())["Environment"]


LONG = "s3://bucket/" + "x" * 501


@pytest.mark.parametrize(
    ("job", "named", "hint"),
    [
        (spec(workspace=LONG), "LLM_OCR_WORKSPACE has 513 characters: a job on SageMaker allows 512", "Shorten"),
        (spec(secrets={f"SECRET_{n}": "x" * 60 for n in range(8)}), "LLM_OCR_SECRETS has", "fewer"),
        (spec(environment={f"V{n}": "" for n in range(100)}), "at most 100 variables", ""),
        (spec(environment={"A-B": "1"}), "'A-B'", ""),
        (spec(options={"role": "llm-ocr-job"}), "--role llm-ocr-job", "arn:aws:iam::"),
        (spec(image="ghcr.io/someone/llm-ocr:1"), "only runs images from ECR", "Mirror"),
        (spec(time_limit=2_419_201), "--time-limit 2419201", "the next job continues"),
        (spec(options={"volume_size": 20_000}), "--volume-size", ""),
        (spec(options={"subnet": ["subnet-1"]}), "--security-group", ""),
        (spec(options={"security_group": ["sg-1"]}), "--subnet", ""),
        (spec(options={"subnet": ["s"] * 17, "security_group": ["g"]}), "16 --subnet", ""),
        (spec(options={"training_output": "gs://bucket"}), "--training-output gs://bucket", ""),
        (spec(secrets={"KEY": "a,b"}), "--secret KEY", "not the value"),
    ],
)
def test_what_can_never_work_is_refused_by_its_name(job, named, hint):
    with pytest.raises(UsageError) as error:
        PLAN(job)
    assert named in error.value.args[0]
    assert hint in error.value.hint


@pytest.mark.parametrize(
    "image", [IMAGE, f"{IMAGE.rpartition(':')[0]}@sha256:{'0' * 64}", f"{IMAGE}@sha256:{'a' * 64}"]
)
def test_images_are_named_by_tag_or_digest(image):
    assert body(spec(image=image))["AlgorithmSpecification"]["TrainingImage"] == image


def test_only_stages_with_a_gpu_pull_the_image_with_cuda():
    region = {"region": "us-east-1"}
    images = [
        body(spec(stage, image="", hardware=hardware, options=region))["AlgorithmSpecification"]["TrainingImage"]
        for stage, hardware in [
            ("extract", "ml.g6e.2xlarge"),
            ("extract", "ml.c5.xlarge"),
            ("assemble", "ml.c5.xlarge"),
        ]
    ]
    assert ["-gpu-" in image for image in images] == [True, False, False]
    assert all("-cpu-py312-" in image for image in images[1:])
