"""Text that was made for search engines: download sites for books, and shops for medicine."""

import re
from collections import Counter

from llm_ocr.documents.filters import SPAM, DocumentView, LeftOut, enough_text

#: The words of olmOCR's rule, and the share of a text's words above which it is spam (allenai/olmocr @ 4f34e02,
#: olmocr/filter/filter.py).
WORDS = frozenset(
    [
        *("download", "pdf", "epub", "mobi", "free", "ebook"),
        *("file", "save", "casino", "viagra", "cialis", "ciprofloxacin"),
    ]
)
SHARE = 0.004
#: Different ones of the words that must be there. olmOCR asks for one, and of 335 stretches of 3,000 characters of real
#: documents calls 11 spam, because a page says `free` three times; with three of them none is.
DIFFERENT = 3

_WORD = re.compile(r"\w+")


def spam(view: DocumentView) -> LeftOut | None:
    """Left out when several of the words make up more than `SHARE` of the text."""
    text = view.text()
    if not enough_text(text):
        return None
    words = Counter(_WORD.findall(text.lower()))
    met = {word: words[word] for word in WORDS if words[word]}
    share = sum(met.values()) / max(1, words.total())
    if share <= SHARE or len(met) < DIFFERENT:
        return None
    shown = ", ".join(sorted(met, key=lambda word: (-met[word], word))[:3])
    return LeftOut(SPAM, f"{share:.1%} of {words.total()} words: {shown}")
