"""Ways of reading a page image that `scanned.py` compares: our own with one thing changed each.

The engine has no settings for these, so its constants are changed while a page is read; the same page is read by every
variant, one after the other, in one process and thread.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from scanned_pages import Given, Pixels, text_of, wrong

from llm_ocr.engines.embedded.ocr import OcrPage, detect, page, recognise
from llm_ocr.engines.embedded.ocr.models import open_session
from llm_ocr.engines.embedded.ocr.recognise import Reader, Reading

BASE = "as it is"
_PARTS = {"det": "detector", "rec": "recogniser"}


@dataclass(frozen=True, slots=True)
class Variant:
    """`constants` are names in `page`, `detect` or `recognise`; `models` replace the wheel's by `det` and `rec`."""

    group: str
    name: str
    constants: Mapping[str, Any] = field(default_factory=dict)
    batch: int = 1
    by_width: bool = False
    models: Mapping[str, Path] = field(default_factory=dict)
    arena: bool = True


@dataclass(frozen=True, slots=True)
class Measured:
    """One page by one variant: seconds of processor time by part, and what came out."""

    seconds: Mapping[str, float]
    boxes: int
    characters: int
    wrong: int
    truth: int


def variants(int8: Mapping[str, Path], dynamic: Mapping[str, Path]) -> list[Variant]:
    """All that are compared; those of int8 models only where these were made."""
    whole = {"filled_parts": _everything}
    found = [
        Variant("", BASE),
        Variant("before", "plain parts looked at too, no memory arena", whole, arena=False),
        Variant("memory", "no arena", arena=False),
        Variant("parts of the page", "plain parts looked at too", whole),
        *(
            Variant("detector's longer side", str(side), {"_SIDE": side, "_DENSE": 0.0})
            for side in (640, 736, 960, 1280)
        ),
        Variant("detector's longer side", "3200, tiles of 1280", {"_SIDE": 1600, "_DENSE": 1e6}),
        Variant("tiles", "640", {"_TILE": 640}),
        Variant("tiles", "1600", {"_TILE": 1600}),
        Variant("room around a line", "1.0", {"_ROOM": 1.0}),
        Variant("room around a line", "1.3", {"_ROOM": 1.3}),
        *(Variant("lines squeezed", f"to {share:.2f} of their width", {"squeeze": share}) for share in (0.9, 0.8, 0.7)),
        *(Variant("batch", f"{size}, as they come", batch=size) for size in (6, 32)),
        *(Variant("batch", f"{size}, by width", batch=size, by_width=True) for size in (6, 16, 32)),
    ]
    for kind, made in (("int8, static", int8), ("int8, dynamic", dynamic)):
        found += [Variant(kind, _PARTS[part], models={part: path}) for part, path in made.items()]
    return found


def _everything(image: Pixels) -> list[tuple[int, int, int, int]]:
    return [(0, image.shape[0], 0, image.shape[1])]


@contextlib.contextmanager
def _changed(constants: Mapping[str, Any]) -> Iterator[None]:
    homes = {name: module for module in (recognise, detect, page) for name in constants if hasattr(module, name)}
    before = {name: getattr(home, name) for name, home in homes.items()}
    missing = set(constants) - set(homes) - {"squeeze"}
    if missing:
        raise AttributeError(f"the engine has no {', '.join(sorted(missing))} any more: correct scanned_variants.py")
    for name, home in homes.items():
        setattr(home, name, constants[name])
    try:
        yield
    finally:
        for name, home in homes.items():
            setattr(home, name, before[name])


class Clock:
    """Processor seconds of this process by part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            began = time.process_time()
            try:
                return call(*given, **named)
            finally:
                self.seconds[part] = self.seconds.get(part, 0.0) + time.process_time() - began

        return run


class SqueezedReader(Reader):
    """Shrinks crops across before they are read: the network's work grows with the width."""

    share = 1.0

    def read(self, crop: Pixels) -> Reading:
        if self.share == 1.0 or not crop.size:
            return super().read(crop)
        width = max(1, round(crop.shape[1] * self.share))
        read = super().read(cv2.resize(crop, (width, crop.shape[0]), interpolation=cv2.INTER_AREA))
        return Reading(read.text, tuple(x * crop.shape[1] / width for x in read.centres), read.sure)


@cache
def _reading(models: tuple[tuple[str, Path], ...], arena: bool) -> page.PageReading:
    """Loaded once in a process. The reader squeezes only where a variant says so."""
    opening = open_session if arena else _open_without_arena
    with _method(detect, "open_session", opening), _method(recognise, "open_session", opening):
        reading = page.PageReading()
    for part, path in models:
        owner = reading._detector if part == "det" else reading.reader
        owner._session = open_session(path)
    reading.reader.__class__ = SqueezedReader
    return reading


