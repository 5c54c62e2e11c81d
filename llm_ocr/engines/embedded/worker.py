"""The reader's worker process: `python -m llm_ocr.engines.embedded.worker`."""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from llm_ocr.documents.page_wire import image_from_wire, page_from_wire
from llm_ocr.engines.embedded.attempt_wire import attempt_to_wire
from llm_ocr.engines.embedded.reading import read_figure, read_page
from llm_ocr.errors import MissingExtra, PageFailure
from llm_ocr.processes.worker import serve
from llm_ocr.types import Reason

if TYPE_CHECKING:
    from llm_ocr.engines.embedded.ocr import Recogniser


@cache
def _recogniser() -> "Recogniser":
    """Loaded when the first page needs it: pages with a true text layer never do."""
    from llm_ocr.engines.embedded.ocr import Recogniser

    try:
        return Recogniser()
    except MissingExtra as missing:
        raise PageFailure(Reason.OCR_NOT_INSTALLED, missing.hint or str(missing)) from missing


def _read(payload: Mapping[str, Any]) -> dict[str, Any]:
    attempt = read_page(page_from_wire(payload["page"]), _recogniser, text_layer=payload["text_layer"])
    return attempt_to_wire(attempt)


def _read_figure(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {"inside": read_figure(image_from_wire(payload["image"]), _recogniser)}


if __name__ == "__main__":
    serve({"read": _read, "read_figure": _read_figure})
