"""Find display formulas in a text layer, and write those as LaTeX whose structure is certain."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from statistics import median

from llm_ocr.engines.embedded.regions import FORMULA, Region
from llm_ocr.engines.embedded.trace import note, relative, tracing
from llm_ocr.types import Box, Line, PageContent, Word

# LaTeX of a formula from its words: fractions and roots from their rules, limits and scripts from sizes and baselines.


#: Extent of a word's box below its baseline, and its height, in font sizes (as `documents.pdf_glyphs` makes them).
_DESCENT, _HEIGHT = 0.22, 1.02
#: Size of a script relative to its base, and the least distance of its baseline in sizes of the base.
_SCRIPT_SIZE, _SCRIPT_SHIFT = 0.88, 0.06
#: Greatest distance of baselines of a row in font sizes.
_LEVEL = 0.12
_DEEPEST = 4

_LIST = re.compile(r"[A-Za-z]+")
_FUNCTIONS = frozenset(
    _LIST.findall(
        "arccos arcsin arctan arg cos cosh cot deg det dim exp gcd inf ker lim ln log max min sin sinh sup tan"
    )
)
_TEXT = frozenset(_LIST.findall("all and any as else for if in is on or otherwise such that then to when where with"))
_LIMITED = ("lim", "max", "min", "sup", "inf", "det", "gcd", "arg")  # functions with limits below
_BIG = {"∑": r"\sum", "∏": r"\prod", "∫": r"\int", "∮": r"\oint", "⋃": r"\bigcup", "⋂": r"\bigcap"}
_NAMES = {
    **{
        "≤": "le",
        "≥": "ge",
        "≠": "ne",
        "≈": "approx",
        "≡": "equiv",
        "∼": "sim",
        "≃": "simeq",
        "≅": "cong",
        "∝": "propto",
    },
    **{"·": "cdot", "⋅": "cdot", "×": "times", "÷": "div", "±": "pm", "∓": "mp", "∗": "ast", "∘": "circ", "⊕": "oplus"},
    **{"⊗": "otimes", "→": "to", "←": "leftarrow", "⇒": "Rightarrow", "⇔": "Leftrightarrow", "↦": "mapsto"},
    **{"∈": "in", "∉": "notin", "⊂": "subset", "⊆": "subseteq", "∪": "cup", "∩": "cap", "∅": "emptyset", "∧": "wedge"},
    **{"∨": "vee", "¬": "neg", "∀": "forall", "∃": "exists", "∞": "infty", "∂": "partial", "∇": "nabla", "ℓ": "ell"},
    **{"…": "ldots", "⋯": "cdots", "′": "prime", "‖": "|", "∥": "|", "∣": "mid", "⟨": "langle", "⟩": "rangle"},
    **{"{": "{", "}": "}", "%": "%", "#": "#", "&": "&", "ϵ": "epsilon", "ϕ": "phi", "ϑ": "vartheta", "ℏ": "hbar"},
}
_GREEK = _LIST.findall(  # from U+03B1
    "alpha beta gamma delta varepsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho varsigma sigma tau "
    "upsilon varphi chi psi omega"
)
_CAPITALS = _LIST.findall("Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega")
_LATEX = {
    **{sign: f"\\{name} " if name[-1].isalpha() else f"\\{name}" for sign, name in _NAMES.items()},
    **{chr(0x3B1 + at): f"\\{name} " for at, name in enumerate(_GREEK) if name != "omicron"},
    **{letter: f"\\{name} " for letter, name in zip("ΓΔΘΛΞΠΣΥΦΨΩ", _CAPITALS, strict=True)},
    **{"−": "-", "–": "-", "µ": r"\mu ", "<": r"\lt ", ">": r"\gt ", "*": r"\ast "},  # no Markdown, no HTML
}
#: Accents above letters, as combining characters.
_OVER = {
    "\u0302": "hat",
    "\u0303": "tilde",
    "\u0304": "bar",
    "\u0307": "dot",
    "\u0308": "ddot",
    "\u030c": "check",
    "\u20d7": "vec",
}
_PIECES = re.compile(rf".[{''.join(_OVER)}]|[A-Za-z]+(?![{''.join(_OVER)}])|.")
_PLAIN = re.compile(r"[A-Za-z0-9+\-=()\[\]|/,.;:!']")
_NUMBER = re.compile(r"\([A-Z]?\.?\d{1,3}(?:\.\d{1,3})*[a-z]?\)")


#: Operators at an end, after which a part of the formula is missing.
_OPEN_END = re.compile(r"(?:[+\-=<>^_]|\\(?:cdot|times|pm|le|ge|approx|in|to|sum|prod|int) ?)$|^[=<>^_]")


class _Uncertain(Exception):
    """The structure of the formula is not certain."""


@dataclass(frozen=True, slots=True)
class _Atom:
    """Part of a formula on one baseline: a word, or a fraction or root with its contents."""

    latex: str
    x0: float
    x1: float
    base: float
    size: float
    big: bool = False  # an operator with limits
    built: bool = False  # a fraction or root, whose baseline and size are those of its formula


def latex_of(words: Sequence[Word], rules: Sequence[Box]) -> str:
    """Return the LaTeX of a formula, with balanced braces; "" if its structure is not certain.

    Args:
        words: Words of one size and baseline each.
        rules: Horizontal rules within the formula.
    """
    try:
        body, tag = _without_number(words)
        latex = _parsed(body, rules, 0)
        return "" if _OPEN_END.search(latex) else latex + tag
    except _Uncertain:
        return ""


def _without_number(words: Sequence[Word]) -> tuple[list[Word], str]:
    """Return the words without the equation's number, and its tag."""
    ordered = sorted(words, key=lambda word: word.box.x0)
    last = ordered[-1]
    rest = ordered[:-1]
    if (
        rest
        and _NUMBER.fullmatch(last.text)
        and last.box.x0 - max(word.box.x1 for word in rest) > 1.5 * last.box.height
    ):
        return rest, f" \\tag{{{last.text[1:-1]}}}"
    return ordered, ""


