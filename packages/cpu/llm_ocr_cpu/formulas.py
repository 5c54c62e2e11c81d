"""Find display formulas in a text layer, and write those as LaTeX whose structure is certain."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from statistics import median

from llm_ocr.engines.trace import note, relative, tracing
from llm_ocr.types import Box, Line, PageContent, Word
from llm_ocr_cpu.regions import FORMULA, Region

# LaTeX of a formula from its words: fractions and roots from their rules, limits and scripts from sizes and baselines.


#: Extent of a word's box below its baseline, and its height, in font sizes (as `pdf_glyphs` makes them).
_DESCENT, _HEIGHT = 0.22, 1.02
#: Size of a script relative to its base, and the least distance of its baseline in sizes of the base.
_SCRIPT_SIZE, _SCRIPT_SHIFT = 0.88, 0.06
#: Greatest distance of baselines of a row in font sizes.
_LEVEL = 0.12
#: Greatest depth of fractions, roots, matrices, and scripts within each other.
_DEEPEST = 4
#: Number of letters up to which upright letters may be a product of variables.
_LONGEST_PRODUCT = 3
#: Least distance of columns of a matrix, and of its rows; least distance of the rows of a binomial. All in font sizes:
#: TeX has 1, 1.2, and 1.36.
_COLUMN, _ROWS, _BINOMIAL = 0.7, (1.0, 2.2), 1.3

_LIST = re.compile(r"[A-Za-z]+")
_FUNCTIONS = frozenset(
    _LIST.findall(
        "arccos arcsin arctan arg cos cosh cot coth csc deg det dim exp gcd hom inf ker lim liminf limsup ln log max "
        "min Pr sec sin sinh sup tan tanh"
    )
)
_TEXT = frozenset(_LIST.findall("all and any as for if in is on or to"))  # words between formulas
_LIMITED = frozenset(_LIST.findall("det gcd inf lim liminf limsup max min Pr sup"))
_BIG = {
    "⋀": r"\bigwedge",
    "⋁": r"\bigvee",
    "∐": r"\coprod",
    "∑": r"\sum",
    "∏": r"\prod",
    "∫": r"\int",
    "∮": r"\oint",
    "⋃": r"\bigcup",
    "⋂": r"\bigcap",
}
_INTEGRALS = frozenset((r"\int", r"\oint"))
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
    **{
        "{": "{",
        "}": "}",
        "⌊": "lfloor",
        "⌋": "rfloor",
        "⌈": "lceil",
        "⌉": "rceil",
        "≪": "ll",
        "≫": "gg",
        "%": "%",
        "#": "#",
        "&": "&",
        "∆": "Delta",
        "ϵ": "epsilon",
        "ϕ": "phi",
        "ϑ": "vartheta",
        "ℏ": "hbar",
    },
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
_ACCENTS = {
    **{"\u0300": "grave", "\u0301": "acute", "\u0302": "hat", "\u0303": "tilde", "\u0304": "bar", "\u0306": "breve"},
    **{"\u0307": "dot", "\u0308": "ddot", "\u030a": "mathring", "\u030c": "check", "\u20d7": "vec"},
}
_ALPHABETS = {
    **{"DOUBLE-STRUCK": "mathbb", "MATHEMATICAL SCRIPT": "mathcal", "SCRIPT CAPITAL": "mathcal"},
    **{"MATHEMATICAL FRAKTUR": "mathfrak", "BLACK-LETTER": "mathfrak"},
}
_CLOSING = {"(": ")", "[": "]", "{": "}", "|": "|", "‖": "‖"}
_GRIDS = {
    **{("(", ")"): "pmatrix", ("[", "]"): "bmatrix", ("|", "|"): "vmatrix", ("‖", "‖"): "Vmatrix"},
    **{("{", "}"): "Bmatrix", ("{", ""): "cases"},
}
_MARKS = "\u0300-\u0338\u20d7"
#: Letters with accents, runs of letters, or single characters.
_PIECES = re.compile(rf".[{_MARKS}]+|[A-Za-z]+(?![{_MARKS}])|.")
#: Signs that TeX composes of others.
_SIGNS = (
    (re.compile(r"\\int \\int(?![a-z])"), r"\\iint"),
    (re.compile(r"(\\cdot ){3}"), r"\\cdots "),
    (re.compile(r"\.{3}"), r"\\ldots "),
)
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
        body, tag = _without_number(_with_faces(words))
        latex = _parsed(body, rules, 0)
        return "" if _OPEN_END.search(latex) else latex + tag
    except _Uncertain:
        return ""


def _with_faces(words: Sequence[Word]) -> Sequence[Word]:
    """Return the words as italic if no font marks variables by italics: short words may then be variables.

    A formula in a bold heading has no vectors.
    """
    if all(word.bold for word in words):
        words = [replace(word, bold=False) for word in words]
    if any(word.italic for word in words):
        return words
    return [replace(word, italic=len(word.text) <= _LONGEST_PRODUCT) for word in words]


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
    """Return the LaTeX of words, and of the rules that make fractions, roots, and overlines of them."""
    if not words or depth > _DEEPEST:
        raise _Uncertain
    left, used = list(words), list[Box]()
    built = _grids(left, rules, depth)
    for rule in sorted(rules, key=lambda one: -one.width):
        if any(_contains(other, rule) for other in used):
            continue  # of an inner fraction or root
        used.append(rule)
        inner = [one for one in rules if one is not rule and _contains(rule, one)]
        built.append(_ruled(left, rule, inner, depth))
    return _row([*map(_atom, left), *built], depth)


def _ruled(left: list[Word], rule: Box, inner: Sequence[Box], depth: int) -> _Atom:
    """Return the fraction, root, or overline of a rule, and remove its words from `left`."""
    under = [word for word in left if _contains(rule, word.box) and _middle(word.box) > rule.y0]
    over = [word for word in left if _contains(rule, word.box) and _middle(word.box) < rule.y0]
    sign = _root_sign(left, rule)
    if not under:
        raise _Uncertain
    if over:
        above = _parsed(over, [one for one in inner if one.y0 < rule.y0], depth + 1)
        latex = f"\\frac{{{above}}}{{{_parsed(under, [one for one in inner if one.y0 > rule.y0], depth + 1)}}}"
        size = max(map(_size, (*under, *over)))
        x0, base = rule.x0, rule.y0 + 0.25 * size
    elif sign is not None:
        index = [word for word in left if word is not sign and _is_index(word, sign, rule)]
        power = f"[{_parsed(index, [], depth + 1)}]" if index else ""
        latex = f"\\sqrt{power}{{{_parsed(under, inner, depth + 1)}}}"
        size = max(map(_size, under))
        base = _base(sign) if inner else next(_base(word) for word in under if _size(word) == size)
        left[:] = [word for word in left if word is not sign and word not in index]
        if sign.text != "√":
            left.append(Word(sign.text[:-1], Box(sign.box.x0, sign.box.y0, rule.x0, sign.box.y1)))
        x0 = sign.box.x0 if sign.text == "√" else rule.x0
    elif _is_overline(rule, under):
        latex = f"\\overline{{{_parsed(under, inner, depth + 1)}}}"
        size, x0 = max(map(_size, under)), rule.x0
        base = next(_base(word) for word in under if _size(word) == size)
    else:
        raise _Uncertain
    left[:] = [word for word in left if word not in under and word not in over]
    return _Atom(latex, x0, rule.x1, base, size, built=True)


def _is_index(word: Word, sign: Word, rule: Box) -> bool:
    """Return whether the word is the index of a root, in the angle of its sign."""
    small = _size(word) < 0.75 * _size(sign) and _base(word) < _base(sign)
    return small and word.text.isalnum() and sign.box.x0 < _across(word.box) and word.box.x1 < rule.x0


def _is_overline(rule: Box, under: Sequence[Word]) -> bool:
    """Return whether the rule is directly above the words, and as wide as they are."""
    size = max(map(_size, under))
    high = max(_base(word) for word in under) - rule.y0
    left, right = min(word.box.x0 for word in under) - rule.x0, rule.x1 - max(word.box.x1 for word in under)
    return 0.4 * size < high < 1.3 * size and max(abs(left), abs(right)) < 0.25 * size


def _grids(left: list[Word], rules: Sequence[Box], depth: int) -> list[_Atom]:
    """Return the matrices, binomials, and cases among the words, and remove their words from `left`."""
    built: list[_Atom] = []
    for opened, closed in _pairs(left):
        end = closed.box.x0 if closed else max(word.box.x1 for word in left)
        inside = [word for word in left if opened.box.x1 - 1 < _across(word.box) < end and word is not opened]
        size, base = _size(opened), _base(opened)
        usual = [word for word in inside if _size(word) > _SCRIPT_SIZE * size]
        levels: list[float] = []
        for level in sorted(map(_base, usual)):
            if not levels or level - levels[-1] > _LEVEL * size:
                levels.append(level)
        apart = [(below - above) / size for above, below in pairwise(levels)]
        centered = bool(levels) and abs((levels[0] + levels[-1]) / 2 - base) < 0.25 * size
        stacked = bool(apart) and centered and all(_ROWS[0] <= step <= _ROWS[1] for step in apart)
        if not stacked or any(opened.box.x0 < _across(rule) < end for rule in rules):
            continue
        latex = _grid(inside, levels, size, (opened.text, closed.text if closed else ""), depth)
        gone = [*inside, opened, closed]
        left[:] = [word for word in left if all(word is not one for one in gone)]
        built.append(_Atom(latex, opened.box.x0, closed.box.x1 if closed else end, base, size, built=True))
    return built


def _pairs(words: Sequence[Word]) -> list[tuple[Word, Word | None]]:
    """Return the pairs of delimiters that are words, inner ones first, and a brace that is not closed."""
    found: list[tuple[Word, Word | None]] = []
    opened: list[Word] = []
    for word in sorted(words, key=lambda one: one.box.x0):
        if opened and _CLOSING.get(opened[-1].text) == word.text:
            found.append((opened.pop(), word))
        elif word.text in _CLOSING:
            opened.append(word)
    if len(opened) == 1 and opened[0].text == "{":
        found.append((opened[0], None))
    return found


def _grid(words: Sequence[Word], levels: Sequence[float], size: float, signs: tuple[str, str], depth: int) -> str:
    """Return the LaTeX of words in rows and columns between delimiters."""
    if signs not in _GRIDS:
        raise _Uncertain
    rows: list[list[Word]] = [[] for _ in levels]
    for word in words:
        nearest = min(range(len(levels)), key=lambda at: abs(levels[at] - _base(word)))
        if abs(levels[nearest] - _base(word)) > 0.6 * size:
            raise _Uncertain
        rows[nearest].append(word)
    table = [_cells(row, size) for row in rows]
    columns = len(table[0])
    if any(len(cells) != columns for cells in table) or (signs[1] == "" and columns > 2):
        raise _Uncertain
    for at in range(columns - 1):
        ends = max(word.box.x1 for cells in table for word in cells[at])
        if ends >= min(word.box.x0 for cells in table for word in cells[at + 1]):
            raise _Uncertain
    latex = [[_parsed(cell, [], depth + 1).strip() for cell in cells] for cells in table]
    if signs == ("(", ")") and columns == 1 and len(levels) == 2 and levels[1] - levels[0] > _BINOMIAL * size:
        return f"\\binom{{{latex[0][0]}}}{{{latex[1][0]}}}"
    name = _GRIDS[signs]
    return f"\\begin{{{name}}}" + r" \\ ".join(" & ".join(cells) for cells in latex) + f"\\end{{{name}}}"


def _cells(row: Sequence[Word], size: float) -> list[list[Word]]:
    """Divide a row of a matrix at wide gaps."""
    cells: list[list[Word]] = []
    right = 0.0
    for word in sorted(row, key=lambda one: one.box.x0):
        if not cells or word.box.x0 - right > _COLUMN * size:
            cells.append([])
        cells[-1].append(word)
        right = max(right, word.box.x1)
    return cells


def _across(box: Box) -> float:
    return (box.x0 + box.x1) / 2


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
    return next((word for word in near if word.box.y0 - 3 * word.box.height < rule.y0 < word.box.y1), None)


def _atom(word: Word) -> _Atom:
    if word.doubtful:
        raise _Uncertain
    big = word.text in _BIG
    latex = _symbols(word.text, word.italic)
    if word.bold and word.text.isalnum():
        latex = f"\\mathbf{{{word.text}}}" if word.text.isascii() else f"\\boldsymbol{{{latex.strip()}}}"
    return _Atom(latex, word.box.x0, word.box.x1, _base(word), _size(word), big)


def _symbols(text: str, italic: bool) -> str:
    """Return the LaTeX of a word: functions and upright words by name, other characters one by one."""
    latex = ""
    for piece in _PIECES.findall(unicodedata.normalize("NFD", text)):
        if piece in _FUNCTIONS:
            latex += f"\\{piece} "
        elif len(piece) == 1 or not piece.isascii():
            latex += _symbol(piece)
        elif piece not in _TEXT and (italic or len(piece) <= _LONGEST_PRODUCT):
            latex += "".join(map(_symbol, piece))
        else:
            latex += f"\\mathrm{{{piece}}}"
    return latex


def _symbol(character: str) -> str:
    if len(character) > 1:
        return _accented(character)
    alphabet = _alphabet(character)
    letterlike = "ℂ" <= character <= "⅏" and character not in _LATEX  # such as ℎ, the italic h of formulas
    plain = unicodedata.normalize("NFKC", character) if character > "\U0001d3ff" or letterlike else character
    if alphabet:
        return f"\\{alphabet}{{{plain}}}"
    if plain in _BIG:
        return _BIG[plain]
    if plain in _LATEX:
        return _LATEX[plain]
    if len(plain) == 1 and _PLAIN.match(plain):
        return plain
    raise _Uncertain


def _accented(text: str) -> str:
    """Return the LaTeX of a letter and its combining accents."""
    if text.endswith("\u0338"):
        return _symbol(unicodedata.normalize("NFC", text))
    latex = _symbol(text[0]).strip()
    for accent in text[1:]:
        if accent not in _ACCENTS:
            raise _Uncertain
        latex = f"\\{_ACCENTS[accent]}{{{latex}}}"
    return latex


def _alphabet(character: str) -> str:
    """Return the command for a double-struck, script, or Fraktur letter; "" for another character."""
    if character < "ℂ":
        return ""
    name = unicodedata.name(character, "")
    return next((command for style, command in _ALPHABETS.items() if style in name), "")


def _row(atoms: list[_Atom], depth: int) -> str:
    """Return the LaTeX of a row: atoms of the main size on one baseline, with their scripts and limits."""
    ordered = sorted(atoms, key=lambda atom: (atom.x0, atom.x1))
    usual = [atom for atom in ordered if not atom.big and not atom.built] or ordered
    size = max(atom.size for atom in usual)
    main = [atom for atom in usual if atom.size > _SCRIPT_SIZE * size]
    base = main[0].base
    if any(abs(atom.base - base) > _LEVEL * size for atom in main):
        raise _Uncertain
    hosts = [atom for atom in ordered if atom in main or _is_in_row(atom, base, size)]
    _check_apart(hosts)
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
        latex += host.latex
        for mark, scripts in (("_", below.get(place)), ("^", above.get(place))):
            if scripts:
                latex = f"{latex.rstrip()}{mark}{{{_scripts(scripts, depth)}}}"
        latex += _space(host, hosts[place + 1 : place + 2], latex, size)
    for pattern, sign in _SIGNS:
        latex = pattern.sub(sign, latex)
    return latex


def _check_apart(hosts: Sequence[_Atom]) -> None:
    """Raise `_Uncertain` if two atoms overlap, as in a sign that is composed of two."""
    if any(one.x1 - other.x0 > 0.5 * min(one.x1 - one.x0, other.x1 - other.x0) for one, other in pairwise(hosts)):
        raise _Uncertain


def _space(host: _Atom, following: Sequence[_Atom], latex: str, size: float) -> str:
    """Return the space behind an atom: one that ends a command, or one behind a word."""
    if host.latex.startswith(r"\mathrm{") and following and following[0].x0 - host.x1 > 0.2 * size:
        return r"\ "
    return " " if host.big and latex[-1].isalpha() else ""


def _is_in_row(atom: _Atom, base: float, size: float) -> bool:
    """Return whether a large operator, fraction, or root is part of the row, and not a script."""
    if atom.big:
        return atom.size > _SCRIPT_SIZE * size
    return atom.built and atom.size > 0.6 * size and abs(atom.base - base) < 0.35 * size


def _host(atom: _Atom, hosts: Sequence[_Atom], size: float) -> int:
    """Return the index of the atom to which a script or limit belongs.

    A limit belongs to the operator above or below it, a script to the atom before it.
    """
    middle = (atom.x0 + atom.x1) / 2
    owners: list[tuple[float, int]] = []
    for place, host in enumerate(hosts):
        limited = host.latex.strip("\\ ") in _LIMITED and atom.base > host.base
        if (host.big or limited) and host.x0 - 0.6 * size < middle < host.x1 + 0.6 * size:
            center = (host.x0 + host.x1) / 2
            if host.latex not in _INTEGRALS or center <= atom.x0:  # limits of integrals are at their right side
                owners.append((abs(center - middle), place))
    if owners:
        return max(place for _, place in owners) if hosts[owners[-1][1]].latex in _INTEGRALS else min(owners)[1]
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


_RELATIONS = frozenset("=<>≤≥≈≡≠∼≃≅∝→⇒⇔↦∈∉⊂⊆∪∩∑∏∫∮⋃⋂√")
_STRONG = frozenset("∑∏∫∮⋃⋂√")
_WORD = re.compile(r"[^\W\d_]{2,}")
#: Distance of a formula from the left side of its column, and of its parts from each other, in font sizes.
_INDENT, _REACH, _BESIDE = 1.5, 2.2, 4.0
#: Most characters of a line of a formula.
_LONGEST = 160
#: Greatest distance of the columns of a definition by cases in font sizes.
_COLUMNS = 3.0
#: Least share of a line inside the area of a scan's formula.
_INSIDE = 0.6
#: Number of lines of text above and below a formula that show its column.
_NEIGHBORS = 4


@dataclass(slots=True)
class _Group:
    """Lines of one formula, by their indices. `seed` is the box of the row with its relation."""

    lines: list[int]
    seed: Box
    size: float


def find_formulas(content: PageContent, regions: Sequence[Region], areas: Sequence[Box] = ()) -> list[Region]:
    """Return the display formulas outside of tables and figures: with LaTeX, or without if it is uncertain.

    A single row that is uncertain is not among them. Pages read by OCR have only those in `areas`, without LaTeX.
    """
    lines = content.lines
    taken = {index for region in regions for index in region.lines | region.caption}
    if areas:
        return list(_in_areas(lines, taken, areas))
    seeds = [index for index, line in enumerate(lines) if index not in taken and _is_seed(line) and _is_fragment(line)]
    if not seeds or any(line.confidence < 1 for line in lines):
        return []
    free = [index for index, line in enumerate(lines) if index not in taken and _is_fragment(line)]
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


def _in_areas(lines: Sequence[Line], taken: set[int], areas: Sequence[Box]) -> Iterator[Region]:
    """Yield the formulas in areas with several lines and no sentence; OCR reads other formulas as text."""
    for area in areas:
        inside = [index for index, line in enumerate(lines) if line.box.covered_by(area) > _INSIDE]
        if len(inside) < 2 or taken.intersection(inside) or any(_is_prose(lines[index]) for index in inside):
            continue
        box = reduce(Box.union, (lines[index].box for index in inside), area)
        yield Region(FORMULA, box, frozenset(inside), label=FORMULA)


def _plain_words(text: str) -> list[str]:
    words = _WORD.findall("".join(character if character < "\U0001d400" else " " for character in text))
    return [
        word for word in words if word.lower() not in _FUNCTIONS and not any("Ͱ" <= letter <= "Ͽ" for letter in word)
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


def _is_prose(line: Line) -> bool:
    return sum(len(word) > 2 for word in _plain_words(line.text)) >= 3


def _is_seed(line: Line) -> bool:
    signs = _RELATIONS.intersection(line.text)
    if not signs:
        return False
    special = any("α" <= c <= "ω" or c >= "\U0001d400" or c in _NAMES for c in line.text)
    bare = not any(character.isalpha() for character in line.text)  # between fractions
    return bool(
        bare or line.scripts or line.parts or special or _STRONG & signs or any(word.italic for word in line.words)
    )


def _groups(lines: Sequence[Line], free: Sequence[int], seeds: Sequence[int]) -> list[_Group]:
    """Group the seeds of one row, and add each fragment to the nearest group within reach."""
    groups: list[_Group] = []
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
    return _whole(lines, groups)


def _whole(lines: Sequence[Line], groups: list[_Group]) -> list[_Group]:
    """Merge groups at one height, and add the other lines at their height, such as words in a definition by cases."""
    whole: list[_Group] = []
    for group in groups:
        for other in [other for other in whole if _overlap(lines, group, other)]:
            whole.remove(other)
            larger, smaller = (group, other) if group.size >= other.size else (other, group)
            larger.lines += smaller.lines
            larger.seed = _wider(larger.seed, smaller.seed)
            group = larger
        whole.append(group)
    whole = _with_cases(lines, whole)
    taken = {index for group in whole for index in group.lines}
    for group in whole:
        found = True
        while found:
            found = False
            whole_box = reduce(Box.union, (lines[index].box for index in group.lines))
            near = [at for at, line in enumerate(lines) if line.box.y0 < whole_box.y1 and line.box.y1 > whole_box.y0]
            for index in near:
                if index not in taken and _belongs(lines, group, index):
                    taken.add(index)
                    group.lines.append(index)
                    found = True
    return whole


def _belongs(lines: Sequence[Line], group: _Group, index: int) -> bool:
    """Return whether the line is the group's number, or is near the group at its height and no sentence."""
    line = lines[index]
    if _NUMBER.fullmatch(line.text):
        level = min(line.box.y1, group.seed.y1) - max(line.box.y0, group.seed.y0)
        return level > 0.5 * line.box.height and line.box.x0 > group.seed.x1
    return _overlap(lines, group, _Group([index], line.box, 0)) and not _is_prose(line)


