"""Jobs on Slurm."""

from collections.abc import Iterator
from typing import Any

from llm_ocr.launch import JobSpec

LAUNCH, WORKSPACE = "20260101-000000-abcd", "/scratch/run"


def spec(stage: str = "extract", *, workspace: str = WORKSPACE, **more: Any) -> JobSpec:
    """A job as a launch makes it."""
    options = {"region": None, "platform_endpoint": None, "partition": None, "slurm_arg": [], "slurm_setup": []}
    environment = {"LLM_OCR_WORKSPACE": workspace, "LLM_OCR_LAUNCH": LAUNCH}
    hardware = "cpu" if stage == "assemble" else "gpu:1"
    values = {"environment": environment, "hardware": hardware, **more}
    return JobSpec(stage, workspace, LAUNCH, **{**values, "options": {**options, **more.get("options", {})}})


def cases() -> Iterator[tuple[str, JobSpec]]:
    yield "extract", spec()
    yield "repair", spec("repair")
    yield "describe", spec("describe", submission=2, shards=100, hardware="gpu:a100:2", time_limit=90000)
    yield "assemble", spec("assemble", options={"partition": "cpu"})
    own = {
        "slurm_arg": ["--account=lab", "--cpus-per-task=16"],
        "slurm_setup": ["module load cuda", "source v/bin/activate"],
    }
    yield "arguments", spec(options={"partition": "gpu", **own})
    secrets = {"HF_TOKEN": "", "AWS_SECRET_ACCESS_KEY": "/home/me/my keys/aws"}
    yield "secrets", spec(secrets=secrets, workspace="/scratch/it's mine")
    yield "image", spec(image="docker://example.org/llm-ocr:0.1.0")
    yield "image-cpu", spec("assemble", image="/images/llm-ocr.sif")
