"""Where the two models come from, and sessions that suit one page at a time in one process.

The models are files of the rapidocr wheel. Its Python code is not imported: it would log to stderr and download what it
misses; a file that is not there is `MissingExtra` here.
"""

import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from llm_ocr.errors import MissingExtra

#: Index 0 of the recogniser's output is "no character"; a space follows the alphabet that the model file carries.
BLANK = ""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Paths of the detector and the recogniser."""

    detector: Path
    recogniser: Path


@cache
def find_models() -> ModelFiles | None:
    """The models in the installed rapidocr wheel, None where the wheel, onnxruntime or OpenCV is missing.

    Others that the user had rapidocr download stand in the same folder; only the kind that the wheel brings counts.
    """
    if any(importlib.util.find_spec(name) is None for name in ("onnxruntime", "cv2")):
        return None
    spec = importlib.util.find_spec("rapidocr")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(place) / "models"
        detectors = sorted(folder.glob("PP-OCRv*_det_small.onnx"))
        recognisers = sorted(folder.glob("PP-OCRv*_rec_small.onnx"))
        if detectors and recognisers:
            return ModelFiles(detectors[-1], recognisers[-1])
    return None


def available() -> bool:
    """Whether OCR is installed here; imports nothing heavy."""
    return find_models() is not None


def require_models() -> ModelFiles:
    """The model files; raises MissingExtra where OCR is not installed."""
    models = find_models()
    if models is None:
        what = "OCR is not installed: rapidocr with its models, or onnxruntime, is missing"
        raise MissingExtra(what, install="embedded")
    return models


def open_session(model: Path) -> Any:
    """A session on one thread.

    Measured with onnxruntime 1.31: more threads than one spin and slow the other processes down; the memory arena, but
    without patterns of memory by shape, spares the page faults of large tensors, a tenth of a scan's processor time, at
    the same peak of memory; the detector meets denormal numbers, which
    cost two thirds of its time unless they count as zero. onnxruntime looks at that setting when the first session of a
    process is made, and it holds for the thread that makes it: sessions are made and used in one thread.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False  # shapes hardly ever repeat
    options.log_severity_level = 3
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    return onnxruntime.InferenceSession(str(model), sess_options=options, providers=["CPUExecutionProvider"])


def give_back_arena(session: Any, shape: tuple[int, ...]) -> None:
    """Free what the session's arena holds for its next page, by a run over zeros of this shape: there is no other way.

    Not after every page: to ask for it anew makes the detector slower by a fifth.
    """
    import numpy as np
    import onnxruntime

    if not session.get_session_options().enable_cpu_mem_arena:
        return
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    session.run(None, {session.get_inputs()[0].name: np.zeros(shape, np.float32)}, options)


def alphabet_of(session: Any) -> list[str]:
    """The recogniser's characters by output index."""
    characters = session.get_modelmeta().custom_metadata_map["character"].splitlines()
    return [BLANK, *characters, " "]
