"""Find the words of a document about its figures: captions, and sentences inside a figure, which describe it."""

import json
import re
from dataclasses import replace

from llm_ocr.types import FigureRecord

#: Modes of the Describe stage. The CPU engine has only the first.
MODES = ("describe", "parse", "classify")


_NUMBER = r"(?:[A-Z]{0,2}[\s.\-]?\d+(?:[.\-–]\d+)*[a-z]?|[IVXL]+\b|[A-Z]\b)"
TABLE_CAPTION = re.compile(
    rf"^\W{{0,2}}(?:table|tab\.|tabelle|tableau|tabla|tabela|tabella|表|표)\s*{_NUMBER}", re.IGNORECASE
)

FIGURE_CAPTION = re.compile(
    rf"^\W{{0,2}}(?:(?:figure|fig\.?|figura|abbildung|abb\.?|chart|exhibit|plate|scheme|diagram|photo|graph|illustration|map|bild)"
    rf"\s*{_NUMBER}|[图圖図그림]{{1,2}}\s*[\d一二三四五六七八九十]+)\s*(?:[.:|,)–—-]|\s|$)",
    re.IGNORECASE,
)


_LONGEST_INSIDE = 1000  # characters
#: Beginning of a description that is text inside the figure.
INSIDE = "Text inside the figure: "
# Fewest words of a row of prose. Labels of axes, legends, and parts have fewer words, or no end mark follows.
_ROW_WORDS = 5
_END_MARK = re.compile(r"[.!?…。！？][\"'”’»)\]]*$")
_WORD = re.compile(r"[^\W\d_]{2,}")
# Scripts without spaces between words (Chinese, Japanese, Thai): two characters are about one word.
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff]")


def sentences_inside(inside: str) -> str:
    """Return the prose inside a figure as a description; "" without prose.

    Prose is rows of at least five words up to a row with an end mark, which may be shorter. Tick marks, labels,
    legends, and recognition errors have no such rows. Without the drawing, they are not readable.
    """
    prose: list[str] = []
    passage: list[str] = []
    for row in (" ".join(line.split()) for line in inside.splitlines()):
        ends = bool(_END_MARK.search(row))
        passage = [*passage, row] if _words(row) >= _ROW_WORDS or (passage and ends) else []
        if passage and ends:
            prose += passage
            passage = []
    return f"{INSIDE}{_shortened(' '.join(prose))}" if prose else ""


def _words(row: str) -> int:
    return len(_WORD.findall(_UNSPACED.sub(" ", row))) + len(_UNSPACED.findall(row)) // 2


def data_inside(inside: str) -> str:
    """Return all text inside a figure as `data` of its record: `{"inside": text}`; "" without text."""
    return json.dumps({"inside": inside.strip()}, ensure_ascii=False) if inside.strip() else ""


# Descriptions of older versions repeat the caption and list all text inside the figure.
_OLD = re.compile(r'(?:Caption: ".*?")?(?: ?Text inside the figure: "(?P<inside>.*)")?', re.DOTALL)


def current_form(record: FigureRecord) -> FigureRecord:
    """Return a row of Describe of an older version in the form of this version; other rows unchanged."""
    old = None if record.data or not record.description else _OLD.fullmatch(record.description)
    if old is None:
        return record
    inside = (old["inside"] or "").replace("; ", "\n")
    return replace(record, description=sentences_inside(inside), data=data_inside(inside))


def known_text(caption: str, inside: str) -> str:
    """Return `Caption: "…" Text inside the figure: "…"` for a model's prompt, without unknown parts.

    Rows are joined by `; `.
    """
    rows = [" ".join(row.split()) for row in inside.splitlines()]
    parts = {
        "Caption": " ".join(caption.split()),
        "Text inside the figure": _shortened("; ".join(row for row in rows if row)),
    }
    return " ".join(f'{name}: "{text}"' for name, text in parts.items() if text)


def _shortened(text: str) -> str:
    if len(text) <= _LONGEST_INSIDE:
        return text
    cut = text.rfind(" ", 0, _LONGEST_INSIDE)
    return text[: cut if cut > 0 else _LONGEST_INSIDE].rstrip("; ") + " …"