def _parsed(words: Sequence[Word], rules: Sequence[Box], depth: int) -> str:
    if not words or depth > _DEEPEST:
        raise _Uncertain
    left, used = list(words), list[Box]()
    built: list[_Atom] = []
    for rule in sorted(rules, key=lambda one: -one.width):
        if any(_contains(other, rule) for other in used):
            continue  # of an inner fraction or root
        under = [word for word in left if _contains(rule, word.box) and _middle(word.box) > rule.y0]
        over = [word for word in left if _contains(rule, word.box) and _middle(word.box) < rule.y0]
        inner = [one for one in rules if one is not rule and _contains(rule, one)]
        sign = _root_sign(left, rule)
        if sign is not None and under and not over:
            latex = f"\\sqrt{{{_parsed(under, inner, depth + 1)}}}"
            size = max(map(_size, under))
            base = next(_base(word) for word in under if _size(word) == size)
            left = [word for word in left if word is not sign]
            if sign.text != "√":
                left.append(Word(sign.text[:-1], Box(sign.box.x0, sign.box.y0, rule.x0, sign.box.y1)))
            x0 = sign.box.x0 if sign.text == "√" else rule.x0
        elif under and over:
            above = _parsed(over, [one for one in inner if one.y0 < rule.y0], depth + 1)
            latex = f"\\frac{{{above}}}{{{_parsed(under, [one for one in inner if one.y0 > rule.y0], depth + 1)}}}"
            size = max(map(_size, (*under, *over)))
            x0, base = rule.x0, rule.y0 + 0.25 * size
        else:
            raise _Uncertain
        used.append(rule)
        left = [word for word in left if word not in under and word not in over]
        built.append(_Atom(latex, x0, rule.x1, base, size, built=True))
    return _row([*(atom for word in left for atom in _atoms(word)), *built], depth)


def _contains(rule: Box, box: Box) -> bool:
    slack = 0.15 * max(box.height, 4.0)
    return rule.x0 - slack <= box.x0 and box.x1 <= rule.x1 + slack


def _middle(box: Box) -> float:
    return (box.y0 + box.y1) / 2


def _size(word: Word) -> float:
    return word.box.height / _HEIGHT


def _base(word: Word) -> float:
    return word.box.y1 - _DESCENT * _size(word)


