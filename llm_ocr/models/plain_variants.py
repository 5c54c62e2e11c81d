"""Plain Markdown with habits of one family each: Nanonets' tags, and repetitions that GLM-OCR and HunyuanOCR end in."""

import re
from collections.abc import Iterator
from dataclasses import replace

from llm_ocr.models.coordinates import WHOLE_PAGE
from llm_ocr.models.inserts import Insert, placeless, with_inserts
from llm_ocr.models.periods import LONGEST_PERIOD, whole_run
from llm_ocr.models.plain import parse_plain, plain_body
from llm_ocr.models.profile import NO_FRAME, Frame, Parsed
from llm_ocr.models.splitting import without_cut
from llm_ocr.types import Block, BlockKind

_TAG = re.compile(r"<(?P<close>/?)(?P<name>img|watermark|page_number)>", re.IGNORECASE)
_TAG_CUT = re.compile(r"</?(?:im?g?|w[a-z]{0,8}|p[a-z_]{0,10})?\Z", re.IGNORECASE)
_TABLE_MARKS = ("<t", "</t", "|", "&")
#: As many characters must be equal before a repetition is looked for.
_NEEDLE = 20
#: GLM-OCR's and HunyuanOCR's own clients cut a repetition at the end of an answer from so many of it on; GLM's only
#: those of a unit of ten characters, Hunyuan's only in answers of eight thousand.
_REPEATS = 10
_GLM_UNIT = 10
_HUNYUAN_LENGTH = 8000


def parse_nanonets(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Blocks of an answer of Nanonets-OCR2. Never raises; linear in the length.

    `<img>` holds a figure's caption or a description of it, without a place: a text with the label `image`.
    `<watermark>` and `<page_number>` are furniture.
    """
    body, _ = without_cut(plain_body(text), _TAG_CUT)
    return Parsed(tuple(with_inserts(body, list(_tags(body)))))


def _tags(text: str) -> Iterator[Insert]:
    """One for each pair of tags; a tag without an end goes to the end of its line, and no further than the next."""
    opened: re.Match[str] | None = None
    for tag in _TAG.finditer(text):
        if opened is not None:
            pair = tag["close"] and tag["name"].lower() == opened["name"].lower()
            if pair:
                yield _tagged(opened, text[opened.end() : tag.start()], tag.end())
                opened = None
                continue
            yield _open_tag(text, opened, tag.start())
            opened = None
        if tag["close"]:
            yield Insert(tag.start(), tag.end())
        else:
            opened = tag
    if opened is not None:
        yield _open_tag(text, opened, len(text))


def _open_tag(text: str, opened: re.Match[str], end: int) -> Insert:
    line = text.find("\n", opened.end(), end)
    end = end if line < 0 else line
    return _tagged(opened, text[opened.end() : end], end)


def _tagged(opened: re.Match[str], inner: str, end: int) -> Insert:
    words = " ".join(inner.split())
    if not words:
        return Insert(opened.start(), end)
    match opened["name"].lower():
        case "img":
            return Insert(opened.start(), end, placeless("image", words), words)
        case "watermark":
            return Insert(opened.start(), end, Block(BlockKind.HEADER, WHOLE_PAGE, words, "watermark"))
        case _:
            return Insert(opened.start(), end, Block(BlockKind.PAGE_NUMBER, WHOLE_PAGE, words, "page_number"))


def parse_glm(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Blocks of an answer of GLM-OCR, without a repetition at its end. Never raises; linear in the length."""
    return _without_repetition(text, 0, _GLM_UNIT)


def parse_hunyuan(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Blocks of an answer of HunyuanOCR, a long one without a repetition at its end. Never raises; linear."""
    return _without_repetition(text, _HUNYUAN_LENGTH, 1)


def _without_repetition(text: str, least_length: int, least_unit: int) -> Parsed:
    """Shorter loops than those by which an answer is judged (`repetition.py`): of words only, as tables repeat."""
    body = plain_body(text)
    end = _first_of_run(body, least_unit) if len(body) >= least_length else None
    if end is None:
        return parse_plain(body)
    parsed = parse_plain(body[:end])
    return replace(parsed, lost=(*parsed.lost, f"the answer repeats itself after {end} characters; this was cut off"))


def _first_of_run(text: str, least_unit: int) -> int | None:
    """Where the text ends without all but the first of the repetitions at its end; None for too few of them."""
    start = len(text) - _NEEDLE
    before = text.rfind(text[start:], max(0, start - LONGEST_PERIOD), len(text) - 1) if start > 0 else -1
    if before < 0:
        return None
    period = start - before
    unit = text[-period:]
    run = whole_run(text, period)
    if run < _REPEATS * max(period, least_unit) or not _words(unit):
        return None
    return len(text) - (run // period - 1) * period


def _words(unit: str) -> bool:
    """Whether a unit is made of words: rows of a table, leaders and lines to write on may repeat on a page."""
    if any(mark in unit * 2 for mark in _TABLE_MARKS):
        return False
    letters = sum(map(str.isalpha, unit))
    return 2 * letters > len("".join(unit.split()))
