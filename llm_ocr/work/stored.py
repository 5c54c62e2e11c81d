"""Settings that stay with a workspace, so that later commands need not repeat them. Never a secret."""

from collections.abc import Mapping
from typing import Any

from llm_ocr.errors import LlmOcrError
from llm_ocr.work.workspace import Workspace

#: What the workspace remembers of the command that made it.
REMEMBERED = ("engine", "text_layer", "image_size", "image_format", "renderer", "pages_per_unit")


def to_remember(settings: object, *, engine: str) -> dict[str, Any]:
    """The remembered ones among a command's settings; those left open are left out."""
    found = {name: getattr(settings, name, None) for name in REMEMBERED} | {"engine": engine}
    return {name: value for name, value in found.items() if value not in (None, "auto")}


def remembered(url: str) -> Mapping[str, Any]:
    """What the workspace at `url` remembers; nothing when there is none, or it cannot be read: the command says so."""
    try:
        with Workspace.open(url) as workspace:
            return {name: value for name, value in workspace.settings.items() if name in REMEMBERED}
    except LlmOcrError:
        return {}
