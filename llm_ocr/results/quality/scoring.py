"""Score the quality of a page and name its defects."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from llm_ocr.models.parsers.repetition import sound_length
from llm_ocr.results.balance import MOST
from llm_ocr.results.quality import (
    CONFIDENT,
    LOW,
    LOW_OF_MODEL,
    ORDER,
    PLACED,
    READ,
    READABLE,
    SEQUENCE,
    SUPPORTED,
    UNREPEATED,
    WHOLE,
    on_scale,
    percent,
    what_is_wrong,
)
from llm_ocr.results.quality.order import ASIDE, in_order, layer_order, matches_of, misplaced, skipped_lines, visits_of
from llm_ocr.results.quality.tables import misplaced_rows, table_parts
from llm_ocr.results.quality.text_layer import Chunk, chunks_of, is_true, texts_of, with_reread
from llm_ocr.types import Attempt, Block, Evidence, Ledger, Page, Quality, Reason, Span, Status, plural

if TYPE_CHECKING:
    from llm_ocr.results.ledger import Verify

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


#: Minimum characters of a block whose order is checked by its box.
_PARAGRAPH = 40


def score(page: Page, attempt: Attempt, verify: "Verify" = "layer") -> tuple[Quality, Ledger | None]:
    """Return the quality and the ledger of an answer. Takes several milliseconds of CPU: not for the event loop."""
    from llm_ocr.results.ledger import account  # the stage's process, which needs the limits alone, does not load it

    evidence = with_reread(page.evidence or Evidence(None), attempt)
    texts = texts_of(attempt.blocks)
    chunks = [chunk for entry in texts for chunk in entry.chunks]
    layer = is_true(evidence, attempt)
    printed = "\n".join(text for text, _ in evidence.lines) if layer else ""
    answer = "\n".join(entry.text for entry in texts)
    parts = {READABLE: 1 - _unreadable(answer)}
    # Only models loop: repetitions that the embedded engine reads are on the page.
    if attempt.source == "model" and (unrepeated := _unrepeated(answer, chunks)) is not None:
        # The layer's own repetitions are not defects of the answer.
        by_layer = _unrepeated(printed, chunks_of(printed)) if unrepeated < 1 else None
        looped = (1 - unrepeated) * len(answer) - (0.0 if by_layer is None else (1 - by_layer) * len(printed))
        parts[UNREPEATED] = min(1.0, 1 - looped / len(answer))
    if attempt.reason in _CUTS and attempt.source == "model":
        parts[WHOLE] = _CUT
    if attempt.confidence is not None:
        parts[CONFIDENT] = attempt.confidence
    parts |= table_parts(texts)
    lines = list(evidence.lines) if layer else []
    if verify == "ocr" and not layer and evidence.ocr:
        lines = [(line.text, line.box) for line in evidence.ocr.lines]
    lines = [(text, box.turned(attempt.rotation)) for text, box in lines]
    matches = matches_of(lines, texts)
    visits = visits_of(matches, texts)
    moved: list[Span] = []
    skipped: Mapping[int, int] = {}
    size = sum(len(entry.text) for entry in texts)
    if lines and size and verify != "ink":
        moved = [*misplaced(lines, texts, visits, drawn=layer), *misplaced_rows(lines, texts, level=layer)]
        skipped = skipped_lines(lines, texts, matches, drawn=layer)
        parts[PLACED] = max(0.0, 1 - sum(span.end - span.start for span in moved) / size)
    if layer:
        order = layer_order(evidence, texts, visits)
    else:  # that of the longer blocks with known positions
        longer = [block for block in attempt.blocks if block.kind not in ASIDE and len(block.text) >= _PARAGRAPH]
        order = in_order([(block.text, block.box) for block in longer if block.box.area < 1])
    if order is not None:
        parts[ORDER if layer else SEQUENCE] = order
    ledger = account(evidence, attempt, texts, verify, moved, skipped)
    if ledger is not None and page.content is not None and page.content.with_invisible:
        ledger = replace(ledger, unsupported_share=0.0, unsupported=())  # the user wants text without ink
    if ledger is not None:
        parts |= {READ: 1 - ledger.unread_share, SUPPORTED: 1 - ledger.unsupported_share}
    rounded = {name: round(value, 4) for name, value in parts.items()}
    worst = min((on_scale(name, value) for name, value in rounded.items()), default=1.0)
    return Quality(round(worst, 4), rounded), ledger


#: Other ways to read a page, by the source of its text.
_OTHER_WAYS = {
    "model": "`llm-ocr repair` reads it again",
    "text-layer": "a model, or OCR (`text_layer=never`), may read it better",
    "ocr": "a model may read it better",
}
#: Fewest characters of a text layer for which `LOW_OF_MODEL` applies. All measured pages of
#: `benchmarks/losses.py` have at least as many.
_ENOUGH_LAYER = 400


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a page that is `ok`, as set by the user; None: the default.

    Attributes:
        min_quality: Least quality of a model's answer. At 0, the other limits have no default.
        max_unread: Largest share 0..1 of the page's ink or text layer that was not read.
        max_unsupported: Largest share 0..1 of the answer's text that nothing on the page supports. Below 1, all
            numbers must be supported.
        verify: Evidence for the text; see `account`.
        by_ink: Whether the other limits have a default for pages that are verified by their ink alone.
    """

    min_quality: float | None = None
    max_unread: float | None = None
    max_unsupported: float | None = None
    verify: "Verify" = "layer"
    by_ink: bool = True

    def unbalanced(self, ledger: Ledger | None, blocks: Sequence[Block]) -> tuple[Reason, str] | None:
        """Return the reason and the details if a ledger does not balance within the limits."""
        from llm_ocr.results.ledger import contradicted

        if ledger is None:
            return None
        is_fitted = self.min_quality != 0 and (self.by_ink or ledger.verified_by != "ink")
        fitted = MOST[ledger.verified_by] if is_fitted else 1.0
        most_unread, most_unsupported = (
            fitted if limit is None else limit for limit in (self.max_unread, self.max_unsupported)
        )
        unread, unsupported = ledger.unread_share, ledger.unsupported_share
        numbers = contradicted(ledger, blocks) if most_unsupported < 1 else []
        found = []
        if unread > most_unread:
            found.append(f"text on the page that was not read: {percent(unread)}")
        if unsupported > most_unsupported:
            found.append(f"text that nothing on the page supports: {percent(unsupported)}")
        elif numbers:
            lacking = "OCR of the page" if ledger.verified_by == "ocr" else "the text layer"
            found.append(f"{plural(len(numbers), 'number')} that {lacking} lacks, the first is {numbers[0]}")
        if not found:
            return None
        # Of two faults, the larger one is the reason.
        is_unread = unread > most_unread and (unread > unsupported or unsupported <= most_unsupported)
        return Reason.UNREAD if is_unread else Reason.UNSUPPORTED, "; ".join(found)

    def judge(self, page: Page, attempt: Attempt) -> tuple[float, str]:
        """Return the quality of an answer, and which limits that the user set it misses; "" for none."""
        quality, ledger = score(page, attempt, self.verify)
        missed = []
        if self.min_quality and quality.score < self.min_quality:
            missed.append(f"its quality of {quality.score:.2f} is below {self.min_quality:g}")
        own = Limits(0, self.max_unread, self.max_unsupported, self.verify)
        if unbalanced := own.unbalanced(ledger, attempt.blocks):
            missed.append(unbalanced[1])
        return quality.score, "; ".join(missed)


