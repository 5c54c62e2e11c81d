"""Launches from Python, for example in notebooks."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from llm_ocr.config.fields import lists_settings
from llm_ocr.config.loading import Sources, settings_from, sources_keyword
from llm_ocr.config.models import LaunchSettings
from llm_ocr.launch.launching import Launch, StagePlan, begin, plans

if TYPE_CHECKING:
    from llm_ocr.config.keywords import SubmitKeywords


@lists_settings(LaunchSettings)
def submit(
    platform: str,
    stage: str,
    sources: Sources = (),
    *,
    workspace: str | Path,
    say: Callable[[str], None] = print,
    **settings: "Unpack[SubmitKeywords]",
) -> Launch:
    """Submit a stage, or the whole pipeline, to a platform.

    Of a pipeline, the first stage is submitted at once. The call `wait()` of the result submits the others, or with
    `detach=True` a job on the platform.

    Args:
        platform: The name of the platform, such as `hf-jobs`, `sagemaker`, or `slurm`.
        stage: `extract`, `describe`, `assemble`, `fields`, `repair`, or `pipeline`.
        sources: Files, folders, globs, URLs, lists of paths, or manifests: one or several.
        workspace: The folder, or the s3://, gs://, or hf:// URL.
        say: Receives messages.
        **settings: `help()` lists them; `config` is a file of them. Types: `llm_ocr.config.keywords.SubmitKeywords`.

    Returns:
        The launch. Its `wait()` returns when the stage is done.

    Raises:
        UsageError: A setting is unknown, invalid, or without effect on the platform.
        LaunchError: The platform refuses, with its message.
    """
    terminal = sys.stdout if say is print and sys.stdout.isatty() else None  # false in a notebook
    found = _settings(platform, stage, sources, workspace, settings)
    launch = begin(found, say, terminal)
    if found.detach:
        launch.detach()
    else:
        launch.submit()
    return launch


def dry_run(
    platform: str, stage: str, sources: Sources = (), *, workspace: str | Path, **settings: "Unpack[SubmitKeywords]"
) -> list[StagePlan]:
    """Return exactly what `submit` would send for each stage, without a request."""
    return plans(_settings(platform, stage, sources, workspace, settings))


def _settings(
    platform: str, stage: str, sources: Sources, workspace: str | Path, settings: Mapping[str, object]
) -> LaunchSettings:
    keywords = {"platform": platform, "stage": stage, "workspace": workspace, **settings}
    return settings_from(LaunchSettings, "submit", keywords | sources_keyword(sources))