def _with_cases(lines: Sequence[Line], groups: list[_Group]) -> list[_Group]:
    """Merge each group that has an open brace with the groups of the other rows behind the brace."""
    left = list(groups)
    for group in groups:
        words = [word for index in group.lines for word in (lines[index].parts or lines[index].words)]
        braces = [word.box for word in words if word.text == "{"]
        if len(braces) != 1 or any(word.text == "}" for word in words) or group not in left:
            continue
        found = True
        while found:
            found = False
            height = reduce(Box.union, (lines[index].box for index in group.lines))
            for other in left:
                box = reduce(Box.union, (lines[index].box for index in other.lines))
                gap = max(box.y0 - height.y1, height.y0 - box.y1)
                near = box.x0 - height.x1 < _COLUMNS * group.size and gap < 0.6 * group.size
                if other is not group and box.x0 > braces[0].x0 and near:
                    group.lines += other.lines
                    group.seed = _wider(group.seed, other.seed)
                    left.remove(other)
                    found = True
                    break
    return left


def _around(members: Sequence[int], lines: Sequence[Line]) -> Box:
    """Return the box around lines without the formula's number, which is at the edge of the column."""
    boxes = [lines[index].box for index in members if not _NUMBER.fullmatch(lines[index].text)]
    return reduce(Box.union, boxes or [lines[members[0]].box])


