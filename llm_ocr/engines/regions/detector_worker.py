"""Run the detector in a worker process: `python -m llm_ocr.engines.regions.detector_worker`."""

import io
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_ocr.documents.page_wire import from_wire
from llm_ocr.engines.regions.detection import LABELS, Region
from llm_ocr.errors import LlmOcrError, PageFailure
from llm_ocr.sandbox.confinement import Confinement
from llm_ocr.sandbox.worker import serve
from llm_ocr.types import Box, EncodedImage, Reason

if TYPE_CHECKING:
    import torch


# Detection transformer of the PP-DocLayout or RT-DETR family. The code uses only torch and the model's own class. The
# steps of the image processor (resize, scale, boxes from center and size, order by pairs) are a few lines here, so that
# torchvision and OpenCV are not required.


#: Model types with this form of boxes, scores, and order.
FAMILIES = ("pp_doclayout_v3", "pp_doclayout_v2", "rt_detr", "rt_detr_v2")
_PROCESSOR = "preprocessor_config.json"
_SIDE = 800  # pixels; of PP-DocLayoutV3, if its processor's file has no size
_RESAMPLING = {0: "nearest", 2: "bilinear", 3: "bicubic"}  # Pillow's constants
_THREADS_ON_CPU = 1  # one process per core
_DECODERS = 8  # threads that decode the pages of a batch; batches have several pages only on a GPU


class Model:
    """Weights of a detector, loaded on a device."""

    def __init__(self, folder: Path, device: str) -> None:
        """Load the weights. Raises `LlmOcrError` for another model family, and the errors of torch and transformers."""
        import torch
        from transformers import AutoConfig, AutoModelForObjectDetection

        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        if config.model_type not in FAMILIES:
            raise LlmOcrError(f"its model type is {config.model_type}; supported types: {', '.join(FAMILIES)}")
        found = torch.cuda.is_available()
        self.device = ("cuda" if found else "cpu") if device == "auto" else device
        if self.device == "cpu":
            torch.set_num_threads(_THREADS_ON_CPU)
        model = AutoModelForObjectDetection.from_pretrained(folder, local_files_only=True, use_safetensors=True)
        self._model = model.to(self.device).eval()
        self.labels = _labels(config)
        self._look = _Look(folder)
        self._decoders = ThreadPoolExecutor(_DECODERS)

    def detect(self, images: Sequence[EncodedImage], threshold: float) -> list[tuple[Region, ...] | PageFailure]:
        """Return each page's regions with scores of at least `threshold`, best first, or the page's failure."""
        import torch

        looked = list(self._decoders.map(self._look.pixels, images))
        answers: list[tuple[Region, ...] | PageFailure] = [
            image if isinstance(image, PageFailure) else () for image in looked
        ]
        places = [place for place, image in enumerate(looked) if not isinstance(image, PageFailure)]
        if places:
            with torch.inference_mode():
                outputs = self._model(pixel_values=torch.stack([looked[place] for place in places]).to(self.device))
            for number, place in enumerate(places):
                answers[place] = self._regions(outputs, number, threshold)
        return answers

    def _regions(self, outputs: Any, number: int, threshold: float) -> tuple[Region, ...]:
        scores = outputs.logits[number].float().sigmoid()
        boxes = outputs.pred_boxes[number].float().cpu().tolist()
        logits = getattr(outputs, "order_logits", None)  # transformers: some models predict no order
        turns = _turns(logits[number].float()) if logits is not None else [None] * len(boxes)
        best = scores.flatten().topk(len(boxes))
        found = []
        for score, index in zip(best.values.cpu().tolist(), best.indices.cpu().tolist(), strict=True):
            if score < threshold:
                break
            query, label = divmod(index, scores.shape[1])
            x, y, width, height = boxes[query]
            box = Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2).clipped()
            found.append(Region(self.labels[label], box, score, turns[query]))
        return tuple(found)


@cache
def loaded(folder: str, device: str) -> Model:
    """Return the model of this process, which has only one."""
    return Model(Path(folder), device)


class _Look:
    """Image preprocessing from the file of the model's processor."""

    def __init__(self, folder: Path) -> None:
        file = folder / _PROCESSOR
        about = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        size = about.get("size") or {}
        self._size = (int(size.get("height", _SIDE)), int(size.get("width", _SIDE)))
        self._mode = _RESAMPLING.get(about.get("resample", 3), "bicubic")
        self._factor = float(about.get("rescale_factor", 1 / 255)) if about.get("do_rescale", True) else 1.0
        normalised = about.get("do_normalize", False)
        self._mean = about.get("image_mean", [0, 0, 0]) if normalised else [0, 0, 0]
        self._std = about.get("image_std", [1, 1, 1]) if normalised else [1, 1, 1]

    def pixels(self, image: EncodedImage) -> "torch.Tensor | PageFailure":
        """Return the image as the model's input, or the decoding failure.

        CPU only, for identical results everywhere.
        """
        import numpy
        import torch
        from PIL import Image

        try:
            with Image.open(io.BytesIO(image.data)) as opened:
                values = numpy.array(opened.convert("RGB"))
        except (OSError, ValueError, Image.DecompressionBombError) as error:
            return PageFailure(Reason.UNREADABLE, f"the page image: {error}")
        whole = torch.from_numpy(values).permute(2, 0, 1)[None]
        smooth: dict[str, Any] = {} if self._mode == "nearest" else {"align_corners": False, "antialias": False}
        small = torch.nn.functional.interpolate(whole, self._size, mode=self._mode, **smooth)[0]
        mean, std = (torch.tensor(one, dtype=torch.float32)[:, None, None] for one in (self._mean, self._std))
        return (small.float() * self._factor - mean) / std


def _labels(config: Any) -> list[str]:
    """Return the class names; PP-DocLayoutV3's full names if its file repeats names."""
    count = int(config.num_labels)
    if config.model_type == "pp_doclayout_v3" and count == len(LABELS):
        return list(LABELS)
    return [str(config.id2label.get(number, number)) for number in range(count)]


def _turns(logits: Any) -> list[int]:
    """Return each query's position in reading order. Entries above the diagonal: row before column."""
    import torch

    upper = torch.ones_like(logits).triu(1)
    before = logits.sigmoid() * upper  # 0..1 for each pair
    earlier = before.sum(0) + (upper - before).sum(1)  # number of predecessors
    turns = torch.empty(len(logits), dtype=torch.int64)
    turns[earlier.argsort().cpu()] = torch.arange(len(logits))
    return [int(turn) for turn in turns]


def page_from_wire(wire: Mapping[str, Any]) -> tuple[Region, ...] | PageFailure:
    """Return a page's regions or its failure."""
    if "failure" in wire:
        return PageFailure(Reason(wire["failure"]), str(wire["detail"]))
    return tuple(Region(str(label), Box(*sides), score, order) for label, score, *sides, order in wire["regions"])


def _load(payload: Mapping[str, Any]) -> dict[str, Any]:
    model = loaded(payload["folder"], payload["device"])
    return {"device": model.device, "labels": model.labels}


def _detect(payload: Mapping[str, Any]) -> dict[str, Any]:
    model = loaded(payload["folder"], payload["device"])
    pages = model.detect([from_wire(EncodedImage, image) for image in payload["images"]], payload["threshold"])
    return {
        "pages": [
            {"failure": page.reason.value, "detail": page.detail}
            if isinstance(page, PageFailure)
            else {"regions": [[found.label, found.score, *astuple(found.box), found.order] for found in page]}
            for page in pages
        ]
    }


if __name__ == "__main__":
    serve({"load": _load, "detect": _detect}, Confinement(devices=True))
