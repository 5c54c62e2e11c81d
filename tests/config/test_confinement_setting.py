"""LLM_OCR_CONFINEMENT reaches every process that opens documents, and changes no key."""

from llm_ocr.config.fields import command_models
from llm_ocr.config.loading import settings_from
from llm_ocr.config.models import RunSettings
from llm_ocr.documents.rendering import Renderer
from llm_ocr.stages.runtime import embedded_reader, render_options


def test_the_setting_reaches_the_workers_and_is_in_no_key(monkeypatch):
    limits, keys = [], []
    for value in ("auto", "off"):
        monkeypatch.setenv("LLM_OCR_CONFINEMENT", value)
        settings = settings_from(RunSettings, "run", {"sources": ("a.pdf",)})
        renderer, reader = Renderer(render_options(settings, ())), embedded_reader(settings)
        limits.append([part._pool.limits.confined for part in (renderer, reader)])
        keys.append((renderer.identity(), reader.identity()))
    assert limits == [[True, True], [False, False]]
    assert keys[0] == keys[1]


def test_every_command_that_opens_documents_has_the_setting():
    having = {model.__name__.removesuffix("Settings").lower() for model in command_models()
              if "confinement" in model.model_fields}  # fmt: skip
    assert {"run", "planonly", "extract", "describe", "retry", "estimate", "launch", "doctor"} <= having
