"""Keep bold, italics, links, and scripts in the text of rows, and write them as Markdown.

Rows, list items, and cells of tables are joined, cut, and escaped as text, and their style goes with it as marks:
around superscripts and subscripts, and before each bold, italic, or linked word. The marks are noncharacters (Unicode
23.7). Text has none: `pdf_glyphs` reads such codes of a PDF as U+FFFD, and OCR has no such signs.

    U+FDD0 text U+FDD1        superscript
    U+FDD2 text U+FDD3        subscript
    U+FDD4, U+FDD5, U+FDD6    before a bold, an italic, a bold italic word
    U+FDD7                    before a regular word that follows another one without a space
    U+FDD8 U+FDE0 … U+FDE9    before a linked word, with the digits of the number of its link in `Measures.links`
"""

import re
from collections.abc import Sequence
from urllib.parse import quote

from llm_ocr.results.joining import is_cjk, join
from llm_ocr.types import Line, Script
from llm_ocr_cpu.layout.measures import Measures

_SUPERSCRIPT, _SUBSCRIPT = ("\ufdd0", "\ufdd1"), ("\ufdd2", "\ufdd3")
_TAGS = str.maketrans(dict(zip((*_SUPERSCRIPT, *_SUBSCRIPT), ("<sup>", "</sup>", "<sub>", "</sub>"), strict=True)))
_BOLD, _ITALIC, _BOTH, _REGULAR = "\ufdd4", "\ufdd5", "\ufdd6", "\ufdd7"
_FACES = {(True, False): _BOLD, (False, True): _ITALIC, (True, True): _BOTH}
_STARS = {_BOLD: "**", _ITALIC: "*", _BOTH: "***"}
_NOT_BOLD = {ord(_BOLD): None, ord(_BOTH): _ITALIC}
_MARKS = re.compile(f"[{_SUPERSCRIPT[0]}-{_REGULAR}]")
FACE_MARK = f"[{_BOLD}-{_REGULAR}]"  # pattern of the mark before a bold or italic word
_FACE = re.compile(FACE_MARK)
_LINK, _DIGITS = "\ufdd8", "".join(chr(0xFDE0 + digit) for digit in range(10))
_PREFIX = re.compile(f"[{_BOLD}-{_LINK}{_DIGITS}]")
_PREFIXES = re.compile(f"^{_PREFIX.pattern}+")
_LINKED = re.compile(rf"{_LINK}(?P<number>[{_DIGITS}]+)(?:\\.|[^\s*\\{_LINK}])+")
_SCHEMES = ("http", "https", "mailto")
_SCRIPT = re.compile(f"[{_SUPERSCRIPT[0]}{_SUBSCRIPT[0]}].*?[{_SUPERSCRIPT[1]}{_SUBSCRIPT[1]}]")
_IN_ADDRESS = "%:/?#@!$&'*+,;=~-._"
_SCHEME = re.compile(r"(?:https?://(?:www\.)?|mailto:|www\.)|/$", re.IGNORECASE)
_FACED = re.compile(f"(?P<face>[{_BOLD}-{_REGULAR}]?)(?P<text>[^ {_BOLD}-{_REGULAR}]+)(?P<space> *)")
_LETTERS = re.compile(r"[^\W\d_]{2}")
_SIGNS_BEFORE, _SIGNS_AFTER = re.compile(r"[(\s]+"), re.compile(r"[,;)\s]+$")
_SIGN_BEFORE, _SIGN_AFTER = re.compile(r"[^\w\\\ufdd0-\ufdef]+"), re.compile(r"[^\w\\\ufdd0-\ufdef]+$")
#: Fewest letters of emphasized text, which excludes variables of formulas.
_LEAST_LETTERS = 4
#: Number of characters from which a paragraph in one face is not emphasized.
_MOST_IN_ONE_FACE = 120


