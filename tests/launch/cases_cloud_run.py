"""Jobs on Google Cloud Run."""

from collections.abc import Iterator

from llm_ocr.launch import JobSpec

WORKSPACE = "gs://bucket/run"
LAUNCH = "20260101-000000-abcd"
ENVIRONMENT = {"LLM_OCR_WORKSPACE": WORKSPACE, "LLM_OCR_LAUNCH": LAUNCH}
IMAGE = "us-central1-docker.pkg.dev/my-project/llm-ocr/gpu:1"
PLACE = {"project": "my-project", "region": "us-central1"}


def cases() -> Iterator[tuple[str, JobSpec]]:
    yield "unknowns", JobSpec("extract", WORKSPACE, LAUNCH, environment=ENVIRONMENT)
    yield "extract", JobSpec("extract", WORKSPACE, LAUNCH, image=IMAGE, environment=ENVIRONMENT, options=PLACE)
    yield "repair", JobSpec("repair", WORKSPACE, LAUNCH, image=IMAGE, environment=ENVIRONMENT, options=PLACE)
    yield (
        "describe-shards",
        JobSpec(
            "describe",
            "s3://bucket/run",
            LAUNCH,
            submission=2,
            shards=64,
            hardware="nvidia-rtx-pro-6000",
            image=IMAGE,
            environment={
                **ENVIRONMENT,
                "LLM_OCR_WORKSPACE": "s3://bucket/run",
                "LLM_OCR_WORKSPACE_REGION": "eu-west-1",
            },
            secrets={"HF_TOKEN": "", "AWS_SECRET_ACCESS_KEY": "aws-key:3"},
            time_limit=7200,
            options={**PLACE, "parallelism": 16, "service_account": "ocr@my-project.iam.gserviceaccount.com"},
        ),
    )
    yield (
        "assemble",
        JobSpec("assemble", WORKSPACE, LAUNCH, image=IMAGE, environment=ENVIRONMENT, options=PLACE),
    )
    yield (
        "small",
        JobSpec(
            "extract",
            WORKSPACE,
            LAUNCH,
            image=IMAGE,
            environment=ENVIRONMENT,
            options={**PLACE, "cpu": 4},
            time_limit=600,
        ),
    )
