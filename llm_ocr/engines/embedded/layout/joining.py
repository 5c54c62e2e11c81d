"""Two lines of one paragraph into one: spaces, hyphens at line ends, scripts without spaces."""

import re
from collections.abc import Iterable

SOFT_HYPHEN = "\u00ad"
_HYPHENS = "-\u2010\u2011"

# Han, kana, bopomofo, CJK punctuation and full-width forms. Hangul is not among them: Korean is written with spaces.
_CJK = re.compile(
    r"[\u2e80-\u312f\u31a0-\u31ff\u3200-\ua4cf\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff9f\U00020000-\U0003ffff]"
)
_TOKEN = re.compile(r"[^\s\u2014\u2013/(\[]+$")
_WORD = re.compile(r"[\w'’-]+")
_ADDRESS = re.compile(r"(?:https?:|www\.|doi\.org|10\.\d{4})\S*$", re.IGNORECASE)

# First parts of compounds that English writes with a hyphen more often than without.
_COMPOUND = frozenset(
    [
        *(
            "all",
            "cross",
            "eight",
            "fine",
            "first",
            "five",
            "four",
            "full",
            "half",
            "hard",
            "high",
            "ill",
            "large",
            "late",
        ),
        *("left", "light", "long", "low", "lower", "mid", "near", "nine", "non", "off", "one", "open", "part", "quasi"),
        *("real", "right", "second", "self", "semi", "seven", "short", "single", "six", "small", "so", "state", "ten"),
        *("third", "three", "top", "two", "upper", "well", "wide", "zero"),
    ]
)


def vocabulary(texts: Iterable[str]) -> frozenset[str]:
    """The words of a page in lower case; they decide whether a hyphen at a line end belongs to the word."""
    return frozenset(word for text in texts for word in _WORD.findall(text.lower()))


def is_cjk(character: str) -> bool:
    """Whether the character belongs to a script that puts no spaces between words."""
    return _CJK.match(character) is not None


def clean(text: str) -> str:
    """Without soft hyphens inside, and without spaces at the ends."""
    return text.replace(SOFT_HYPHEN, "").strip() if SOFT_HYPHEN in text else text.strip()


def _hyphen_stays(first: str, second: str, words: frozenset[str]) -> bool:
    """Whether the hyphen that ends `first` belongs to the word; `second` goes on in lower case."""
    token = _TOKEN.search(first)
    stem = (token[0] if token else first)[:-1].lower().lstrip("\"'“‘([")
    follow = _WORD.match(second.lower())
    rest = follow[0] if follow else ""
    if f"{stem}-{rest}" in words:
        return True
    if stem + rest in words:
        return False
    if "-" in stem or not stem.isalpha():
        return True
    return stem in _COMPOUND


def join(first: str, second: str, words: frozenset[str] = frozenset()) -> str:
    """`first` and `second` as they read in one paragraph. `words`: the page's vocabulary."""
    if not first or not second:
        return first or second
    last, begin = first[-1], second[0]
    if last == SOFT_HYPHEN:
        return first.rstrip(SOFT_HYPHEN) + second
    if last in _HYPHENS and len(first) > 1 and first[-2].isalnum():
        if begin.islower() and not _ADDRESS.search(first) and not _hyphen_stays(first, second, words):
            return first[:-1] + second
        return first + second
    if last in "—–" and len(first) > 1 and not first[-2].isspace() and begin.isalnum():
        return first + second
    if is_cjk(last) and is_cjk(begin):
        return first + second
    if last in "/_=&?" and _ADDRESS.search(first) and begin.isascii() and (begin.islower() or begin.isdigit()):
        return first + second
    return f"{first} {second}"
