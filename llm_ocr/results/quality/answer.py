"""What an answer's text shows by itself: repetitions, characters that mean nothing, an end that is none."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence

from llm_ocr.models.repetition import sound_length
from llm_ocr.results.quality.chunks import Chunk
from llm_ocr.results.quality.scales import CONFIDENT, READABLE, UNREPEATED, WHOLE
from llm_ocr.types import Attempt, Reason

#: Letters by which a place of the text is known again; a loop's longest period, and how often it is said at least.
_RUN, _LONGEST_PERIOD, _ROUNDS = 16, 400, 4
#: Fewer letters than this do not repeat themselves.
_ENOUGH = 120
#: What a page is worth that is known to be cut or malformed: how much is lost is not known. Ours, not measured.
_CUT = 0.3
_CUTS = frozenset({Reason.LOOP, Reason.TRUNCATED, Reason.MALFORMED})
#: First words of the names of letters that no word mixes with Latin ones, but where one was taken for another.
_STRANGERS = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE")
_WORD = re.compile(r"[^\W\d_]{2,}")
_LATIN = re.compile(r"[a-zA-Z\u00c0-\u024f]")
_ORDINARY = frozenset("\n\t\r\u00a0")


def answer_parts(attempt: Attempt, text: str, chunks: Sequence[Chunk]) -> dict[str, float]:
    """`text` is that of all blocks without marks, `chunks` the same in chunks."""
    parts = {READABLE: 1 - _unreadable(text)}
    if (unrepeated := _unrepeated(text, chunks)) is not None:
        parts[UNREPEATED] = unrepeated
    if attempt.reason in _CUTS and attempt.source == "model":
        parts[WHOLE] = _CUT
    if attempt.confidence is not None:
        parts[CONFIDENT] = attempt.confidence
    return parts


def _unrepeated(text: str, chunks: Sequence[Chunk]) -> float | None:
    """The share of the text that is in no loop: the same said over and over, with nothing between."""
    letters = "".join(chunk.letters for chunk in chunks)
    if len(letters) < _ENOUGH:
        return None
    looped = sum(end - begin for begin, end in _loops(letters))
    sound = sound_length(text)
    return min(1 - looped / len(letters), 1.0 if sound is None else sound / len(text))


def _loops(letters: str) -> Iterator[tuple[int, int]]:
    """Stretches in which each run comes again after the same distance, for some rounds."""
    places = len(letters) - _RUN + 1
    if places - len({letters[at : at + _RUN] for at in range(places)}) < _ENOUGH // 2:
        return  # too little is said twice for any loop
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
    """Rows of zeros are said in tables."""
    return len(letters) >= max(_ROUNDS * period, _ENOUGH) and not letters.isdecimal()


def _unreadable(text: str) -> float:
    """The share of characters that mean nothing, and of those in words of two scripts that no word mixes."""
    if not text:
        return 0.0
    # Most characters are among the few that the page has.
    bad = sum(count for character, count in Counter(text).items() if _meaningless(character))
    if not text.isascii():
        bad += sum(len(word) for word in _WORD.findall(text) if not word.isascii() and _mixed(word))
    return min(1.0, bad / len(text))


def _meaningless(character: str) -> bool:
    if character.isprintable() or character in _ORDINARY:
        return character == "\ufffd"
    return unicodedata.category(character) in ("Cc", "Co", "Cn")


def _mixed(word: str) -> bool:
    """A single Greek letter among Latin ones is a unit or a symbol."""
    if not _LATIN.search(word):
        return False
    strange = sum(unicodedata.name(letter, "?").startswith(_STRANGERS) for letter in word)
    return strange > 1 or (strange == 1 and len(word) > 3)