def _root_sign(words: Sequence[Word], rule: Box) -> Word | None:
    """Return the word that ends with a root sign at the left end of the rule."""
    near = [word for word in words if word.text.endswith("√") and abs(word.box.x1 - rule.x0) < 0.3 * word.box.height]
    return next((word for word in near if word.box.y0 - 0.3 * word.box.height < rule.y0 < word.box.y1), None)


def _atoms(word: Word) -> list[_Atom]:
    """Return the word as an atom; a function with limits and the letters after it are two."""
    if word.doubtful:
        raise _Uncertain
    text, box = word.text, word.box
    function = next((name for name in _LIMITED if text.startswith(name) and _opening_function(text) == name), "")
    if function and text != function:
        middle = box.x0 + box.width * len(function) / len(text)
        first, second = replace(box, x1=middle), replace(box, x0=middle)
        return [*_atoms(Word(function, first)), *_atoms(Word(text[len(function) :], second))]
    big = text in _BIG or text in _LIMITED
    latex = f"\\text{{ {text} }}" if text in _TEXT and not word.italic else _symbols(text)
    return [_Atom(latex, box.x0, box.x1, _base(word), _size(word), big)]


def _symbols(text: str) -> str:
    latex = ""
    for piece in _PIECES.findall(text if text.isascii() else unicodedata.normalize("NFD", text)):
        function = _opening_function(piece)
        if function:
            latex += f"\\{function} {_symbols(piece[len(function) :])}"
        elif piece[-1] in _OVER:
            latex += f"\\{_OVER[piece[-1]]}{{{_symbol(piece[0])}}}"
        elif piece.isascii() and piece.isalpha() and len(piece) > 3:
            latex += f"\\mathrm{{{piece}}}"
        else:
            latex += "".join(map(_symbol, piece))
    return latex


def _opening_function(text: str) -> str:
    """Return the function at the beginning, such as `max` of `maxf`, if two letters or another function follow."""
    for end in range(len(text), 1, -1):
        if text[:end] in _FUNCTIONS and (len(text) - end <= 2 or _opening_function(text[end:])):
            return text[:end]
    return ""


def _symbol(character: str) -> str:
    plain = unicodedata.normalize("NFKC", character) if character > "\U0001d3ff" else character
    if plain in _BIG:
        return _BIG[plain]
    if plain in _LATEX:
        return _LATEX[plain]
    if len(plain) == 1 and _PLAIN.match(plain):
        return plain
    raise _Uncertain


def _row(atoms: list[_Atom], depth: int) -> str:
    """Return the LaTeX of atoms beside each other: those of the main size on one baseline, with scripts and limits."""
    ordered = sorted(atoms, key=lambda atom: (atom.x0, atom.x1))
    usual = [atom for atom in ordered if not atom.big and not atom.built] or ordered
    size = max(atom.size for atom in usual)
    main = [atom for atom in usual if atom.size > _SCRIPT_SIZE * size]
    base = main[0].base
    if any(abs(atom.base - base) > _LEVEL * size for atom in main):
        raise _Uncertain
    hosts = [atom for atom in ordered if atom in main or _stands(atom, base, size)]
    above: dict[int, list[_Atom]] = {}
    below: dict[int, list[_Atom]] = {}
    for atom in ordered:
        if atom not in hosts:
            place = _host(atom, hosts, size)
            shift = (base - atom.base) / size
            if abs(shift) < _SCRIPT_SHIFT or atom.built:
                raise _Uncertain
            (above if shift > 0 else below).setdefault(place, []).append(atom)
    latex = ""
    for place, host in enumerate(hosts):
        if latex and host.latex[0].isdigit() and latex[-1] == "}" and not hosts[place - 1].latex:
            raise _Uncertain
        latex += host.latex
        for mark, scripts in (("_", below.get(place)), ("^", above.get(place))):
            if scripts:
                latex = f"{latex.rstrip()}{mark}{{{_scripts(scripts, depth)}}}"
        if latex[-1].isalpha() and host.big:
            latex += " "
    return latex


