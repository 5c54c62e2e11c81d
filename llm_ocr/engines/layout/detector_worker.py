"""The detector's worker process: `python -m llm_ocr.engines.layout.detector_worker`."""

from collections.abc import Mapping, Sequence
from typing import Any

from llm_ocr.documents.page_wire import image_from_wire
from llm_ocr.engines.layout.detecting import loaded
from llm_ocr.engines.layout.detector import Region
from llm_ocr.errors import PageFailure
from llm_ocr.processes.confinement import Confinement
from llm_ocr.processes.worker import serve
from llm_ocr.types import Box, Reason


def region_to_wire(region: Region) -> list[Any]:
    """Label, score, the box's sides, order."""
    box = region.box
    return [region.label, region.score, box.x0, box.y0, box.x1, box.y1, region.order]


def region_from_wire(wire: Sequence[Any]) -> Region:
    """The inverse of `region_to_wire`."""
    label, score, x0, y0, x1, y1, order = wire
    return Region(str(label), Box(x0, y0, x1, y1), score, order)


def page_from_wire(wire: Mapping[str, Any]) -> tuple[Region, ...] | PageFailure:
    """A page's regions, or why it has none."""
    if "failure" in wire:
        return PageFailure(Reason(wire["failure"]), str(wire["detail"]))
    return tuple(map(region_from_wire, wire["regions"]))


def _page_to_wire(page: tuple[Region, ...] | PageFailure) -> dict[str, Any]:
    if isinstance(page, PageFailure):
        return {"failure": page.reason.value, "detail": page.detail}
    return {"regions": [region_to_wire(region) for region in page]}


def _load(payload: Mapping[str, Any]) -> dict[str, Any]:
    model = loaded(payload["folder"], payload["device"])
    return {"device": model.device, "labels": model.labels}


def _detect(payload: Mapping[str, Any]) -> dict[str, Any]:
    model = loaded(payload["folder"], payload["device"])
    images = [image_from_wire(image) for image in payload["images"]]
    return {"pages": [_page_to_wire(page) for page in model.detect(images, payload["threshold"])]}


if __name__ == "__main__":
    serve({"load": _load, "detect": _detect}, Confinement(devices=True))
