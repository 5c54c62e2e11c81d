"""What the first line of a run says of its engine."""

import pytest

from llm_ocr.config.models import RunSettings
from llm_ocr.engines.embedded.ocr import models
from llm_ocr.stages import Silent
from llm_ocr.stages.execute import execute


class Said(Exception):
    """Ends the run with what it said first."""


class Stopping(Silent):
    def say(self, message: str) -> None:
        raise Said(message)


@pytest.mark.parametrize(("installed", "says"), [(True, "text layer and OCR"), (False, "OCR is not installed; pip")])
def test_a_run_says_first_whether_it_can_read_scans(installed, says, examples, tmp_path, monkeypatch):
    monkeypatch.setattr(models, "find_models", lambda: object() if installed else None)
    settings = RunSettings(sources=(str(examples / "paper.pdf"),), engine="embedded", workspace=str(tmp_path / "w"))
    with pytest.raises(Said, match=says):
        execute("run", settings, Stopping())