def marked_text(line: Line) -> str:
    """Return the text of a line with marks around its scripts, and before its bold and italic words."""
    text, marks = line.text, []
    for script in line.scripts:
        opening, closing = _SUBSCRIPT if script.lowered else _SUPERSCRIPT
        marks += [(script.start, 2, opening), (script.end, 0, closing)]
    at = 0
    for word in line.words:
        if (word.bold or word.italic or word.link) and text.startswith(word.text, at):
            number = "".join(_DIGITS[int(digit)] for digit in str(word.link))
            marks.append((at, 1, _FACES.get((word.bold, word.italic), "") + (_LINK + number if word.link else "")))
        at += len(word.text) + 1
    for at, _, mark in sorted(marks, reverse=True):
        text = f"{text[:at]}{mark}{text[at:]}"
    return text


def marked_words(line: Line) -> list[str]:
    """Return the words of a line with marks around their scripts; "" for a word without any, or with a part of one."""
    words, at = [], 0
    for word in line.words:
        end = at + len(word.text)
        own = [script for script in line.scripts if script.start < end and script.end > at]
        scripts = tuple(Script(one.start - at, one.end - at, one.lowered) for one in own)
        whole = all(at <= one.start and one.end <= end for one in own) and line.text[at:end] == word.text
        words.append(marked_text(Line(word.text, word.box, line.size, scripts=scripts)) if own and whole else "")
        at = end + 1
    return words


def unmarked(text: str) -> str:
    """Return the text without marks."""
    return _MARKS.sub("", text)


def tagged(text: str) -> str:
    """Return Markdown with the tags of the scripts instead of their marks, without emphasis and links."""
    return _PREFIX.sub("", text).translate(_TAGS)


def is_marked(line: Line) -> bool:
    """Return whether `marked_text` differs from the line's text."""
    return bool(line.scripts) or any(word.bold or word.italic or word.link for word in line.words)


def marked_end(marked: str, count: int) -> str:
    """Return the marked text without its first `count` characters, not counting marks."""
    opening = face = ""
    for at, character in enumerate(marked):
        if character in (_SUPERSCRIPT[0], _SUBSCRIPT[0]):
            opening = character
        elif character in (_SUPERSCRIPT[1], _SUBSCRIPT[1]):
            opening = ""
        elif _PREFIX.match(character):
            face += character
        elif count:
            count -= 1
            face = "" if character.isspace() else face
        else:
            return face + opening + marked[at:]
    return ""


def join_marked(first: str, second: str, words: frozenset[str]) -> str:
    """Join two lines of a paragraph with marks; see `join`."""
    bare, more = _PREFIX.sub("", first), _PREFIX.sub("", second)
    if len(bare) == len(first) and len(more) == len(second):
        return join(first, second, words)
    joined = join(bare, more, words)
    if joined == f"{bare} {more}":
        return f"{first} {second}"
    first = first if joined == bare + more else first[:-1]
    if is_cjk(more[:1]) and not _FACE.match(second):
        return f"{first}{_REGULAR}{second}"
    return first + (second if is_cjk(more[:1]) else _PREFIXES.sub("", second))


def emphasized(lines: Sequence[str], measures: Measures) -> list[str]:
    """Return the escaped lines of a paragraph or list item with links, and with `**` and `*` around words.

    Text is not emphasized in the main face of the page, nor a long paragraph in one face.
    """
    words = [found for line in lines for found in _FACED.finditer(line)]
    faces = {found["face"] for found in words}
    long = len(faces) == 1 and sum(len(found["text"]) for found in words) > _MOST_IN_ONE_FACE
    if measures.rtl or long or not any(map(_FACE.search, lines)):
        shown = [_FACE.sub("", line) for line in lines]
    else:
        shown = [_with_stars(line, measures) for line in lines]
    return [tagged(_with_links(line, measures.links) if _LINK in line else line) for line in shown]


def emphasized_heading(text: str, measures: Measures) -> str:
    """Return the escaped text of a heading with `*` around italic words; headings are bold or italic as a whole."""
    text = text.translate(_NOT_BOLD)
    faces = {found["face"] for found in _FACED.finditer(text)}
    return tagged(_with_stars(text, measures) if len(faces) > 1 and not measures.rtl else text)


