"""Plugin of OCRmyPDF: a model on a server, or the CPU engine, reads the pages.

    ocrmypdf --plugin llm_ocr_ocrmypdf --llm-ocr-server-url http://127.0.0.1:8000/v1 in.pdf out.pdf

The hooks are those of `ocrmypdf.pluginspec`, version 17. Tesseract is neither needed nor used.
"""

from argparse import ArgumentParser
from collections.abc import Set
from pathlib import Path

from ocrmypdf import BadArgsError, OcrEngine, OcrOptions, OrientationConfidence, hookimpl
from ocrmypdf.builtin_plugins.tesseract_ocr import TesseractOptions
from ocrmypdf.helpers import available_cpu_count
from pluggy import PluginManager
from pydantic import BaseModel

from llm_ocr.workspace import library_version
from llm_ocr_ocrmypdf.reading import PageReader, page_reader
from llm_ocr_outputs.exports.hocr_alto import hocr_document, plain_text


class PluginOptions(BaseModel):
    """Options of the plugin, which OCRmyPDF fills from `--llm-ocr-*`."""

    server_url: list[str] = []
    model: str | None = None
    config: str | None = None


@hookimpl
def initialize(plugin_manager: PluginManager) -> None:
    """Remove OCRmyPDF's plugin for Tesseract, which requires the program."""
    plugin_manager.set_blocked("ocrmypdf.builtin_plugins.tesseract_ocr")


@hookimpl
def register_options() -> dict[str, type[BaseModel]]:
    """Return the models of the options. OCRmyPDF reads those of Tesseract also without its plugin."""
    return {"llm_ocr": PluginOptions, "tesseract": TesseractOptions}


@hookimpl
def add_options(parser: ArgumentParser) -> None:
    """Add the options to the command line."""
    group = parser.add_argument_group("llm-ocr", "Settings of llm-ocr. Its LLM_OCR_* variables apply as well")
    url = "Server of a model, such as http://127.0.0.1:8000/v1 (repeatable). Without one, the CPU engine reads"
    group.add_argument("--llm-ocr-server-url", action="append", default=[], metavar="URL", help=url)
    group.add_argument("--llm-ocr-model", metavar="NAME", help="Model of the server, if it has several")
    group.add_argument("--llm-ocr-config", metavar="FILE", help="File with other settings of llm-ocr")


@hookimpl
def check_options(options: OcrOptions) -> None:
    """Raise `BadArgsError` for options that contradict each other, and for invalid settings."""
    if options.pdf_renderer == "sandwich":
        raise BadArgsError("--pdf-renderer sandwich needs Tesseract: llm_ocr_ocrmypdf works with the default, fpdf2")
    if options.ocr_engine == "tesseract":
        raise BadArgsError("--ocr-engine tesseract contradicts --plugin llm_ocr_ocrmypdf: remove one of them")
    if not options.use_threads:
        raise BadArgsError("--no-use-threads is not possible: all pages of a run are read in one session")
    if options.ocr_engine != "none":
        _reader(options)


@hookimpl
def get_ocr_engine(options: OcrOptions | None) -> OcrEngine | None:
    """Return the engine, unless OCR is not wanted."""
    return None if options is not None and options.ocr_engine == "none" else LlmOcrEngine()


def _reader(options: OcrOptions) -> PageReader:
    chosen: PluginOptions = options.llm_ocr
    return page_reader(tuple(chosen.server_url), chosen.model, chosen.config, options.jobs or available_cpu_count())


class LlmOcrEngine(OcrEngine):
    """Engine that reads page images. OCRmyPDF calls it from several threads."""

    @staticmethod
    def version() -> str:
        return library_version()

    def __str__(self) -> str:
        return f"llm-ocr {library_version()}"

    @staticmethod
    def creator_tag(options: OcrOptions) -> str:
        return str(LlmOcrEngine())

    @staticmethod
    def languages(options: OcrOptions) -> Set[str]:
        """Return no languages, so that OCRmyPDF accepts any. The readers need none."""
        return frozenset()

    @staticmethod
    def get_orientation(input_file: Path, options: OcrOptions) -> OrientationConfidence:
        """Return the counterclockwise turn that makes the page upright. A confidence of 15 is very confident."""
        return OrientationConfidence(-_reader(options).orientation(input_file) % 360, confidence=20.0)

    @staticmethod
    def get_deskew(input_file: Path, options: OcrOptions) -> float:
        """Return the counterclockwise turn that levels the lines."""
        lines = _reader(options).lines(input_file)
        return lines.skew if lines else 0.0

    @staticmethod
    def generate_hocr(input_file: Path, output_hocr: Path, output_text: Path, options: OcrOptions) -> None:
        page = _reader(options).read(input_file)
        output_hocr.write_bytes(hocr_document(input_file.name, [page]))
        output_text.write_text(plain_text(page), "utf-8")

    @staticmethod
    def generate_pdf(input_file: Path, output_pdf: Path, output_text: Path, options: OcrOptions) -> None:
        raise BadArgsError("--pdf-renderer sandwich needs Tesseract")  # no other renderer calls this
