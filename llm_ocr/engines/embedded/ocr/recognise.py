"""What a crop of one line says: characters, where they stand, and how sure that is."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from llm_ocr.engines.embedded.ocr.detect import Pixels, Quad
from llm_ocr.engines.embedded.ocr.models import alphabet_of, give_back_arena, open_session, require_models

#: The height that the network reads (its input shape is 3 x 48 x any width).
_HEIGHT = 48
#: One step of the network's output stands for this many input columns.
_STEP = 8
#: Crops wider than this are read in parts: memory grows with the width, and no line is longer than about 60 times its
#: height.
_WIDEST = 4096


@dataclass(frozen=True, slots=True)
class Reading:
    """One line as it was read. `centres` are the characters' middles in pixels of the crop, `sure` 0..1 each."""

    text: str
    centres: tuple[float, ...]
    sure: tuple[float, ...]

    @property
    def confidence(self) -> float:
        """The mean over the characters, 0 for nothing read."""
        return sum(self.sure) / len(self.sure) if self.sure else 0.0


NOTHING = Reading("", (), ())


class Reader:
    """Reads RGB crops that hold one line of upright text each."""

    def __init__(self) -> None:
        self._session = open_session(require_models().recogniser)
        self._alphabet = alphabet_of(self._session)

    def read(self, crop: Pixels) -> Reading:
        """The text of one crop. One at a time: a batch is padded to its widest, and costs more per line (measured)."""
        height, width = crop.shape[:2]
        if not height or not width:
            return NOTHING
        scale = _HEIGHT / height
        columns = max(_STEP, math.ceil(width * scale))
        if columns > _WIDEST:
            return self._read_parts(crop, parts=-(-columns // _WIDEST))
        values = np.zeros((1, 3, _HEIGHT, -(-columns // _STEP) * _STEP), np.float32)
        how = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
        pixels = cv2.resize(crop, (columns, _HEIGHT), interpolation=how)[:, :, ::-1]  # the network takes BGR
        np.subtract(
            pixels.transpose(2, 0, 1) * np.float32(1 / 127.5), 1, out=values[0, :, :, :columns], casting="same_kind"
        )
        scores: Any = self._session.run(None, {self._session.get_inputs()[0].name: values})[0]
        return self._decode(scores[0], width / columns)

    def rest(self) -> None:
        """Hold no more memory than before the first crop."""
        give_back_arena(self._session, (1, 3, _HEIGHT, _STEP))

    def _read_parts(self, crop: Pixels, parts: int) -> Reading:
        edges = [round(crop.shape[1] * index / parts) for index in range(parts + 1)]
        texts = ""
        centres: list[float] = []
        sure: list[float] = []
        for left, right in pairwise(edges):
            part = self.read(crop[:, left:right])
            texts += part.text
            centres += [left + centre for centre in part.centres]
            sure += part.sure
        return Reading(texts, tuple(centres), tuple(sure))

    def _decode(self, scores: NDArray[np.float32], stretch: float) -> Reading:
        """Best character of each step; repeats without a blank between them are one character."""
        best = scores.argmax(axis=1)
        starts = np.flatnonzero(np.concatenate(([True], best[1:] != best[:-1])))
        ends = np.concatenate((starts[1:], [len(best)]))
        kept = best[starts] != 0
        starts, ends = starts[kept], ends[kept]
        text = [self._alphabet[index] for index in best[starts]]
        middles = (starts + ends) / 2 * _STEP * stretch
        sure = [float(scores[start:end, best[start]].max()) for start, end in zip(starts, ends, strict=True)]
        return Reading("".join(text), tuple(middles.tolist()), tuple(sure))


def cut_out(image: Pixels, quad: Quad) -> Pixels:
    """The quad's part of the image, levelled. A crop of a quad that is not slanted is a view, not a copy."""
    height, width = image.shape[:2]
    if abs(math.radians(quad.angle)) * quad.width < 2:
        x0, x1 = max(0, round(quad.x - quad.width / 2)), min(width, round(quad.x + quad.width / 2))
        y0, y1 = max(0, round(quad.y - quad.height / 2)), min(height, round(quad.y + quad.height / 2))
        return image[y0:y1, x0:x1]
    size = (max(1, round(quad.width)), max(1, round(quad.height)))
    turn = cv2.getRotationMatrix2D((quad.x, quad.y), quad.angle, 1)
    turn[:, 2] += (size[0] / 2 - quad.x, size[1] / 2 - quad.y)
    levelled: Pixels = cv2.warpAffine(image, turn, size, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return levelled
