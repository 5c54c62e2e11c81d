"""Join two lines of a paragraph: spaces, hyphens at line ends, and scripts without spaces."""

import re
from collections.abc import Iterable

SOFT_HYPHEN = "\u00ad"
_HYPHENS = "-\u2010\u2011"

# Han, kana, bopomofo, CJK punctuation, and full-width forms. Hangul is excluded: Korean is written with spaces.
_CJK = re.compile(
    r"[\u2e80-\u312f\u31a0-\u31ff\u3200-\ua4cf\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff9f\U00020000-\U0003ffff]"
)
_TOKEN = re.compile(r"[^\s\u2014\u2013/(\[]+$")
_WORD = re.compile(r"[\w'’-]+")
_FILE = re.compile(r"[\w-]+\.[a-z]\w")
_ADDRESS = re.compile(r"(?:https?:|www\.|doi\.org|10\.\d{4})\S*$", re.IGNORECASE)
# A path of folders, and the rest of an address or path after a dot or slash; a word of the text has neither inside.
_PATH = re.compile(r"(?:^|[\s(])[~.]?(?:[\w.+-]*/){2,}$")
_REST = re.compile(r"[a-z][\w-]*[./][\w/-]{2}")

# First parts of compounds that English writes with a hyphen more often than without.
_COMPOUND = frozenset(
    [
        *("all", "cross", "eight", "fine", "first", "five", "four", "full", "half", "hard", "high", "ill", "large"),
        *("late", "left", "light", "long", "low", "lower", "mid", "near", "nine", "non", "off", "one", "open", "part"),
        *("quasi", "real", "right", "second", "self", "semi", "seven", "short", "single", "six", "small", "so"),
        *("state", "ten", "third", "three", "top", "two", "upper", "well", "wide", "zero"),
    ]
)

# Words that often begin a word without a hyphen: `overcome`, `withdraw`.
_OPENINGS = frozenset(
    ["after", "back", "down", "every", "fore", "here", "other", "over", "some", "there", "under", "with"]
)

# Words between the hyphens of compounds, such as `state-of-the-art`.
_JOINTS = frozenset(["a", "and", "by", "for", "in", "of", "on", "or", "the", "to"])


def vocabulary(texts: Iterable[str]) -> frozenset[str]:
    """Return the words of a page in lower case; they decide whether a hyphen at a line end belongs to the word.

    A small letter at the start of a line may begin the rest of a word, which is no word of its own.
    """
    words: set[str] = set()
    for text in texts:
        found = _WORD.findall(text)
        rest = bool(found) and found[0][0].islower()
        words.update(word.lower() for word in found[rest:])
    return frozenset(words)


def is_cjk(character: str) -> bool:
    """Return whether the character belongs to a script without spaces between words."""
    return _CJK.match(character) is not None


def clean(text: str) -> str:
    """Return the text without soft hyphens and without spaces at the ends."""
    return text.replace(SOFT_HYPHEN, "").strip() if SOFT_HYPHEN in text else text.strip()


def _hyphen_stays(first: str, second: str, words: frozenset[str]) -> bool:
    """Return whether the hyphen that ends `first` belongs to the word; `second` continues in lower case."""
    token = _TOKEN.search(first)
    stem = (token[0] if token else first)[:-1].lower().lstrip("\"'“‘([")
    follow = _WORD.match(second.lower())
    rest = follow[0] if follow else ""
    joint, _, end = rest.partition("-")
    if f"{stem}-{rest}" in words or (end and joint in _JOINTS) or _FILE.match(second):  # end-to-end, part-one.pdf
        return True
    if stem + rest in words:
        return False
    if len(stem) == 1 or not stem.replace("-", "").isalpha():  # no word is divided after its first letter
        return True
    *front, last = stem.split("-")
    # Two longer words of the page are a compound, unless the first is a part of many words.
    if not front and min(len(stem), len(rest)) > 3 and stem in words and rest in words and stem not in _OPENINGS:
        return True
    if not front or last + rest in words:
        return not front and last in _COMPOUND
    # The hyphen after a compound divides its last word, unless a part of that word is a word of its own.
    return last in _COMPOUND or last in _JOINTS or last in words or rest in words


def _is_capital_word(first: str, second: str, words: frozenset[str]) -> bool:
    """Return whether a hyphen divides a word in capitals that the page has undivided."""
    token, follow = _TOKEN.search(first), _WORD.match(second)
    parts = (token[0][:-1] if token else "", follow[0] if follow else "")
    return all(part.isupper() for part in parts) and "".join(parts).lower() in words


def join(first: str, second: str, words: frozenset[str] = frozenset()) -> str:
    """Join `first` and `second` as text of one paragraph. `words`: the page's vocabulary."""
    if not first or not second:
        return first or second
    last, begin = first[-1], second[0]
    if last == SOFT_HYPHEN:
        return first.rstrip(SOFT_HYPHEN) + second
    if last in _HYPHENS and len(first) > 1 and first[-2].isalnum():
        if (
            (begin.islower() or _is_capital_word(first, second, words))
            and not _ADDRESS.search(first)
            and not _hyphen_stays(first, second, words)
        ):
            return first[:-1] + second
        return first + second
    if last in "—–" and len(first) > 1 and not first[-2].isspace() and begin.isalnum():
        return first + second
    if is_cjk(last) and is_cjk(begin):
        return first + second
    # A capital begins a word of the text, unless the token has digits, as in `CorpusID:49552345`.
    token = second.split(maxsplit=1)[0]
    in_address = begin.isascii() and (begin.islower() or any(map(str.isdigit, token)))
    goes_on = (last in "/_=&?" and in_address) or begin in "/_=&?" or (last == "." and _REST.match(token) is not None)
    if goes_on and _ADDRESS.search(first):
        return first + second
    if last == "/" and _REST.match(token) and _PATH.search(first):
        return first + second
    if first.endswith(("http:", "https:")) and second.startswith("//"):
        return first + second
    return f"{first} {second}"