def _stands(atom: _Atom, base: float, size: float) -> bool:
    """Return whether a large operator, fraction, or root is in the row, and is no script."""
    if atom.big:
        return atom.size > _SCRIPT_SIZE * size
    return atom.built and atom.size > 0.6 * size and abs(atom.base - base) < 0.35 * size


def _host(atom: _Atom, hosts: Sequence[_Atom], size: float) -> int:
    """Return the index of the atom that a script or limit belongs to: the operator above or below, or that before."""
    middle = (atom.x0 + atom.x1) / 2
    for place, host in enumerate(hosts):
        if host.big and host.x0 - 0.6 * size < middle < host.x1 + 0.6 * size:
            return place
    before = [place for place, host in enumerate(hosts) if host.x1 - 0.25 * size <= atom.x0]
    if not before or atom.size > _SCRIPT_SIZE * size:
        raise _Uncertain
    place = before[-1]
    if not hosts[place].big and hosts[place].latex.strip()[-1:] in "+-=<>(":
        raise _Uncertain
    following = hosts[place + 1].x0 if place + 1 < len(hosts) else atom.x1
    if atom.x0 - hosts[place].x1 > 1.6 * size or atom.x1 > following + 0.25 * size:
        raise _Uncertain
    return place


def _scripts(atoms: list[_Atom], depth: int) -> str:
    if depth >= _DEEPEST:
        raise _Uncertain
    return _row(atoms, depth + 1).strip()


# Display formulas on a page: lines without words, with a relation or a large operator, set apart from the text.


_RELATIONS = frozenset("=≤≥≈≡≠∼≃≅∝→∈⊂⊆∑∏∫√")
_STRONG = frozenset("∑∏∫√")
#: Parts of large brackets, and operators at which formulas of several rows are divided.
_PARTS, _CONTINUED = frozenset("⎛⎜⎝⎞⎟⎠⎡⎢⎣⎤⎥⎦⎧⎨⎩⎫⎬⎭⎪"), frozenset("+−×±")
_BRACKETS = frozenset("()[]{}|∥⎛⎜⎝⎞⎟⎠⎡⎢⎣⎤⎥⎦⎧⎨⎩⎫⎬⎭⎪")
_WORD = re.compile(r"[^\W\d_]{2,}")
#: Distance of a formula from the left side of its column, and of its parts from each other, in font sizes.
_INDENT, _REACH, _BESIDE = 1.5, 2.2, 4.0
_LONGEST = 160
#: Number of lines of text above and below a formula that show its column.
_NEIGHBORS = 4


@dataclass(slots=True)
class _Group:
    """Lines of one formula, by their indices. `seed` is the box of the row with its relation."""

    lines: list[int]
    seed: Box
    size: float


def find_formulas(content: PageContent, regions: Sequence[Region]) -> list[Region]:
    """Return the display formulas outside of tables and figures: with LaTeX, or without if it is uncertain.

    A single row that is uncertain is not among them. Pages read by OCR have none.
    """
    lines = content.lines
    taken = {index for region in regions for index in region.lines | region.caption}
    seeds = [index for index, line in enumerate(lines) if index not in taken and _is_seed(line) and _is_fragment(line)]
    if not seeds or any(line.confidence < 1 for line in lines):
        return []
    braces = [line.box for line in lines if line.text.endswith("{") and _is_fragment(line)]
    free = [
        index
        for index, line in enumerate(lines)
        if index not in taken and (_is_fragment(line) or any(_is_case(line, brace) for brace in braces))
    ]
    wordy = [line for index, line in enumerate(lines) if index not in taken and _is_prose(line)]
    largest = 1.25 * median([line.size for line in wordy] or [0.0])
    prose = [line.box for line in wordy if line.size <= largest]  # without titles, which may be wider than a column
    found = []
    for group in _groups(lines, free, seeds):
        region = _region(content, group, prose)
        if region is not None:
            found.append(region)
            if tracing():
                where = relative(region.box, content.width, content.height)
                found_as = "written as LaTeX" if region.text else "uncertain: cropped as a figure"
                note("formula", found_as, latex=region.text, box=where)
    return found


def _plain_words(text: str) -> list[str]:
    words = _WORD.findall("".join(character if character < "\U0001d400" else " " for character in text))
    return [
        word
        for word in words
        if not _opening_function(word.lower()) and not all("Ͱ" <= letter <= "Ͽ" for letter in word)
    ]


