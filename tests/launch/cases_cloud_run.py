"""Jobs on Google Cloud Run."""

from collections.abc import Iterator
from typing import Any

from llm_ocr.launch import JobSpec

WORKSPACE = "gs://bucket/run"
LAUNCH = "20260101-000000-abcd"
ENVIRONMENT = {"LLM_OCR_WORKSPACE": WORKSPACE, "LLM_OCR_LAUNCH": LAUNCH}
IMAGE = "us-central1-docker.pkg.dev/my-project/llm-ocr/gpu:1"
PLACE = {"project": "my-project", "region": "us-central1"}


def spec(stage: str, workspace: str = WORKSPACE, **more: Any) -> JobSpec:
    """A job as a launch makes it, with an image."""
    return JobSpec(stage, workspace, LAUNCH, **{"image": IMAGE, "environment": ENVIRONMENT, "options": PLACE, **more})


def cases() -> Iterator[tuple[str, JobSpec]]:
    yield "unknowns", spec("extract", image="", options={})
    yield "extract", spec("extract")
    yield "repair", spec("repair")
    elsewhere = {"LLM_OCR_WORKSPACE": "s3://bucket/run", "LLM_OCR_WORKSPACE_REGION": "eu-west-1"}
    yield (
        "describe-shards",
        spec(
            "describe",
            "s3://bucket/run",
            submission=2,
            shards=64,
            hardware="nvidia-rtx-pro-6000",
            environment={**ENVIRONMENT, **elsewhere},
            secrets={"HF_TOKEN": "", "AWS_SECRET_ACCESS_KEY": "aws-key:3"},
            time_limit=7200,
            options={**PLACE, "parallelism": 16, "service_account": "ocr@my-project.iam.gserviceaccount.com"},
        ),
    )
    yield "assemble", spec("assemble")
    yield "small", spec("extract", options={**PLACE, "cpu": 4}, time_limit=600)
