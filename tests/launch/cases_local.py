"""Jobs on this machine."""

from collections.abc import Iterator

from llm_ocr.launch import JobSpec

ENVIRONMENT = {"LLM_OCR_WORKSPACE": "/data/run", "LLM_OCR_LAUNCH": "20260101-000000-abcd"}


def cases() -> Iterator[tuple[str, JobSpec]]:
    yield "extract", JobSpec("extract", "/data/run", "20260101-000000-abcd", environment=ENVIRONMENT)
    yield (
        "shards",
        JobSpec(
            "describe",
            "/data/run",
            "20260101-000000-abcd",
            submission=2,
            shards=2,
            environment=ENVIRONMENT,
            secrets={"HF_TOKEN": ""},
            time_limit=3600,
        ),
    )
