"""The settings of a call from Python: its keywords rank as flags do."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic_settings import BaseSettings

from llm_ocr.errors import UsageError
from llm_ocr.settings.environment import environment
from llm_ocr.settings.fields import settings_of
from llm_ocr.settings.loading import load
from llm_ocr.settings.sources import did_you_mean

M = TypeVar("M", bound=BaseSettings)


def settings_from(model: type[M], call: str, keywords: Mapping[str, Any], stored: Mapping[str, Any] | None = None) -> M:
    """The settings of a call; messages name keywords as they were written. Raises `UsageError`."""
    keywords = dict(keywords)
    config = keywords.pop("config", None)
    known = settings_of(model)
    for name in keywords:
        if name not in known:
            raise UsageError(f"{call} has no setting {name}{did_you_mean(name, tuple(known))}")
    return load(
        model,
        keywords,
        config=Path(config) if config else None,
        environ=environment(),
        dotenv=Path(".env"),
        stored=stored,
        written={name: name for name in keywords},
    ).settings
