"""Run the renderer's worker process, which opens untrusted files: `python -m llm_ocr.documents.renderer`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from llm_ocr.documents import poppler
from llm_ocr.documents.files import ACCEPTED, IMAGE, PDF, FdFile, state
from llm_ocr.documents.furniture import edge_lines
from llm_ocr.documents.images import ImageFile, blank, changed, cropped, encoded
from llm_ocr.documents.page_wire import from_wire, to_wire
from llm_ocr.documents.pdf_file import Look, PdfFile
from llm_ocr.errors import PageFailure
from llm_ocr.sandbox.confinement import Confinement
from llm_ocr.sandbox.memory import give_back_memory
from llm_ocr.sandbox.worker import Handler, serve
from llm_ocr.types import Box, EncodedImage, Evidence, PageContent, Reason

#: Resident bytes above which memory is released between documents: ordinary documents leave 40 to 50 MB allocated.
_RESIDENT = 52 << 20


#: The most recently used document, kept open, by the values that identify it.
_kept: dict[tuple[Any, ...], PdfFile | ImageFile] = {}


def _document(payload: Mapping[str, Any]) -> PdfFile | ImageFile:
    source, descriptor = payload["source"], payload["file"]
    key = (*state(descriptor), source, payload["kind"], *payload["passwords"], *payload["look"].values())
    if key not in _kept:
        while _kept:
            _kept.popitem()[1].close()
            give_back_memory(_RESIDENT)
        _kept[key] = _opened(FdFile(descriptor, source), payload)
    return _kept[key]


def _opened(file: FdFile, payload: Mapping[str, Any]) -> PdfFile | ImageFile:
    try:
        kind = file.kind() or payload["kind"]
        if kind == IMAGE:
            return ImageFile(file)
        if kind == PDF:
            return PdfFile(file, payload["passwords"], Look(**payload["look"]))
        if file.size == 0:
            raise PageFailure(Reason.UNREADABLE, "the file is empty")
        raise PageFailure(Reason.UNKNOWN_TYPE, f"the file is none of {ACCEPTED}")
    except BaseException:
        file.close()
        raise


def _open(payload: Mapping[str, Any]) -> dict[str, Any]:
    pages = _document(payload).pages
    if pages < 1:
        raise PageFailure(Reason.UNREADABLE, "the document has no pages")
    return {"pages": pages}


def _open_all(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of pages of each document, or its failure."""
    opened: list[int | dict[str, str]] = []
    for document, file in zip(payload["documents"], payload["files"], strict=True):
        try:
            opened.append(int(_open({**document, "file": file})["pages"]))
        except PageFailure as failure:
            opened.append({"reason": failure.reason.value, "detail": failure.detail, "hint": failure.hint})
    return {"opened": opened}


def _judge(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of pages and the result of the filters."""
    from llm_ocr.documents.filters.judging import judged

    return _open(payload) | judged(_document(payload), payload["filters"])


def _page(payload: Mapping[str, Any]) -> dict[str, Any]:
    document = _document(payload)
    number, image_format, quality = payload["number"], payload["image_format"], payload["quality"]
    if isinstance(document, ImageFile):
        size = max(payload["look"]["size"], payload["look"]["scan_size"])
        image, ink, damage = document.page(number, size=size, image_format=image_format, quality=quality)
        stands_for = document.placeholder
        reply = {"evidence": to_wire(Evidence(ink)), "stands_for": stands_for, "damage": damage}
        return reply | {"image": to_wire(image)} | _content(document, None)
    drawn = document.page(number, text_layer=payload["text_layer"])
    reply = {"evidence": to_wire(drawn.evidence), "stands_for": document.placeholder, "damage": drawn.damage}
    image = encoded(drawn.image, image_format, quality)
    return reply | {"image": to_wire(image)} | _content(document, drawn.content)


def _content(document: PdfFile | ImageFile, content: PageContent | None) -> dict[str, Any]:
    return {"content": to_wire(content) if content else None, "pages": document.pages}


def _text(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return a page's content besides its pixels."""
    document = _document(payload)
    content = document.content(payload["number"]) if isinstance(document, PdfFile) else None
    return _content(document, content)


def _edges(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the lines near a page's edges, before the page is rendered."""
    document = _document(payload)
    content = document.content(payload["number"]) if isinstance(document, PdfFile) else None
    lines = edge_lines(content) if content else []
    return {"edges": list(map(to_wire, lines))}


def _crop(payload: Mapping[str, Any]) -> dict[str, Any]:
    image = from_wire(EncodedImage, payload["image"])
    boxes = [from_wire(Box, box) for box in payload["boxes"]]
    return {"crops": [to_wire(crop) for crop in cropped(image, boxes, payload["quality"])]}


def _change(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return a page image with other sides, turned, or both."""
    image = from_wire(EncodedImage, payload["image"])
    return {"image": to_wire(changed(image, payload["scale"], payload["degrees"], payload["quality"]))}


def _blank(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {"blank": blank(from_wire(EncodedImage, payload["image"]))}


#: Operations by name, for `sandbox.worker.serve`.
OPERATIONS: Mapping[str, Handler] = MappingProxyType(
    {
        "open": _open,
        "open_all": _open_all,
        "judge": _judge,
        "page": _page,
        "text": _text,
        "edges": _edges,
        "crop": _crop,
        "change": _change,
        "blank": _blank,
    }
)

if __name__ == "__main__":
    serve(OPERATIONS, Confinement(programs=poppler.PROGRAMS))
