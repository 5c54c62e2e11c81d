"""Jobs on Beaker."""

from collections.abc import Iterator
from typing import Any

from llm_ocr.launch import JobSpec

LAUNCH, WORKSPACE = "20260101-000000-abcd", "s3://bucket/run"


def spec(stage: str = "extract", **more: Any) -> JobSpec:
    """A job as a launch makes it."""
    options = {"region": None, "platform_endpoint": None, "beaker_workspace": "lab/ocr", "beaker_budget": None}
    options |= {"cluster": [], "priority": "normal", **more.pop("options", {})}
    environment = {"LLM_OCR_WORKSPACE": WORKSPACE, "LLM_OCR_LAUNCH": LAUNCH}
    hardware = "cpu" if stage == "assemble" else "gpu:1"
    values = {"environment": environment, "hardware": hardware, "image": "example.org/llm-ocr:0.1.0", **more}
    return JobSpec(stage, WORKSPACE, LAUNCH, options=options, **values)


def cases() -> Iterator[tuple[str, JobSpec]]:
    yield "extract", spec()
    where = {"cluster": ["lab/a", "lab/b"], "priority": "high", "beaker_budget": "lab/ocr"}
    yield "replicas", spec("describe", submission=2, shards=4, hardware="gpu:2", time_limit=7200, options=where)
    yield "assemble", spec("assemble")
    yield "secrets", spec(secrets={"HF_TOKEN": "", "AWS_SECRET_ACCESS_KEY": "my-aws-key"})
    yield "nothing-known", spec(image="", options={"beaker_workspace": None})