def _open_without_arena(model: Path) -> Any:
    """As `open_session`, but memory comes from and goes back to the system for every tensor."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 3
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    return onnxruntime.InferenceSession(str(model), sess_options=options, providers=["CPUExecutionProvider"])


def measure(given: Given, variant: Variant) -> Measured:
    """Read one page by one variant."""
    clock = Clock()
    reading = _reading(tuple(sorted(variant.models.items())), variant.arena)
    reader: Any = reading.reader
    reader.share = variant.constants.get("squeeze", 1.0)
    detector: Any = reading._detector
    named = {"cut and measure": ("measure", "pieces", "cut_out"), "levelled": ("_level",)}
    wrapped = {name: clock.timed(part, getattr(page, name)) for part, names in named.items() for name in names}
    before = time.process_time()
    pixels = given.pixels()
    decoded = time.process_time()
    with _changed({**variant.constants, **wrapped}), _timed_parts(clock, detector, reader):
        read = _read(reading, pixels, variant)
    ocr = time.process_time()
    text = text_of(read.image, read.lines)
    done = time.process_time()
    errors, truth = wrong(given.truth, text) if given.truth else (0, 0)
    seconds = {**clock.seconds, "decode": decoded - before, "layout": done - ocr, "ocr": ocr - decoded}
    return Measured(seconds, len(read.lines), len(text.replace(" ", "")), errors, truth)


@contextlib.contextmanager
def _timed_parts(clock: Clock, detector: Any, reader: Any) -> Iterator[None]:
    detector.find = clock.timed("find", detector.find)
    detector._run = clock.timed("detector", detector._run)
    reader.read = clock.timed("recogniser", reader.read)
    reader._clock = clock
    try:
        yield
    finally:
        del detector.find, detector._run, reader.read, reader._clock


def _read(reading: page.PageReading, pixels: Pixels, variant: Variant) -> OcrPage:
    if variant.batch == 1:
        return reading.read(pixels)
    usual = page.PageReading._read_all

    def read_all(self: Any, image: Pixels, quads: Sequence[detect.Quad]) -> Any:
        reader, recorder = self.reader, _Recorder()
        try:
            self.reader = recorder
            usual(self, image, quads)
            self.reader = _Player(in_batches(reader, recorder.crops, variant))
            return usual(self, image, quads)
        finally:
            self.reader = reader

    with _method(page.PageReading, "_read_all", read_all):
        return reading.read(pixels)


@contextlib.contextmanager
def _method(owner: Any, name: str, method: Callable[..., Any]) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, method)
    try:
        yield
    finally:
        setattr(owner, name, before)


class _Recorder:
    """Stands in for the reader and notes what it is asked for: the crops do not depend on the answers."""

    def __init__(self) -> None:
        self.crops: list[Pixels] = []

    def read(self, crop: Pixels) -> Reading:
        self.crops.append(crop)
        return recognise.NOTHING


class _Player:
    """Gives the answers in the order of the questions."""

    def __init__(self, readings: Sequence[Reading]) -> None:
        self._readings = iter(readings)

    def read(self, crop: Pixels) -> Reading:
        return next(self._readings)


def in_batches(reader: Any, crops: Sequence[Pixels], variant: Variant) -> list[Reading]:
    """The crops `variant.batch` at a time, each batch padded to its widest crop; in the order given."""
    columns = [_columns(crop) for crop in crops]
    order = [index for index, count in enumerate(columns) if 0 < count <= recognise._WIDEST]
    if variant.by_width:
        order.sort(key=lambda index: columns[index])
    found = [reader.read(crop) if count > recognise._WIDEST else recognise.NOTHING for crop, count in _both(crops)]
    run = reader._clock.timed("recogniser", reader._session.run)
    for start in range(0, len(order), variant.batch):
        batch = order[start : start + variant.batch]
        width = -(-max(columns[index] for index in batch) // recognise._STEP) * recognise._STEP
        values = np.zeros((len(batch), 3, recognise._HEIGHT, width), np.float32)
        for row, index in enumerate(batch):
            pixels = cv2.resize(crops[index], (columns[index], recognise._HEIGHT), interpolation=cv2.INTER_AREA)
            values[row, :, :, : columns[index]] = pixels[:, :, ::-1].transpose(2, 0, 1) / np.float32(127.5) - 1
        scores = run(None, {reader._session.get_inputs()[0].name: values})[0]
        for row, index in enumerate(batch):
            own = scores[row, : -(-columns[index] // recognise._STEP)]
            found[index] = reader._decode(own, crops[index].shape[1] / columns[index])
    return found


def _columns(crop: Pixels) -> int:
    """Width of the crop at the network's height, 0 for an empty one."""
    height, width = crop.shape[:2]
    return max(recognise._STEP, -(-width * recognise._HEIGHT // height)) if height and width else 0


def _both(crops: Sequence[Pixels]) -> list[tuple[Pixels, int]]:
    return [(crop, _columns(crop)) for crop in crops]
