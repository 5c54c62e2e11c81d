"""The text that a reader of a page's HTML sees, and the words that a search finds it by.

`terms` has its twin in `site/search.js`: both must cut a text alike.
"""

import re
import unicodedata
from collections.abc import Iterator
from html import unescape

#: Tags and the text between them, in HTML that nh3 has written: it escapes `<` and `>` in texts and attributes.
PIECES = re.compile(r"<[^>]*>|[^<]+")
_INLINE = re.compile(r"</?(?:b|i|em|strong|u|s|del|sub|sup|code|a|mark)[\s>]")
_TERM = re.compile(r"[^\W_]+")
#: Scripts that are written without spaces, as ranges of a regular expression: Thai to Myanmar, kana, Han.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_RUN = re.compile(f"[{UNSPACED}]+")
#: Characters of a term; longer ones are cut, in searches too.
LONGEST_TERM = 40


def visible_text(html: str) -> str:
    """The text of a page's HTML with single spaces."""
    pieces = (" " if piece[0] == "<" and not _INLINE.match(piece) else _text(piece) for piece in PIECES.findall(html))
    return " ".join("".join(pieces).split())


def terms(text: str) -> Iterator[str]:
    """The search terms of a text, with repetitions: words in lower case without accents, pairs where no spaces are."""
    plain = unicodedata.normalize("NFKD", text).lower()
    plain = plain if plain.isascii() else "".join(one for one in plain if unicodedata.category(one)[0] != "M")
    for word in _TERM.findall(plain):
        if word.isascii():
            yield word[:LONGEST_TERM]
        else:
            yield from _split(word)


def _split(word: str) -> Iterator[str]:
    at = 0
    for run in _RUN.finditer(word):
        if run.start() > at:
            yield word[at : run.start()][:LONGEST_TERM]
        text = run[0]
        yield from (text[place : place + 2] for place in range(max(1, len(text) - 1)))
        at = run.end()
    if at < len(word):
        yield word[at:][:LONGEST_TERM]


def _text(piece: str) -> str:
    return "" if piece[0] == "<" else unescape(piece)
