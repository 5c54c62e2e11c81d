"""Jobs on SageMaker."""

from collections.abc import Iterator
from typing import Any

from llm_ocr.launch import JobSpec

LAUNCH, WORKSPACE = "20260101-000000-abcd", "s3://bucket/run"
ROLE = "arn:aws:iam::123456789012:role/llm-ocr-job"
IMAGE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/llm-ocr:0.1.0"


def spec(stage: str = "extract", workspace: str = WORKSPACE, **more: Any) -> JobSpec:
    """A job as a launch makes it; `options` beside role and region."""
    options = {"region": None, "platform_endpoint": None, "role": ROLE, "spot": False, "volume_size": 100}
    environment = {"LLM_OCR_WORKSPACE": workspace, "LLM_OCR_LAUNCH": LAUNCH, **more.pop("environment", {})}
    values: dict[str, Any] = {
        "hardware": "ml.c5.xlarge" if stage == "assemble" else "ml.g6e.2xlarge",
        "image": IMAGE,
        **more,
        "options": {**options, **more.get("options", {})},
    }
    return JobSpec(stage, workspace, LAUNCH, environment=environment, **values)


def cases() -> Iterator[tuple[str, JobSpec]]:
    yield "extract", spec()
    yield "describe", spec("describe", shards=8, submission=2, time_limit=7200)
    yield "assemble", spec("assemble")
    yield "repair", spec("repair")
    yield "nothing-known", spec(image="", options={"role": None}, secrets={"HF_TOKEN": ""})
    yield "spot", spec(options={"spot": True}, shards=4, time_limit=3600)
    yield "spot-elsewhere", spec(workspace="gs://bucket/run", options={"spot": True, "wheel": "image"})
    yield "stock-image", spec(image="", options={"region": "eu-south-1"})
    yield "large-gpu", spec(hardware="ml.p5.48xlarge", options={"training_output": "s3://mine/sagemaker/"})
    yield (
        "secrets",
        spec(secrets={"HF_TOKEN": "", "LLM_OCR_API_KEY": "prod/llm-ocr/key"}, options={"region": "eu-west-1"}),
    )
    network = {"subnet": ["subnet-1", "subnet-2"], "security_group": ["sg-1"]}
    yield "network", spec("assemble", options={**network, "kms_key": "alias/mine", "volume_size": 500})
    yield "network-spot", spec(options={**network, "kms_key": "alias/mine", "spot": True})
