"""Score the quality of a page and name its defects."""

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from llm_ocr.models.parsers.repetition import sound_length
from llm_ocr.results.quality import (
    BACKED,
    CONFIDENT,
    COVERED,
    FILLED,
    FITS,
    FOUND,
    LOW,
    LOW_OF_MODEL,
    ORDER,
    READABLE,
    SEQUENCE,
    UNREPEATED,
    WHOLE,
    by_layer,
    on_scale,
    what_is_wrong,
)
from llm_ocr.results.quality.tables import table_parts
from llm_ocr.results.quality.text_layer import (
    ASIDE,
    BlockText,
    Chunk,
    agreement,
    chunks_of,
    in_order,
    is_true,
    layer_order,
    shown,
    size_of,
    texts_of,
)
from llm_ocr.types import Attempt, BlockKind, Box, Evidence, InkMap, Page, Quality, Reason, Status

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


#: Pixels by which ink is widened on both sides, so that the letters of a word touch and columns do not.
_WIDER = 3
#: Heights in pixels of possible lines of text; lower ones are rules, higher ones pictures.
_LOWEST, _HIGHEST = 3, 40
#: Runs lower than this part of the usual height are strokes of larger letters, not lines.
_FLAT = 0.5
#: Least width of the unbroken ink across the middle of a run, in its heights. Words are wider than the curves of maps
#: and graphs.
_WIDE = 4.0
#: Share of the image's sides that is ignored at each edge, because scans have shadows there.
_EDGE = 0.015
#: Least width of a bar of unbroken ink, as a share of the page's width.
_BAR = 0.15
#: Growth of boxes, relative to the page: boxes of letters are tight.
_ROOM = 0.008
#: Cells across and down of the grid of boxes.
_GRID = 512


@dataclass(frozen=True, slots=True)
class Strokes:
    """Vertical runs of widened ink with the height of text lines.

    `x` and `y` are relative positions of their centers; `height` is in pixels of the ink's image.
    """

    x: "npt.NDArray[np.float64]"
    y: "npt.NDArray[np.float64]"
    height: "npt.NDArray[np.float64]"

    def inside(self, boxes: Sequence[Box]) -> "npt.NDArray[np.bool_]":
        """Return which strokes are in any of the relative boxes."""
        import numpy as np

        grid = np.zeros((_GRID, _GRID), np.bool_)
        for box in boxes:
            room = box.grown(_ROOM).clipped()
            grid[round(room.y0 * _GRID) : round(room.y1 * _GRID), round(room.x0 * _GRID) : round(room.x1 * _GRID)] = (
                True
            )
        found: npt.NDArray[np.bool_] = grid[(self.y * _GRID).astype(np.intp), (self.x * _GRID).astype(np.intp)]
        return found

    def text(self, chosen: "npt.NDArray[np.bool_] | None" = None) -> float:
        """Return the approximate number of characters in the chosen strokes: a line of height h has one per h/2 px."""
        return float((2.0 / (self.height if chosen is None else self.height[chosen])).sum())


