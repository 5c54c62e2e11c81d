"""What is sent to Hugging Face Jobs for a stage: each request is a method of `huggingface_hub.HfApi` and its arguments.

Placeholders for what is only known when a job is submitted: `<namespace>` and `<endpoint>` (the account of the token,
and its Hub), `<secret NAME>`, and those of `llm_ocr.launch.library`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from llm_ocr.launch import GPU_STAGES, JobSpec, Plan, Request
from llm_ocr.launch.library import CPU_IMAGE, GPU_IMAGE, installs, job_command, library_notes

PLATFORM = "hf-jobs"
#: `llm-ocr estimate` puts an L40S below an A100 in cost per page.
HARDWARE: Mapping[str, str] = {
    "extract": "l40sx1",
    "describe": "l40sx1",
    "assemble": "cpu-upgrade",
    "pipeline": "cpu-basic",
}

#: Flavor -> GPUs, as huggingface_hub 2.4.0 lists them (`JobHardware`); what the Hub offers now is asked before a job.
GPUS: Mapping[str, int] = MappingProxyType(
    {
        **{"cpu-basic": 0, "cpu-upgrade": 0, "cpu-performance": 0, "cpu-xl": 0},
        **{"t4-small": 1, "t4-medium": 1, "l4x1": 1, "l4x4": 4, "l40sx1": 1, "l40sx4": 4, "l40sx8": 8},
        **{"a10g-small": 1, "a10g-large": 1, "a10g-largex2": 2, "a10g-largex4": 4},
        **{"a100-large": 1, "a100x4": 4, "a100x8": 8, "h200": 1, "h200x2": 2, "h200x4": 4, "h200x8": 8},
        **{"rtx-pro-6000": 1, "rtx-pro-6000x2": 2, "rtx-pro-6000x4": 4, "rtx-pro-6000x8": 8},
    }
)
#: Labels that all jobs of a submission share.
OWN_LABELS = ("launch", "stage", "submission")
#: Seconds; the Hub's own default is half an hour, in which a large model is hardly loaded.
TIME_LIMIT = 3 * 3600


def plan_of(spec: JobSpec) -> Plan:
    """Pure. Raises `UsageError`."""
    image = spec.image or (GPU_IMAGE if _gpus(spec) else CPU_IMAGE)
    requests = [Request("run_job", _job(spec, image, shard)) for shard in range(spec.shards)]
    return Plan(PLATFORM, spec, tuple(requests), notes=_notes(spec))


def namespace_of(spec: JobSpec) -> str:
    """Who pays; a placeholder for the token's own account."""
    return spec.options.get("namespace") or "<namespace>"


def labels_of(spec: JobSpec) -> dict[str, str]:
    """By which all jobs of a submission are found."""
    return dict(zip(OWN_LABELS, (spec.launch, spec.stage, str(spec.submission)), strict=True))


def secrets_of(spec: JobSpec) -> dict[str, str]:
    """Variables that jobs get as secrets -> the variable of this machine that holds the value."""
    token = {"HF_TOKEN": "HF_TOKEN"} if spec.workspace.startswith("hf:") else {}
    return {**token, **{name: where or name for name, where in spec.secrets.items()}}


def _gpus(spec: JobSpec) -> int:
    return GPUS.get(spec.hardware or HARDWARE[spec.stage], int(spec.stage in GPU_STAGES))


def _job(spec: JobSpec, image: str, shard: int) -> dict[str, Any]:
    limit = spec.time_limit or TIME_LIMIT
    numbered = {"LLM_OCR_SHARD_INDEX": str(shard), "LLM_OCR_SHARD_COUNT": str(spec.shards)}
    command = job_command(spec, gpus=_gpus(spec))
    return {
        "image": image,
        # Images need not have a `python`.
        "command": command if installs(spec) else ["python3", *command[1:]],
        "env": {**spec.environment, "HF_ENDPOINT": "<endpoint>", **(numbered if spec.shards > 1 else {})},
        "secrets": {name: f"<secret {name}>" for name in secrets_of(spec)},
        "flavor": spec.hardware or HARDWARE[spec.stage],
        "timeout": limit,
        # The launch itself submits again, and only while that brings the run forward.
        "attempts": 1,
        "name": f"{spec.name}-{shard}",
        "labels": {**labels_of(spec), "shard": str(shard), "limit": str(limit)},
        "namespace": namespace_of(spec),
    }


def _notes(spec: JobSpec) -> tuple[str, ...]:
    notes = library_notes(spec)
    if namespace_of(spec) == "<namespace>":
        notes.append("<namespace> is the account of the token")
    named = ", ".join(name if name == where else f"{name} (from {where})" for name, where in secrets_of(spec).items())
    if named:
        notes.append(f"secrets of this machine, which the Hub encrypts: {named}")
    return tuple(notes)
