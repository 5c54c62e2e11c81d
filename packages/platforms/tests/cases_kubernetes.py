"""Jobs on Kubernetes."""

from collections.abc import Iterator
from typing import Any

from llm_ocr.launch import JobSpec

WORKSPACE = "s3://bucket/run"
LAUNCH = "20260101-000000-abcd"
ENVIRONMENT = {"LLM_OCR_WORKSPACE": WORKSPACE, "LLM_OCR_LAUNCH": LAUNCH}


def spec(stage: str, **more: Any) -> JobSpec:
    """A job as a launch makes it."""
    return JobSpec(stage, WORKSPACE, LAUNCH, environment=ENVIRONMENT, **more)


def cases() -> Iterator[tuple[str, JobSpec]]:
    yield "extract", spec("extract")
    yield "repair", spec("repair")
    yield (
        "spot-shards",
        spec(
            "describe",
            submission=2,
            shards=8,
            hardware="gpu:2",
            secrets={"HF_TOKEN": "", "AWS_ACCESS_KEY_ID": "aws/id", "AWS_SECRET_ACCESS_KEY": "aws"},
            time_limit=7200,
            options={
                "namespace": "ocr",
                "spot": True,
                "node_selector": ["cloud.google.com/gke-accelerator=nvidia-l4"],
                "toleration": ["dedicated=gpu", "burst"],
                "service_account": "ocr",
                "image_pull_secret": "registry",
                "memory": "32Gi",
                "cpu": 6,
            },
        ),
    )
    # Of a pipeline whose other stages need a GPU: it runs on any node.
    sizes = {"memory": "32Gi", "spot": True, "node_selector": ["cloud.google.com/gke-accelerator=nvidia-l4"]}
    yield "assemble", spec("assemble", options=sizes)
    yield "image", spec("extract", hardware="cpu", image="registry.example/llm-ocr:1", options={"wheel": "image"})