def _with_links(line: str, links: Sequence[str]) -> str:
    """Return the line with `[text](address)` for consecutive words of a link; an address as text stays plain."""
    runs: list[tuple[int, int, int]] = []
    for found in _LINKED.finditer(line):
        number = int("".join(str(_DIGITS.index(digit)) for digit in found["number"]))
        if runs and runs[-1][2] == number and not line[runs[-1][1] : found.start()].strip(" "):
            runs[-1] = (runs[-1][0], found.end(), number)
        else:
            runs.append((found.start(), found.end(), number))
    for start, end, number in reversed(runs):
        text, address = _PREFIX.sub("", line[start:end]), links[number - 1]
        bare = re.sub(r"[\s\\]", "", _SCRIPT.sub("", text)).strip("().,;:")
        own = bare in _SCHEMES or (any(mark in bare for mark in "./@") and _SCHEME.sub("", bare) in address)
        if not own and any(character.isalnum() for character in bare):
            inner = text.rstrip(".,;:")
            named = re.sub(r"(?<!\\)[\[\]]", r"\\\g<0>", inner)
            text = f"[{named}]({quote(address, safe=_IN_ADDRESS)}){text[len(inner) :]}"
        line = line[:start] + text + line[end:]
    return line


def _with_stars(line: str, measures: Measures) -> str:
    runs: list[tuple[str, str, str]] = []  # stars, text, and the space after it
    for found in _FACED.finditer(line):
        stars = _STARS.get(found["face"], "")
        if measures.bold:
            stars = stars.replace("**", "", 1)
        if measures.italic:
            stars = "**" if len(stars) > 1 else ""
        in_word = bool(runs) and not runs[-1][2] and not is_cjk(found["text"][0])
        if runs and (in_word or runs[-1][0] == stars):
            runs[-1] = (runs[-1][0], runs[-1][1] + runs[-1][2] + found["text"], found["space"])
        else:
            runs.append((stars, found["text"], found["space"]))
    if not any(stars and _is_emphasis(text) for stars, text, _ in runs):
        return _FACE.sub("", line)
    shown, apart = "", True
    for place, (stars, text, space) in enumerate(runs):
        text = re.sub(r"(?<!\\)\*", r"\*", text)  # a single star that is text
        if stars and _is_emphasis(text):
            before, inner, after = _parted(text, apart=apart, ends=bool(space) or place + 1 == len(runs))
            text = f"{before}{stars}{inner}{stars}{after}"
        shown, apart = shown + text + space, bool(space)
    return shown


def _parted(text: str, *, apart: bool, ends: bool) -> tuple[str, str, str]:
    """Return signs before the emphasized text, the text, and signs after it.

    Stars between a letter and a sign, as in Chinese, are no marks (CommonMark 0.31, 6.2): all signs are outside if the
    text before or after touches. Otherwise, commas and single brackets are.
    """
    front, back = (_SIGNS_BEFORE if apart else _SIGN_BEFORE), (_SIGNS_AFTER if ends else _SIGN_AFTER)
    before = found[0] if (found := front.match(text)) and not (apart and ")" in text) else ""
    inner = text[len(before) :]
    after = found[0] if (found := back.search(inner)) and not (ends and "(" in inner and ")" in found[0]) else ""
    inner = inner[: len(inner) - len(after)]
    if inner.rfind("(") > max(inner.rfind(")"), 0):  # as in "iff (u" of a formula
        inner = inner[: inner.rfind("(")].rstrip()
    return before, inner, text[len(before) + len(inner) :]


def _is_emphasis(text: str) -> bool:
    """Return whether stars around the text would be marks: it has words, and does not end with a backslash."""
    letters = sum(character.isalpha() for character in text)
    least = 2 if is_cjk(text[0]) else _LEAST_LETTERS
    return letters >= least and _LETTERS.search(text) is not None and text[-1] != "\\"
