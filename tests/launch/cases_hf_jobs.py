"""Jobs on Hugging Face."""

from collections.abc import Iterator
from typing import Any

from llm_ocr.launch import JobSpec

LAUNCH = "20260101-000000-abcd"
WORKSPACE = "hf://buckets/me/scans/run"


def spec(stage: str, workspace: str = WORKSPACE, **more: Any) -> JobSpec:
    environment = {"LLM_OCR_WORKSPACE": workspace, "LLM_OCR_LAUNCH": LAUNCH}
    return JobSpec(stage, workspace, LAUNCH, environment=environment, **more)


def cases() -> Iterator[tuple[str, JobSpec]]:
    yield "extract", spec("extract", image="vllm/vllm-openai@sha256:0123")
    yield "no-image", spec("describe")
    yield "model", spec("extract", options={"hub_model": ["deepseek-ai/DeepSeek-OCR", ""]})
    yield (
        "model-commit",
        spec("extract", options={"hub_model": ["zai-org/GLM-OCR", "e9134f400acad80346162536e043def285fa1022"]}),
    )
    yield "model-image", spec("extract", image="me/ocr:1", options={"hub_model": ["zai-org/GLM-OCR", ""]})
    yield "repair", spec("repair", shards=2)
    yield "no-gpu", spec("extract", hardware="cpu-upgrade")
    yield "assemble", spec("assemble", hardware="cpu-upgrade", options={"namespace": "team"})
    yield (
        "shards",
        spec(
            "describe",
            submission=2,
            shards=2,
            hardware="l40sx1",
            image="vllm/vllm-openai@sha256:0123",
            time_limit=5400,
            secrets={"HF_TOKEN": "TOKEN_OF_JOBS", "LLM_OCR_API_KEY": ""},
            options={"extra": ["detector"]},
        ),
    )
    yield (
        "s3",
        spec(
            "extract",
            "s3://bucket/run",
            image="hf.co/spaces/me/llm-ocr",
            secrets={"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
            options={"wheel": "image"},
        ),
    )
    yield (
        "gcs",
        spec("assemble", "gs://bucket/run", secrets={"GOOGLE_APPLICATION_CREDENTIALS_JSON": ""}),
    )