def _is_fragment(line: Line) -> bool:
    """Return whether the line may be part of a formula: short, horizontal, without words of a sentence."""
    if (
        line.mono
        or len(line.text) > _LONGEST
        or line.text == "\ufffd"
        or line.box.height > 2.5 * line.size
        or not line.words
    ):
        return False
    main = [word.text for word in line.parts or line.words if _size(word) > _SCRIPT_SIZE * line.size]
    words = _plain_words(" ".join(main))
    if words == [line.text] and line.text.isascii() and not line.words[0].italic:
        return False  # a word of the text, such as `the`
    return not any(len(word) > 3 for word in words) and sum(len(word) > 2 for word in words) < 3


def _is_case(line: Line, brace: Box) -> bool:
    """Return whether the line is beside a brace at the end of a row, as in a definition by cases."""
    near = abs(_middle(line.box) - _middle(brace)) < 2 * line.size and line.box.x0 > brace.x1 - line.size
    return near and len(line.text) < 40 and line.box.x0 - brace.x1 < 15 * line.size


def _is_prose(line: Line) -> bool:
    return sum(len(word) > 2 for word in _plain_words(line.text)) >= 3


def _is_seed(line: Line) -> bool:
    if _PARTS.intersection(line.text):
        return True
    signs = _RELATIONS.intersection(line.text)
    if not signs and line.text[0] not in _CONTINUED:
        return False
    if not any(map(str.isalnum, line.text)):
        return bool(_BRACKETS & set(line.text))  # the row of a matrix or binomial
    special = any("α" <= c <= "ω" or c >= "\U0001d400" or c in _NAMES for c in line.text)
    return bool(line.scripts or line.parts or special or _STRONG & signs or any(word.italic for word in line.words))


def _groups(lines: Sequence[Line], free: Sequence[int], seeds: Sequence[int]) -> list[_Group]:
    """Return the formulas: seeds of one row, each with the fragments that are nearest to it."""
    groups: list[_Group] = []
    largest = max(lines[index].size for index in seeds)
    small = [index for index in seeds if lines[index].size < _SCRIPT_SIZE * largest]
    for later in ([index for index in seeds if index not in small], small):
        _grow(groups, lines, free, later)
    return _merged(groups, lines)


def _merged(groups: Sequence[_Group], lines: Sequence[Line]) -> list[_Group]:
    """Join groups that share a row, or whose boxes overlap."""
    merged: list[_Group] = []
    for group in sorted(groups, key=lambda one: one.seed.x0):
        for other in merged:
            level = min(group.seed.y1, other.seed.y1) - max(group.seed.y0, other.seed.y0)
            near = group.seed.x0 - other.seed.x1 < _BESIDE * other.size
            overlap = _around(group.lines, lines).intersection(_around(other.lines, lines))
            if (near and level > 0.5 * min(group.size, other.size)) or overlap > 0:
                other.lines += group.lines
                other.seed = _wider(other.seed, group.seed)
                other.size = max(other.size, group.size)
                break
        else:
            merged.append(group)
    return merged


def _around(members: Sequence[int], lines: Sequence[Line]) -> Box:
    boxes = [lines[index].box for index in members if not _NUMBER.fullmatch(lines[index].text)]
    return reduce(Box.union, boxes or [lines[members[0]].box])


