"""Jobs on RunPod."""

from collections.abc import Iterator
from typing import Any

from llm_ocr.launch import JobSpec

LAUNCH, WORKSPACE = "20260101-000000-abcd", "s3://bucket/run"


def spec(stage: str = "extract", **more: Any) -> JobSpec:
    """A job as a launch makes it."""
    known = {"runpod_endpoint": "abc123", "runpod_cpu_endpoint": None, "region": None, "platform_endpoint": None}
    options = {**known, **more.pop("options", {})}
    environment = {"LLM_OCR_WORKSPACE": WORKSPACE, "LLM_OCR_LAUNCH": LAUNCH, **more.pop("environment", {})}
    values = {"environment": environment, "hardware": "endpoint" if stage == "assemble" else "gpu", **more}
    return JobSpec(stage, WORKSPACE, LAUNCH, options=options, **values)


def cases() -> Iterator[tuple[str, JobSpec]]:
    yield "extract", spec()
    reached = {"LLM_OCR_WORKSPACE_ENDPOINT": "https://s3.example.org", "LLM_OCR_WORKSPACE_REGION": "eu-1"}
    yield "shards", spec("describe", submission=2, shards=3, time_limit=7200, environment=reached)
    yield "assemble", spec("assemble", options={"runpod_cpu_endpoint": "cpu456"})
    yield "secrets", spec(secrets={"HF_TOKEN": "", "LLM_OCR_SERVER_KEY": "my-key"}, hardware="NVIDIA A40")
    yield "nothing-known", spec(options={"runpod_endpoint": None})
    yield "nothing-known-cpu", spec("assemble", options={"runpod_endpoint": None})
