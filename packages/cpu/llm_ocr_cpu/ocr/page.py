"""Read one page image: find, turn, level, and read its lines."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

import cv2
import numpy as np

from llm_ocr.types import Box, Line
from llm_ocr_cpu.ocr import OcrPage
from llm_ocr_cpu.ocr.detect import Detector, Pixels, Quad, parted_at_gutters
from llm_ocr_cpu.ocr.languages import UNKNOWN, has_foreign_words
from llm_ocr_cpu.ocr.leveling import bend_of, flattened, leveled, skew_of
from llm_ocr_cpu.ocr.models import RecogniserModel
from llm_ocr_cpu.ocr.recognise import (
    LineExtent,
    Piece,
    Reader,
    Reading,
    compared,
    cut_out,
    is_text,
    measure,
    pieces,
    stacked,
    standing_line,
)
from llm_ocr_cpu.rotation import needed_turn, turn

#: Longest side in pixels of the detector's input, and of its tiles. On 20 digital pages, 960 misses 1.4 % of the
#: characters, 1280 0.28 %, and 1540 0.26 %. On a newspaper, 1280 silently misses nine lines of ten.
_SIDE, _TILE = 1600, 1280
#: Longest side in pixels for the orientation check: small print is missed, and not needed.
_GLANCE = 960
#: Height in the detector's pixels, as detected, below which lines merge; they are detected again at a larger size.
_DENSE = 12.0
_DENSE_SIDE = 3200
#: Ratio of a crop's height to its quad's. Measured on 20 pages: up to 1.1, 0.33 % of the characters are wrong; 1.2,
#: 0.39 %. Each tenth saves as much of the recognizer's time, because all crops have the same input height.
_ROOM = 1.1
#: Least ratio of the confidence of rows to that of the same letters as a standing line: digits are also read sideways.
_AS_CLEAR = 0.9
#: Share of glyphs without a character in a line from which the line is not read.
_UNREAD_SHARE = 0.2
#: Fewest letters that the recognizer left out, and their share of the text, from which it does not know the language.
_LACKING, _LACKING_SHARE = 3, 0.01
#: Minimum difference between paper and ink on a page with text, and that below which all ink is pale.
_PALEST, _PALE = 4, 48
#: Percentile of the ink that becomes dark on such a page, and the values of paper and this ink.
_DARKEST, _CLEAR = 99.8, (230, 50)


#: Ratio to the usual ink of a page's lines below which a line may be bleed-through, and the least gain in confidence
#: by mirroring. On 23 scans, most of them generated, all 31 lines below are bleed-through, and gain at least 0.06.
_FAINT, _MIRRORED = 0.6, 0.05
#: Least confidence and length of a line of bleed-through that proves that others cross the page's own lines. All ink up
#: to this ratio to the darkest of these lines is erased then.
_SURELY_BLED, _BLED_CHARACTERS, _ERASED = 0.9, 4, 1.1
#: Minimum number of characters of a pale line of the page itself on such a page; shorter ones are stray marks.
_PALE_CHARACTERS = 3
#: Reduction of the image in which the brightness of the paper is measured, and the width of its filter there.
_PAPER_SHRUNK, _PAPER_FILTER = 8, 21


def _ink_of(crop: Pixels) -> float:
    """Return the difference in brightness between the paper and the darkest ink of a line."""
    grey = crop.mean(axis=2) if crop.ndim == 3 else crop
    dark, bright = np.percentile(grey, (1, 90))
    return float(bright - dark)


def _with_contrast(image: Pixels) -> Pixels | None:
    """Return the image, with dark ink and less noise if all its ink is pale; None for one without any contrast."""
    smooth = cv2.GaussianBlur(image, (0, 0), 1.0)
    paper = float(np.median(smooth[::4, ::4]))
    darker, brighter = paper - float(smooth.min()), float(smooth.max()) - paper
    if max(darker, brighter) < _PALEST:
        return None
    if darker < _PALEST or max(darker, brighter) >= _PALE:
        return image
    ink = paper - smooth.astype(np.float32)
    usual = max(float(_PALEST), float(np.percentile(ink, _DARKEST)))
    clear: Pixels = np.clip(_CLEAR[0] - ink * ((_CLEAR[0] - _CLEAR[1]) / usual), 0, 255).astype(np.uint8)
    return clear


def _roomy(quad: Quad) -> Quad:
    """Return the quad with room above and below a lying line."""
    return quad if quad.tall else replace(quad, height=_ROOM * quad.height)


def _without_pale_ink(image: Pixels, ink: float, kept: Sequence[Quad]) -> Pixels:
    """Return the image without all pixels that are less than `ink` darker than the paper, outside of the quads."""
    brightness = image.mean(axis=2, dtype=np.float32)
    height, width = brightness.shape
    small = cv2.resize(image, (width // _PAPER_SHRUNK + 1, height // _PAPER_SHRUNK + 1), interpolation=cv2.INTER_AREA)
    paper = cv2.medianBlur(cv2.dilate(small, np.ones((5, 5), np.uint8)), _PAPER_FILTER)
    paper = cv2.resize(paper, (width, height), interpolation=cv2.INTER_LINEAR)
    pale = paper.mean(axis=2, dtype=np.float32) - brightness < ink
    for quad in kept:
        x0, x1 = int(quad.x - quad.width / 2), int(quad.x + quad.width / 2)
        y0, y1 = int(quad.y - quad.height / 2), int(quad.y + quad.height / 2)
        pale[max(0, y0) : y1, max(0, x0) : x1] = False
    return np.where(pale[:, :, None], paper, image)


class PageReading:
    """Reader of pages with one detector and one recognizer."""

    def __init__(self, language: RecogniserModel | None = None) -> None:
        cv2.setNumThreads(1)
        self._detector = Detector()
        self.reader = Reader(language)

    def read(self, image: Pixels) -> OcrPage:
        """Return all lines; see `Recogniser.read`."""
        clear = _with_contrast(image)
        if clear is None:
            return OcrPage((), 0, image)
        pale, image = clear is not image, clear
        quads = self._find(image)
        rotation = needed_turn(image, quads, self.reader.read)
        if rotation:
            image = turn(image, rotation)
            quads = self._find(image)
        skew = skew_of(quads)
        if skew:
            image, quads = leveled(image, quads, skew)
        bend = bend_of(quads, image.shape[1], image.shape[0])
        if bend is not None:
            image = flattened(image, bend)
            quads = self._find(image)
        clean, quads, known = self._without_bleed_through(image, quads, pale=pale)
        lines, unread = self._read_all(clean, quads, known)
        return OcrPage(tuple(lines), rotation, image, skew, tuple(unread), bend, clean)

    def orientation(self, image: Pixels) -> int:
        """Return the clockwise turn in degrees; see `Recogniser.orientation`."""
        clear = _with_contrast(image)
        if clear is None:
            return 0
        return needed_turn(clear, self._detector.find(clear, side=_GLANCE, tile=_TILE), self.reader.read)

    def rest(self) -> None:
        """Release memory; see `Recogniser.rest`."""
        self._detector.rest()
        self.reader.rest()

    def _find(self, image: Pixels) -> list[Quad]:
        quads = self._detector.find(image, side=_SIDE, tile=_TILE)
        longest = max(image.shape[:2])
        if longest > _SIDE and quads:
            shrunk = longest / _SIDE
            if median(min(quad.width, quad.height) for quad in quads) < _DENSE * shrunk:
                return self._detector.find(image, side=_DENSE_SIDE, tile=_TILE)
        return quads

    def _without_bleed_through(
        self, image: Pixels, quads: list[Quad], *, pale: bool
    ) -> tuple[Pixels, list[Quad], dict[Quad, Reading]]:
        """Return the image and its lines without text of the sheet's other side, which is better read in a mirror.

        The third result is the readings of lines that were made for this decision. All lines may be such text on a page
        with only pale ink.
        """
        inks = [_ink_of(cut_out(image, quad)) for quad in quads]
        faint = math.inf if pale else _FAINT * median(inks) if inks else 0.0
        bled: dict[Quad, float] = {}
        sure = False
        known: dict[Quad, Reading] = {}
        for quad, ink in zip(quads, inks, strict=True):
            if ink >= faint or quad.tall:
                continue
            crop = cut_out(image, _roomy(quad))
            reading = self.reader.read(crop)
            mirrored = self.reader.read(np.ascontiguousarray(crop[:, ::-1]))
            if mirrored.text.strip() and mirrored.confidence > reading.confidence + _MIRRORED:
                bled[quad] = ink
                sure |= mirrored.confidence >= _SURELY_BLED and len(mirrored.text) >= _BLED_CHARACTERS
            else:
                known[quad] = reading
        if not sure:
            return image, [quad for quad in quads if quad not in bled], known
        own = [quad for quad, reading in known.items() if len(reading.text) >= _PALE_CHARACTERS]
        clean = _without_pale_ink(image, _ERASED * max(bled.values()), own)
        return clean, self._find(clean), {}

    def _read_all(
        self, image: Pixels, quads: Sequence[Quad], known: Mapping[Quad, Reading]
    ) -> tuple[list[Line], list[Box]]:
        lying: list[tuple[Quad, Pixels, Reading, LineExtent | None]] = []
        standing: list[Line] = []
        unread: list[Box] = []
        for tight in quads:
            quad = _roomy(tight)
            crop = cut_out(image, quad)
            reading = known.get(tight) or (self._read_standing(crop) if quad.tall else self.reader.read(crop))
            if not is_text(reading) or has_foreign_words(reading.text, self.reader.scripts):
                unread.append(tight.box)
            elif quad.tall and (rows := self._stacked(image, quad, crop, reading)):
                for row, found in rows:
                    crop = cut_out(image, row)
                    lying.append((row, crop, found, measure(crop, found)))
            elif quad.tall:
                standing.append(standing_line(reading, quad))
            else:
                ink = measure(crop, reading)
                if ink and ink.reading.text.count(UNKNOWN) > _UNREAD_SHARE * len(ink.reading.text):
                    unread.append(tight.box)
                else:
                    lying.append((quad, crop, reading, ink))
        text = "".join(ink.reading.text for *_, ink in lying if ink)
        is_foreign = text.count(UNKNOWN) >= _LACKING and text.count(UNKNOWN) > _LACKING_SHARE * len(text)
        read: list[Piece] = []
        for quad, crop, reading, ink in lying:
            if ink and ink.reading.text.count(UNKNOWN) == 1 and not is_foreign:  # a letter in broken print
                ink = measure(crop, reading, marks=False)
            read += pieces(reading, ink, quad, crop.shape[1])
        return parted_at_gutters(compared(read)) + standing, unread

    def _stacked(self, image: Pixels, quad: Quad, crop: Pixels, standing: Reading) -> list[tuple[Quad, Reading]]:
        """Return the rows of a tall rectangle and their readings, if all are about as clear as one standing line."""
        rows = [(row, self.reader.read(cut_out(image, row))) for row in stacked(crop, quad)]
        clear = all(
            reading.text.strip() and reading.confidence >= _AS_CLEAR * standing.confidence for _, reading in rows
        )
        return rows if clear else []

    def _read_standing(self, crop: Pixels) -> Reading:
        upwards = self.reader.read(turn(crop, 90))
        downwards = self.reader.read(turn(crop, 270))
        return max(upwards, downwards, key=lambda reading: reading.confidence * bool(reading.text.strip()))