def _grow(groups: list[_Group], lines: Sequence[Line], free: Sequence[int], seeds: Sequence[int]) -> None:
    """Add the groups of seeds that are in none yet, and then the fragments that are nearest to a group."""
    seeds = [index for index in seeds if not any(index in group.lines for group in groups)]
    for index in sorted(seeds, key=lambda seed: (_is_operator(lines[seed]), -lines[seed].size, lines[seed].box.x0)):
        line = lines[index]
        near = [group for group in groups if _is_near(group, line.box, "")]
        for group in near:
            level = min(line.box.y1, group.seed.y1) - max(line.box.y0, group.seed.y0)
            if level > 0.5 * line.size:
                group.lines.append(index)
                group.seed = group.seed.union(line.box)
                break
        else:
            if not near or not (_is_operator(line) or any(line.size < _SCRIPT_SIZE * group.size for group in near)):
                groups.append(_Group([index], line.box, line.size))
    rest = [index for index in free if not any(index in group.lines for group in groups)]
    while rest:
        left = []
        for index in rest:
            near = [group for group in groups if _is_near(group, lines[index].box, lines[index].text)]
            if near:
                nearest = min(near, key=lambda group: abs(_middle(group.seed) - _middle(lines[index].box)))
                nearest.lines.append(index)
                if not _NUMBER.fullmatch(lines[index].text):
                    nearest.seed = _wider(nearest.seed, lines[index].box)
            else:
                left.append(index)
        if len(left) == len(rest):
            break
        rest = left


def _is_operator(line: Line) -> bool:
    """Return whether the line is a large operator, whose baseline in TeX's fonts is not that of the formula."""
    return not (_RELATIONS - _STRONG).intersection(line.text)


def _level(box: Box, row: Box) -> float:
    """Return the height that a box shares with a row that it touches."""
    return min(box.y1, row.y1) - max(box.y0, row.y0) if box.x1 > row.x0 and box.x0 < row.x1 else 0.0


def _wider(row: Box, box: Box) -> Box:
    return Box(min(row.x0, box.x0), row.y0, max(row.x1, box.x1), row.y1)


def _is_near(group: _Group, box: Box, text: str) -> bool:
    down = abs(_middle(group.seed) - _middle(box))
    if _NUMBER.fullmatch(text):
        return down < 1.2 * group.size and box.x0 > group.seed.x1
    across = max(group.seed.x0 - box.x1, box.x0 - group.seed.x1)
    return down < _REACH * group.size and across < _BESIDE * group.size


def _region(content: PageContent, group: _Group, prose: Sequence[Box]) -> Region | None:
    lines, size = [content.lines[index] for index in group.lines], group.size
    numbers = [line for line in lines if _NUMBER.fullmatch(line.text)]
    body = reduce(Box.union, (line.box for line in lines if line not in numbers))
    box = reduce(Box.union, (line.box for line in numbers), body)
    over = [one for one in prose if min(one.x1, body.x1) > max(one.x0, body.x0)]
    column = sorted(over, key=lambda one: abs(_middle(one) - _middle(body)))[:_NEIGHBORS]
    rules = [
        path.box
        for path in content.paths
        if path.box.height < 1.5 < path.box.width
        and path.box.x0 > body.x0 - 0.5 * size
        and path.box.x1 < body.x1 + 0.5 * size
        and body.y0 - 0.5 * size < path.box.y0 < body.y1 + 0.5 * size
    ]
    tall = body.height > 2 * size and (bool(rules) or any(_STRONG.intersection(line.text) for line in lines))
    if not column or body.x0 - min(one.x0 for one in column) < _INDENT * size * (not tall):
        return None
    left, right = min(one.x0 for one in column), max(one.x1 for one in column)
    if body.x0 < left or any(
        min(one.y1, body.y1) - max(one.y0, body.y0) > 0.3 * size and one.x1 > left and one.x0 < right for one in prose
    ):
        return None
    words = [word for line in lines for word in (line.parts or line.words)]
    row = Box(body.x0 - _BESIDE * size, group.seed.y0, body.x1 + _BESIDE * size, group.seed.y1)
    beside = [
        index
        for index, line in enumerate(content.lines)
        if index not in group.lines
        and left + 0.5 * size < line.box.x0
        and line.box.x1 <= right
        and _level(line.box, row) > 0.3 * size
    ]
    latex = "" if beside else latex_of(words, rules)
    if beside and len(beside) < 4:
        group.lines += beside
        box = reduce(Box.union, (content.lines[index].box for index in beside), box)
    if not latex and len(lines) + len(beside) - len(numbers) < 2:
        return None
    box = reduce(Box.union, rules, box)
    if not latex:  # brackets are higher than their lines
        box = Box(box.x0, box.y0 - 0.4 * size, box.x1, box.y1 + 0.4 * size)
    return Region(FORMULA, box, frozenset(group.lines), latex, FORMULA)
