"""Provide the embedded engine to the core, as the object of an entry point. This module imports nothing large."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llm_ocr.errors import MissingExtra

if TYPE_CHECKING:
    from llm_ocr.checks import Check
    from llm_ocr.engines import ContentTools, EngineOptions, FigureReader, LanguageModel, LocalReader
    from llm_ocr.engines.regions.detection import Detector
    from llm_ocr.plugins import PageEngine


class EmbeddedEngine:
    """`PageEngine` of PDF text and OCR on the CPU."""

    page_text = "llm_ocr_cpu.pdf_text:page_content"

    @property
    def result_version(self) -> int:
        from llm_ocr_cpu.reader import RESULT_VERSION

        return RESULT_VERSION

    def missing(self) -> MissingExtra | None:
        from llm_ocr_cpu.ocr.models import require_models

        try:
            require_models()
        except MissingExtra as missing:
            return missing
        return None

    def checks(self) -> "Sequence[Check]":
        from llm_ocr_cpu.parts import layout_model, ocr, openvino

        return ocr(), layout_model(), openvino()

    def check_language(self, language: str) -> None:
        from llm_ocr_cpu.ocr.languages import check_language

        check_language(language)

    def language_model(
        self, language: str, cache: Path, *, say: Callable[[str], object], stopped: Callable[[], bool]
    ) -> "LanguageModel":
        from llm_ocr_cpu.ocr import languages
        from llm_ocr_cpu.ocr.models import require_models

        require_models()
        return languages.language_model(language, cache, languages.SOURCE, say=say, stopped=stopped)

    def page_reader(self, options: "EngineOptions") -> "LocalReader":
        from llm_ocr_cpu.reader import EmbeddedReader

        return EmbeddedReader(options)

    def figure_reader(
        self, mode: str = "describe", prompt: str = "", pages: "LocalReader | None" = None
    ) -> "FigureReader":
        from llm_ocr_cpu.describe import EmbeddedFigureReader

        if pages is None:
            return EmbeddedFigureReader(mode, prompt)
        return EmbeddedFigureReader(mode, prompt, pages.read_figure, pages.ocr_models())

    def detector(self, pages: "LocalReader", tools: "ContentTools") -> "Detector":
        from llm_ocr_cpu.detector import EmbeddedDetector

        return EmbeddedDetector(pages, tools, workers=pages.workers)


ENGINE: "PageEngine" = EmbeddedEngine()
