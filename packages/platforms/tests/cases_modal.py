"""Jobs on Modal."""

from collections.abc import Iterator
from typing import Any

from llm_ocr.launch import JobSpec

LAUNCH, WORKSPACE = "20260101-000000-abcd", "s3://bucket/run"


def spec(stage: str = "extract", **more: Any) -> JobSpec:
    """A job as a launch makes it; `options` beside the app's name."""
    options = {"region": None, "platform_endpoint": None, "modal_app": "llm-ocr", **more.pop("options", {})}
    environment = {"LLM_OCR_WORKSPACE": WORKSPACE, "LLM_OCR_LAUNCH": LAUNCH}
    values = {"environment": environment, "hardware": "cpu" if stage == "assemble" else "L40S", **more}
    return JobSpec(stage, WORKSPACE, LAUNCH, options=options, **values)


def cases() -> Iterator[tuple[str, JobSpec]]:
    yield "extract", spec()
    yield "describe", spec("describe", submission=2, shards=2, hardware="H100:2", time_limit=7200)
    yield "assemble", spec("assemble")
    yield "repair", spec("repair")
    yield "secrets", spec(secrets={"HF_TOKEN": "", "AWS_SECRET_ACCESS_KEY": "aws"}, options={"region": "us-east"})
    yield "elsewhere", spec(options={"modal_app": "mine", "platform_endpoint": "http://127.0.0.1:1"})