#: The limits without settings.
FITTED = Limits()


def rated(
    page: Page, attempt: Attempt, limits: Limits, *, transcribed: bool = False
) -> tuple[Attempt, Quality, Ledger | None]:
    """Return the answer, its quality, and its ledger. An answer that is `ok` but not trustworthy becomes `degraded`.

    Args:
        page: The page, with its evidence.
        attempt: The answer.
        limits: Without a minimum quality, a model's answer must follow the order of a true text layer by
            `LOW_OF_MODEL`, and have no text where the page has other text, which is demanded of the embedded engine,
            too. The minimum of the embedded engine is always `LOW`.
        transcribed: Whether a model was asked for the page's own text. A user's prompt may demand another text. Its
            answers have no limit but the minimum quality, and must be empty for a blank page.
    """
    quality, ledger = score(page, attempt, limits.verify)
    if attempt.status is not Status.OK:
        return attempt, quality, ledger
    evidence = page.evidence or Evidence(None)
    found: tuple[Reason, str] | None = None
    if not attempt.blocks and evidence.ink is not None and not (evidence.no_ink or evidence.pale):
        found = Reason.EMPTY, "the page is not blank, but nothing was read"
    elif attempt.source == "model" and evidence.no_ink and ledger is not None and ledger.unsupported_share:
        found = Reason.UNSUPPORTED, "the page is blank, but the answer has text"
    elif attempt.source == "model" and attempt.blocks and evidence.pale:
        detail = "all ink is so pale that it may be the other side of the sheet; `verify=ocr` compares it with OCR"
        found = Reason.UNSUPPORTED, detail
    elif transcribed or attempt.source != "model":
        found = limits.unbalanced(ledger, attempt.blocks)
    if found is None:
        is_misplaced = quality.parts.get(PLACED, 1.0) < 1
        if attempt.source != "model":
            low = quality.score < LOW or is_misplaced
        elif limits.min_quality is not None:
            low = quality.score < limits.min_quality
        else:
            order = on_scale(ORDER, quality.parts.get(ORDER, 1.0))
            enough = sum(len(text) for text, _ in evidence.lines) >= _ENOUGH_LAYER
            low = transcribed and (is_misplaced or (order < LOW_OF_MODEL and enough))
        found = (Reason.LOW_QUALITY, what_is_wrong(quality.parts)) if low else None
    if found is None:
        return attempt, quality, ledger
    reason, what = found
    named = what in attempt.detail  # by `judge`, if the user set the limit
    details = (attempt.detail, "" if named else what, _OTHER_WAYS[attempt.source])
    detail = "; ".join(filter(None, details))
    return replace(attempt, status=Status.DEGRADED, reason=reason, detail=detail), quality, ledger
