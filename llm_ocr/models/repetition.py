"""Answers that repeat themselves: seen while they stream, and found afterwards.

Boxes are left out of the comparison: a model that repeats a paragraph counts their coordinates on.
"""

import re
from dataclasses import dataclass, field
from itertools import pairwise

from llm_ocr.models.periods import WINDOW, is_loop, least_length, loop_at_end, whole_run
from llm_ocr.models.tokens import without_end

#: The watch looks after so many new characters.
_STEP = 64
#: White space, or tokens that end answers, at the end of an answer: more than this is a loop.
_BLANKS = 2000
#: What boxes stand between, in the formats of all models: DeepSeek; LightOn; layout JSON; HTML blocks; MinerU.
_CLOSERS = {
    "[[": "]]",
    **{f"]({digit}": ")" for digit in range(10)},
    '"bbox":[': "]",
    '"bbox": [': "]",
    'data-bbox="': '"',
    "<|box_start|>": "<",
}
_OPENER = re.compile("|".join(map(re.escape, _CLOSERS)))
_BEGINNINGS = frozenset(opener[:size] for opener in _CLOSERS for size in range(1, len(opener)))
_LONGEST_BEGINNING = max(map(len, _BEGINNINGS))
#: Longest text in there that is taken for boxes.
_LONGEST_BOX = 200
_LONGEST_LINE = 2000
#: GLM-OCR's rule for lines: at least ten, of which four fifths are one and the same. The lengths are ours: twice those
#: of exact repetitions.
_LINES, _SAME, _LINE_FACTOR = 10, 0.8, 2


class RepetitionWatch:
    """Watches one answer. Each character costs a constant amount of work, whatever stands in the answer."""

    __slots__ = ("_cut", "_folder", "_fresh", "_lines", "_size", "_text")

    def __init__(self) -> None:
        self._text = ""
        self._fresh: list[str] = []
        self._size = 0
        self._folder = _Folder()
        self._lines = _SameLines()
        self._cut = False

    def feed(self, piece: str) -> bool:
        """The next piece of the answer; True from when on it is certain to repeat itself."""
        if self._cut:
            return True
        self._fresh.append(piece)
        self._size += len(piece)
        if self._size >= _STEP:
            fresh = self._folder.fold("".join(self._fresh))
            self._fresh, self._size = [], 0
            self._cut = any(self._look(fresh[at : at + _STEP]) for at in range(0, len(fresh), _STEP))
        return self._cut

    def _look(self, fresh: str) -> bool:
        self._text = (self._text + fresh)[-WINDOW:]
        return self._lines.feed(fresh) or loop_at_end(self._text) is not None


def sound_length(text: str) -> int | None:
    """How many characters of a finished answer stand before its loop; None for one that does not end in a loop.

    The first of the repetitions belongs to the sound part, as it is what the page says; of white space nothing does.
    Linear in the length.
    """
    body = without_end(text)
    if len(text) - len(body) > _BLANKS:
        return len(body)
    folder = _Folder()
    folded = folder.fold(body)
    run = loop_at_end(folded, finished=True)
    if run is not None:
        return folder.place(len(folded) - whole_run(folded, run.period) + run.period)
    lines = _SameLines()
    lines.feed(folded + "\n")
    return folder.place(lines.start) if lines.looping else None


@dataclass(slots=True)
class _Folder:
    """Leaves out the numbers of boxes, and knows where the rest stood."""

    _inside: int = -1  # characters since the boxes began; negative outside of them
    _closer: str = ""
    _half: str = ""  # the end of the text, where it may begin an opener or a closer
    _raw: int = 0  # characters taken in
    _made: int = 0  # characters given out
    _cuts: list[tuple[int, int]] = field(default_factory=list)  # (place in what was given out, place in the text)

    def fold(self, text: str) -> str:
        """The next part of the text without the contents of boxes."""
        text, self._half = self._half + text, ""
        parts: list[str] = []
        at = 0
        while at < len(text):
            at = self._outside(text, at, parts) if self._inside < 0 else self._skip(text, at)
        return "".join(parts)

    def place(self, made: int) -> int:
        """Where in the text the character stands that is number `made` in what was given out."""
        before = next(((out, raw) for out, raw in reversed(self._cuts) if out <= made), (0, 0))
        return before[1] + made - before[0]

    def _outside(self, text: str, at: int, parts: list[str]) -> int:
        found = _OPENER.search(text, at)
        if found is None:
            self._half = _beginning(text[at:])
            end = len(text) - len(self._half)
        else:
            end = found.end() - found.group()[-1].isdigit()
            self._inside, self._closer = 0, _CLOSERS[found.group()]
        parts.append(text[at:end])
        self._made += end - at
        self._raw += end - at
        return len(text) if found is None else end

    def _skip(self, text: str, at: int) -> int:
        end = text.find(self._closer, at, at + _LONGEST_BOX)
        if end < 0:
            half = self._closer[:-1]
            held = len(half) if half and text.endswith(half) and len(text) - at < _LONGEST_BOX else 0
            end = min(len(text) - held, at + _LONGEST_BOX)
            self._half = half if held else ""
            self._inside += end - at
            over = self._inside >= _LONGEST_BOX
        else:
            held, over = False, True
        self._raw += end - at
        if over:
            self._inside = -1
            self._cuts.append((self._made, self._raw))
        return len(text) if held else end


def _beginning(text: str) -> str:
    """The end of the text that an opener may begin with."""
    tail = text[-_LONGEST_BEGINNING:]
    return next((tail[at:] for at in range(len(tail)) if tail[at:] in _BEGINNINGS), "")


class _SameLines:
    """Whether most of the last lines are the same one, with others between them."""

    __slots__ = ("_hits", "_line", "_open", "_place", "_total", "looping", "start")

    def __init__(self) -> None:
        self.looping = False
        self.start = 0  # behind the first of the lines, once they loop
        self._open = ""  # the line that has not ended
        self._place = 0
        self._line, self._hits, self._total = "", 0, 0

    def feed(self, text: str) -> bool:
        """The next part of the text; True when it ends in a loop of lines."""
        parts = (self._open + text).split("\n")
        place = self._place - len(self._open)
        for line, _ in pairwise(parts):
            place += len(line) + 1
            self._take(line.strip(), place)
        self._open = parts[-1][-_LONGEST_LINE:]
        self._place += len(text)
        return self.looping

    def _take(self, line: str, place: int) -> None:
        if not line or line.endswith(("]]", "<|/det|>")):
            return
        self._total += 1
        if line == self._line:
            self._hits += 1
        elif self._hits < _SAME * self._total:
            self._line, self._hits, self._total, self.start = line, 1, 1, place
        length = self._hits * len(self._line)
        enough = self._hits >= _LINES and self._hits >= _SAME * self._total
        # The cheap test first: most lines are followed by other ones.
        self.looping = enough and length >= _LINE_FACTOR * least_length(self._line) and is_loop(self._line, length)
