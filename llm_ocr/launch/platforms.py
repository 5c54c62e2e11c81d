"""Launchers by platform name. A launcher's module is imported on first use."""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from llm_ocr.errors import UsageError
from llm_ocr.launch import Launcher
from llm_ocr.launch.refusals import near

#: Platform -> module and class below `llm_ocr.launch`.
PLATFORMS: Mapping[str, str] = MappingProxyType(
    {
        "hf-jobs": "hf_jobs.launcher:HfJobs",
        "sagemaker": "sagemaker.launcher:SageMaker",
        "cloud-run": "cloud_run.launcher:CloudRun",
        "modal": "modal.launcher:Modal",
        "slurm": "slurm.launcher:Slurm",
        "kubernetes": "kubernetes.launcher:Kubernetes",
    }
)


def check_platform(name: str) -> str:
    """Return the name, or raise `UsageError` with a similar one."""
    if name in PLATFORMS:
        return name
    hint = near(name.replace("_", "-").lower(), PLATFORMS, f"Platforms: {', '.join(PLATFORMS)}", n=1, cutoff=0.75)
    raise UsageError(f"unknown platform {name!r}", hint=hint)


def launcher_for(platform: str) -> Launcher:
    """Return the launcher of a platform, without a request."""
    module, _, name = PLATFORMS[check_platform(platform)].partition(":")
    launcher: Launcher = getattr(import_module(f"llm_ocr.launch.{module}"), name)()
    return launcher
