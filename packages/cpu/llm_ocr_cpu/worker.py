"""Run the reader's worker process: `python -m llm_ocr_cpu.worker`."""

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from llm_ocr.documents.page_wire import from_wire, to_wire
from llm_ocr.engines.trace import collected, decisions_to_wire
from llm_ocr.errors import MissingExtra, PageFailure
from llm_ocr.sandbox.memory import give_back_memory
from llm_ocr.sandbox.worker import Handler, serve
from llm_ocr.types import EncodedImage, Page, Reason
from llm_ocr_cpu import layout_model
from llm_ocr_cpu.inspection import inspect_page, ocr_text, orientation, text_of
from llm_ocr_cpu.ocr.models import RecogniserModel
from llm_ocr_cpu.page import read_figure, read_page, read_text_layer

if TYPE_CHECKING:
    from llm_ocr_cpu.ocr import Recogniser


#: Recognizer of another language, set by the first request.
_language: list[RecogniserModel] = []


@cache
def _recogniser() -> "Recogniser":
    """Return the recognizer, loaded at its first use: pages with a true text layer do not need it."""
    from llm_ocr_cpu.ocr import Recogniser

    try:
        loaded = Recogniser(*_language)
    except MissingExtra as missing:
        raise PageFailure(Reason.OCR_NOT_INSTALLED, missing.hint or str(missing)) from missing
    give_back_memory()  # the model files as read: 15 to 20 MB
    return loaded


def _with_language(handler: Handler) -> Handler:
    """Return the handler; before its first request, it keeps the files of the recognizer of another language."""

    def handle(payload: Mapping[str, Any]) -> Mapping[str, Any]:
        if payload.get("files") and not _language:
            # Other processes use the same file offsets.
            model, *dictionary = (os.pread(file, os.fstat(file).st_size, 0) for file in payload["files"])
            _language.append(RecogniserModel(model, "".join(text.decode() for text in dictionary)))
        return handler(payload)

    return handle


def _read(payload: Mapping[str, Any]) -> dict[str, Any]:
    if not payload.get("trace"):
        return _attempt(payload)
    with collected() as decisions:
        attempt = _attempt(payload)
    return {**attempt, "decisions": decisions_to_wire(decisions)}


def _attempt(payload: Mapping[str, Any]) -> dict[str, Any]:
    page = from_wire(Page, payload["page"])
    if not payload["ocr"]:
        return {"attempt": to_wire(read_text_layer(page))}
    way = {"text_layer": payload["text_layer"], "layout_model": payload["layout_model"]}
    attempt = read_page(page, _recogniser, **way)
    answer = {"attempt": to_wire(attempt if payload["with_ocr"] else replace(attempt, ocr=None))}
    return {**answer, "layout_model_fault": layout_model.load_faults[0]} if layout_model.load_faults else answer


def _read_figure(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {"inside": read_figure(from_wire(EncodedImage, payload["image"]), _recogniser)}


def _ocr_text(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {"ocr": to_wire(ocr_text(from_wire(EncodedImage, payload["image"]), _recogniser))}


def _inspect(payload: Mapping[str, Any]) -> dict[str, Any]:
    seen = inspect_page(from_wire(Page, payload["page"]), _recogniser, hinted=payload["hinted"])
    told = {"digital": seen.digital, "detail": seen.detail}
    return {"blocks": list(map(to_wire, seen.blocks)), **told}


def _orientation(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {"degrees": orientation(from_wire(Page, payload["page"]), _recogniser)}


def _text(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {"text": text_of(from_wire(Page, payload["page"]))}


def _rest() -> None:
    if _recogniser.cache_info().currsize:
        _recogniser().rest()


if __name__ == "__main__":
    handlers: dict[str, Handler] = {"read": _read, "read_figure": _read_figure, "see": _inspect, "text": _text}
    handlers |= {"orientation": _orientation, "ocr_text": _ocr_text}
    serve({name: _with_language(handler) for name, handler in handlers.items()}, rest=_rest)
