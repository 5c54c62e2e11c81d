"""Launch from Python, as notebooks do."""

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from llm_ocr.launch.launching import Launch, StagePlan, begin, plans
from llm_ocr.settings.calls import settings_from
from llm_ocr.settings.models import LaunchSettings

if TYPE_CHECKING:
    from llm_ocr.settings.keywords import SubmitKeywords

Sources = str | Path | Iterable[str | Path]


def submit(
    platform: str,
    stage: str,
    sources: Sources = (),
    *,
    workspace: str | Path,
    say: Callable[[str], None] = print,
    **settings: "Unpack[SubmitKeywords]",
) -> Launch:
    """Submit a stage, or `pipeline`, to a platform; `wait()` of the result stays until it is done.

    Keywords are the flags of `llm-ocr launch`. Of a pipeline the first stage is submitted at once, the others by
    `wait()`, or by a job on the platform with `detach=True`. Raises `UsageError`, and `LaunchError` with the platform's
    words.
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
    """Exactly what `submit` would send for each stage. Asks nobody."""
    return plans(_settings(platform, stage, sources, workspace, settings))


def _settings(
    platform: str, stage: str, sources: Sources, workspace: str | Path, settings: Mapping[str, object]
) -> LaunchSettings:
    named = [sources] if isinstance(sources, str | Path) else list(sources)
    keywords: dict[str, object] = {"platform": platform, "stage": stage, "workspace": str(workspace), **settings}
    if named:
        keywords["sources"] = tuple(str(source) for source in named)
    return settings_from(LaunchSettings, "submit", keywords)