def strokes_of(ink: InkMap, rotation: int = 0) -> Strokes:
    """Return the strokes of the page turned clockwise by `rotation` degrees. Takes 1 ms."""
    import numpy as np

    packed = np.frombuffer(zlib.decompress(ink.packed), np.uint8).reshape(ink.height, -1)
    ink_height, ink_width = ink.height, ink.width
    if rotation % 360:
        black = np.rot90(np.unpackbits(packed, axis=1)[:, :ink_width], -rotation // 90)
        packed, (ink_height, ink_width) = np.packbits(black, axis=1), black.shape
    # One integer has the bits of all rows, so that a shift moves all pixels. A byte of paper before each row separates
    # them.
    rows = np.zeros((ink_height, 1 + packed.shape[1]), np.uint8)
    rows[:, 1:] = packed
    bits = _without_bars(int.from_bytes(rows.tobytes(), "big"), int(_BAR * ink_width))
    wide = bits
    for step in range(1, _WIDER + 1):
        wide |= bits >> step | bits << step
    widened = np.frombuffer(wide.to_bytes(rows.size, "big"), np.uint8).reshape(rows.shape)
    # A row of paper above and below, so that each stroke has a start and an end.
    across, down = int(_EDGE * ink_width), int(_EDGE * ink_height)
    inside = np.zeros((ink_height + 2, ink_width), np.bool_)
    inside[1 + down : 1 + ink_height - down, across : ink_width - across] = np.unpackbits(
        widened[down : ink_height - down, 1:], axis=1
    )[:, across : ink_width - across]
    edges, x = np.divmod(np.flatnonzero(inside[1:] != inside[:-1]), ink_width)
    by_column = np.argsort(x.astype(np.uint16), kind="stable")  # starts and ends of ink, alternating in each column
    starts, ends = by_column[0::2], by_column[1::2]
    x, top, height = x[starts], edges[starts], edges[ends] - edges[starts]
    # The unbroken ink in the row through the middle of each run.
    begins, stops = np.flatnonzero(np.diff(inside.ravel().astype(np.int8), prepend=0)).reshape(-1, 2).T
    middle = np.searchsorted(begins, (top + height // 2 + 1) * ink_width + x, "right") - 1
    fit = (height >= _LOWEST) & (height <= _HIGHEST)
    if fit.any():
        ordered = np.sort(height[fit])
        area = np.cumsum(ordered)
        usual = ordered[np.searchsorted(area, area[-1] / 2)]  # the height whose runs contain the median of the ink
        fit &= height >= _FLAT * usual
    fit &= (stops - begins)[middle] >= _WIDE * height
    return Strokes(
        (x[fit] + 0.5) / ink_width, (top[fit] + height[fit] / 2) / ink_height, height[fit].astype(np.float64)
    )


def _without_bars(bits: int, length: int) -> int:
    """Return the ink without bars of at least `length` pixels, such as borders. Text has gaps between its letters.

    Args:
        bits: Rows of pixels, ink as ones, the first pixel as the highest bit. Paper separates the rows.
        length: Pixels of unbroken ink; 0 removes nothing.
    """
    starts, reached = bits if length else 0, 1
    while reached < length and starts:  # `starts`: pixels that begin unbroken ink of `reached` pixels
        step = min(reached, length - reached)
        starts, reached = starts & starts << step, reached + step
    bars, reached = starts, 1
    while reached < length and bars:
        step = min(reached, length - reached)
        bars, reached = bars | bars >> step, reached + step
    return bits & ~bars


#: Letters that identify a position in the text; a loop's longest period, and its minimum number of rounds.
_RUN, _LONGEST_PERIOD, _ROUNDS = 16, 400, 4
#: Fewer letters than this are not checked for repetitions.
_ENOUGH_CHARACTERS = 120
#: Share for a page that is known to be cut or malformed, because the loss is unknown. Chosen, not measured.
_CUT = 0.3
_CUTS = frozenset({Reason.LOOP, Reason.TRUNCATED, Reason.MALFORMED})
#: First words of the names of letters that no word mixes with Latin letters, except by misrecognition.
_STRANGERS = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE")
_WORD = re.compile(r"[^\W\d_]{2,}")
_LATIN = re.compile(r"[a-zA-Z\u00c0-\u024f]")
_ORDINARY = frozenset("\n\t\r\u00a0")
#: Share of the text in words of two scripts that faultless pages have: names of variables and units.
_MIXED = 0.03


def answer_parts(attempt: Attempt, text: str, chunks: Sequence[Chunk], layer: str = "") -> dict[str, float]:
    """Return the parts measured in the answer alone.

    Args:
        attempt: The answer.
        text: Text of all blocks without markup.
        chunks: The same text in chunks.
        layer: The true text layer. Its own repetitions are not defects of the answer.
    """
    parts = {READABLE: 1 - _unreadable(text)}
    # Only models loop: repetitions that the embedded engine reads are on the page.
    if attempt.source == "model" and (unrepeated := _unrepeated(text, chunks)) is not None:
        printed = _unrepeated(layer, chunks_of(layer)) if unrepeated < 1 else None
        looped = (1 - unrepeated) * len(text) - (0.0 if printed is None else (1 - printed) * len(layer))
        parts[UNREPEATED] = min(1.0, 1 - looped / len(text))
    if attempt.reason in _CUTS and attempt.source == "model":
        parts[WHOLE] = _CUT
    if attempt.confidence is not None:
        parts[CONFIDENT] = attempt.confidence
    return parts


def _unrepeated(text: str, chunks: Sequence[Chunk]) -> float | None:
    """Return the share of the text outside of loops (immediate repetitions of the same text)."""
    letters = "".join(chunk.letters for chunk in chunks)
    if len(letters) < _ENOUGH_CHARACTERS:
        return None
    looped = sum(end - begin for begin, end in _loops(letters))
    sound = sound_length(text)
    return min(1 - looped / len(letters), 1.0 if sound is None else sound / len(text))


def _loops(letters: str) -> Iterator[tuple[int, int]]:
    """Yield ranges in which each run repeats at the same distance, for several rounds."""
    places = len(letters) - _RUN + 1
    if places - len({letters[at : at + _RUN] for at in range(places)}) < _ENOUGH_CHARACTERS // 2:
        return  # too few repetitions for any loop
    following: dict[str, int] = {}
    begin = end = len(letters)
    period = 0
    for at in range(len(letters) - _RUN, -1, -1):
        run = letters[at : at + _RUN]
        after = following.get(run, 0)
        distance = after - at if after else 0
        following[run] = at
        if distance != period:
            if period and _is_loop(letters[begin:end], period):
                yield begin, end
            period, end = distance if distance <= _LONGEST_PERIOD else 0, after + _RUN
        begin = at
    if period and _is_loop(letters[begin:end], period):
        yield begin, end


def _is_loop(letters: str, period: int) -> bool:
    """Return whether a range is a loop. Rows of zeros are normal in tables."""
    return len(letters) >= max(_ROUNDS * period, _ENOUGH_CHARACTERS) and not letters.isdecimal()


def _unreadable(text: str) -> float:
    """Return the share of meaningless characters, and of characters in words that mix incompatible scripts."""
    if not text:
        return 0.0
    # Most characters are among the few distinct ones of the page.
    bad = sum(count for character, count in Counter(text).items() if _meaningless(character))
    mixed = 0  # characters of words that mix scripts
    for word in _WORD.findall(text) if not text.isascii() else ():
        if not word.isascii() and _LATIN.search(word):
            strange = sum(unicodedata.name(letter, "?").startswith(_STRANGERS) for letter in word)
            if strange > 1 or (strange == 1 and len(word) > 3):  # a single Greek letter is a unit or a symbol
                mixed += len(word)
    return min(1.0, bad / len(text) + max(0.0, mixed / len(text) - _MIXED))


def _meaningless(character: str) -> bool:
    if character.isprintable() or character in _ORDINARY:
        return character == "\ufffd"
    return unicodedata.category(character) in ("Cc", "Co", "Cn")


#: Letters and digits of an answer divided by `Strokes.text`: the median of good pages.
_CHARACTERS = 0.64
#: Pixels of ink of a small character: fewer than any legible print has.
_CHARACTER_PIXELS = 8
#: Minimum number of characters that the ink must suggest for a comparison.
_ENOUGH_IN_BLOCK = 40
#: Minimum characters of a block whose order is checked by its box.
_PARAGRAPH = 40


def score(page: Page, attempt: Attempt) -> Quality:
    """Return the quality of an answer for the page. Takes several milliseconds of CPU: not for the event loop."""
    evidence = page.evidence or Evidence(None)
    texts = texts_of(attempt.blocks)
    chunks = [chunk for entry in texts for chunk in entry.chunks]
    layer = is_true(evidence, attempt)
    printed = "\n".join(text for text, _ in evidence.lines) if layer else ""
    parts = answer_parts(attempt, "\n".join(entry.text for entry in texts), chunks, printed)
    parts |= table_parts(texts)
    if layer:
        parts |= agreement(evidence, attempt, texts)
    if layer:
        order = layer_order(evidence, texts)
    else:  # that of the longer blocks with known positions
        longer = [block for block in attempt.blocks if block.kind not in ASIDE and len(block.text) >= _PARAGRAPH]
        order = in_order([(block.text, block.box) for block in longer if block.box.area < 1])
    if order is not None:
        parts[ORDER if layer else SEQUENCE] = order
    if evidence.ink is not None and not evidence.undrawn:
        parts |= _ink_parts(evidence.ink, attempt.rotation, texts, guess=not {FOUND, BACKED} & parts.keys())
    if (contradiction := _contradiction(evidence, attempt)) is not None:
        parts[contradiction] = 0.0
    if attempt.source != "model":  # only models invent text; ink on dark paper and of small print cannot be counted
        parts.pop(FITS, None)
    rounded = {name: round(value, 4) for name, value in parts.items()}
    return Quality(round(min((on_scale(name, value) for name, value in rounded.items()), default=1.0), 4), rounded)


def _contradiction(evidence: Evidence, attempt: Attempt) -> str | None:
    """Return the part that is 0 for a model's text of a page without ink, and for ink without any block."""
    if evidence.ink is None:
        return None
    if not attempt.blocks:
        return None if evidence.no_ink else FILLED
    text = any(block.text.strip() for block in attempt.blocks if block.kind is not BlockKind.FIGURE)
    return FITS if evidence.no_ink and text and attempt.source == "model" else None


#: Other ways to read a page, by the source of its text.
_OTHER_WAYS = {
    "model": "`retry-failed` with `below_quality` reads it again",
    "text-layer": "a model, or OCR (`text_layer=never`), may read it better",
    "ocr": "a model may read it better",
}


#: Fewest characters of a text layer for which `LOW_OF_MODEL` applies. All measured pages of
#: `benchmarks/quality_of_models.py` have at least as many.
_ENOUGH_LAYER = 400
#: Shares of the layer in the answer and of the answer in the layer below which the two have nothing in common, however
#: short the layer is.
_FOREIGN = 0.1


def rated(
    page: Page, attempt: Attempt, min_quality: float | None, *, transcribed: bool = False
) -> tuple[Attempt, Quality]:
    """Return the answer and its quality. An answer that is `ok` but of low quality becomes `degraded`.

    So does one that contradicts the ink: text of a page without ink, and a page with ink of which nothing was read.

    Args:
        page: The page, with its evidence.
        attempt: The answer.
        min_quality: The user's threshold for models. None: `LOW_OF_MODEL`, for the parts that compare the answer with
            a true text layer. The threshold of the embedded engine is always `LOW`.
        transcribed: Whether a model was asked for the page's own text. A user's prompt may demand another text. Its
            answers have no threshold but the user's.
    """
    quality = score(page, attempt)
    contradiction = _contradiction(page.evidence or Evidence(None), attempt)
    if attempt.status is Status.OK and contradiction == FILLED:
        detail = "; ".join(filter(None, (attempt.detail, "the page is not blank, but nothing was read")))
        return replace(attempt, status=Status.DEGRADED, reason=Reason.EMPTY, detail=detail), quality
    if contradiction == FITS:
        low = True
    elif attempt.source != "model":
        low = quality.score < LOW
    elif min_quality is not None:
        low = quality.score < min_quality
    else:
        parts = quality.parts
        foreign = max(parts.get(FOUND, 1.0), parts.get(BACKED, 1.0)) < _FOREIGN  # an answer for another page
        layer = sum(len(text) for text, _ in page.evidence.lines) if page.evidence else 0
        low = transcribed and (foreign or (by_layer(parts) < LOW_OF_MODEL and layer >= _ENOUGH_LAYER))
    if attempt.status is not Status.OK or not low:
        return attempt, quality
    details = (attempt.detail, what_is_wrong(quality.parts), _OTHER_WAYS[attempt.source])
    detail = "; ".join(filter(None, details))
    return replace(attempt, status=Status.DEGRADED, reason=Reason.LOW_QUALITY, detail=detail), quality


def _ink_parts(ink: InkMap, rotation: int, texts: Sequence[BlockText], *, guess: bool) -> dict[str, float]:
    """Return the share of the ink covered by boxes and, with `guess`, the shares of expected and unexpected text."""
    strokes = strokes_of(ink, rotation)
    total = strokes.text()
    parts: dict[str, float] = {}
    if texts and total >= _ENOUGH_IN_BLOCK and all(entry.block.box.area < 1 for entry in texts):
        parts[COVERED] = strokes.text(strokes.inside([box for entry in texts for box in shown(entry.block, 0)])) / total
    figures = [entry.block for entry in texts if entry.block.kind is BlockKind.FIGURE]
    pictures = [box for block in figures for box in shown(block, 0)]
    expected = _CHARACTERS * (total - strokes.text(strokes.inside(pictures)))
    if guess and expected >= _ENOUGH_IN_BLOCK and all(block.box.area < 1 for block in figures):
        letters = (
            chunk.letters for entry in texts if entry.block.kind is not BlockKind.FIGURE for chunk in entry.chunks
        )
        filled = sum(map(len, letters)) / expected
        parts[FILLED] = min(1.0, filled)
        parts[FITS] = min(1.0, 1 / filled) if filled else 1.0
    elif guess and texts and not figures:
        # The ink of a few words, whose number is uncertain.
        pixels = int.from_bytes(zlib.decompress(ink.packed), "big").bit_count()
        most = max(_ENOUGH_IN_BLOCK, expected, pixels / _CHARACTER_PIXELS)
        count = sum(size_of(entry.chunks) for entry in texts)
        parts[FITS] = min(1.0, most / count) if count else 1.0
    return parts