def _overlap(lines: Sequence[Line], one: _Group, other: _Group) -> bool:
    """Return whether lines of both groups are at one height, and near each other."""
    reach = 1.5 * max(one.size, other.size)
    wide = [_around(group.lines, lines) for group in (one, other)]
    if max(box.x0 for box in wide) - min(box.x1 for box in wide) > reach:
        return False
    for a in (lines[index].box for index in one.lines):
        for b in (lines[index].box for index in other.lines):
            level = min(a.y1, b.y1) - max(a.y0, b.y0)
            if level > 0.1 * min(a.height, b.height):
                return True
    return False


def _is_operator(line: Line) -> bool:
    """Return whether the line is a large operator, whose baseline in TeX's fonts is not that of the formula."""
    return not (_RELATIONS - _STRONG).intersection(line.text)


def _wider(row: Box, box: Box) -> Box:
    """Return the row, extended to the sides of the box."""
    return Box(min(row.x0, box.x0), row.y0, max(row.x1, box.x1), row.y1)


def _is_near(group: _Group, box: Box, text: str) -> bool:
    """Return whether a line is within reach of the group's row; an equation's number may be far on its right."""
    down = abs(_middle(group.seed) - _middle(box))
    if _NUMBER.fullmatch(text):
        return down < 1.2 * group.size and box.x0 > group.seed.x1
    across = max(group.seed.x0 - box.x1, box.x0 - group.seed.x1)
    return down < _REACH * group.size and across < _BESIDE * group.size


def _region(content: PageContent, group: _Group, prose: Sequence[Box]) -> Region | None:
    """Return the region of a group; None if the group is part of the text, or an uncertain formula of one row."""
    lines, size = [content.lines[index] for index in group.lines], group.size
    numbers = [line for line in lines if _NUMBER.fullmatch(line.text)]
    body = reduce(Box.union, (line.box for line in lines if line not in numbers))
    box = reduce(Box.union, (line.box for line in numbers), body)
    over = [one for one in prose if min(one.x1, body.x1) > max(one.x0, body.x0)]
    over = over or [one for one in prose if one.x1 <= body.x0]  # all lines of the text are short
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
    named = 200 * content.unmapped < sum(len(line.text) for line in content.lines)
    latex = latex_of(words, rules) if named else ""  # fonts without names: other signs may be wrong, too
    if not latex and len(lines) - len(numbers) == 1:
        return None
    box = reduce(Box.union, rules, box)
    if not latex:  # brackets are higher than their lines
        box = Box(box.x0, box.y0 - 0.4 * size, box.x1, box.y1 + 0.4 * size)
    return Region(FORMULA, box, frozenset(group.lines), latex, FORMULA)
