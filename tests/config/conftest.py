"""How tests load settings: nothing from the machine that runs them."""

from pathlib import Path
from typing import Any

import pytest

from llm_ocr.config.loading import Loaded, load
from llm_ocr.config.models import RunSettings


@pytest.fixture
def loaded(tmp_path: Path):
    """Load settings with only what the test gives; `.env` and configuration are given as text."""

    def from_given(
        model: Any = RunSettings,
        flags: dict[str, Any] | None = None,
        environ: dict[str, str] | None = None,
        dotenv: str | None = None,
        config: str | None = None,
        suffix: str = ".toml",
        **more: Any,
    ) -> Loaded[Any]:
        env_file, config_file = tmp_path / ".env", tmp_path / f"conf{suffix}"
        if dotenv is not None:
            env_file.write_text(dotenv, encoding="utf-8")
        if config is not None:
            config_file.write_text(config, encoding="utf-8")
        return load(
            model,
            flags or {},
            config=config_file if config is not None else None,
            environ=environ or {},
            dotenv=env_file,
            **more,
        )

    return from_given
