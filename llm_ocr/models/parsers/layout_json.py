"""Layouts in JSON to blocks: a list of objects with a box, a label, and mostly a text.

This is the only form of dots.ocr and of Surya's layout, and the form of any model with a prompt for such JSON. Cut or
malformed answers keep every readable object.
"""

import html
import json
import re
from ast import literal_eval
from collections import Counter
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from llm_ocr.models.parsers.coordinates import NUMBER, WHOLE_PAGE, Scale, from_1000, from_fractions, from_resized
from llm_ocr.models.parsers.html import cell_html
from llm_ocr.models.parsers.labels import (
    described,
    kind_of,
    labelled,
    level_of,
    unlabelled,
    unreadable,
    with_captions,
    without_copies,
)
from llm_ocr.models.parsers.otsl import table_text
from llm_ocr.models.parsers.plain import parse_plain, without_special
from llm_ocr.models.profile import NO_FRAME, Frame, Parsed
from llm_ocr.types import Block, BlockKind

# Repair of JSON strings with LaTeX in single backslashes. `\(` and `\alpha` are not JSON escapes and keep their
# backslash. `\frac` and `\times` are escapes by accident: they decode to a form feed and a tab before the rest of a
# command. No page contains these characters.


_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|u[0-9a-fA-F]{0,3}\Z|(.)|\Z)", re.DOTALL)
_PLAIN = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_BACK = {character: f"\\{letter}" for letter, character in _PLAIN.items() if letter.isalpha()}
# Rests of commands after a control character that are not words of any language.
_SURE = re.compile(
    r"[\b\f\r](?=[A-Za-z])"
    r"|\t(?=(?:imes|heta|ext|extbf|extit|extrm|exttt|ilde|riangle\w*|herefore|frac)(?![A-Za-z]))"
    r"|\n(?=(?:abla|onumber|otin)(?![A-Za-z]))"
)
# Rests that may be words, used if the string contains a certain command. After a line end, no other word may follow.
_LIKELY = re.compile(
    r"\t(?=(?:o|op|an|anh|au|ag)(?![A-Za-z]))"
    r"|\n(?=(?:u|e|eq|eg|ot|mid|leq|geq|olimits|rightarrow)\s{0,4}(?:[^A-Za-z\s]|\Z))"
)
_SURROGATE = re.compile("[\ud800-\udfff]")


def unescaped(raw: str) -> str:
    """Return the decoded content of a JSON string; an escape that was cut at the end is omitted."""
    if "\\" not in raw:
        return raw
    sure = False

    def plain(escape: re.Match[str]) -> str:
        nonlocal sure
        if escape[1]:
            return chr(int(escape[1], 16))
        letter = escape[2] or ""
        if letter and letter not in _PLAIN:
            sure = True
            return escape[0]
        return _PLAIN.get(letter, "")

    text = _ESCAPE.sub(plain, raw)
    if _SURROGATE.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return with_latex(text, sure=sure)


def with_latex(text: str, *, sure: bool = False) -> str:
    r"""Return the text with LaTeX commands restored that were decoded as escapes (`\frac`, `\beta`, `\nu` ...).

    `sure` means that the string was written with single backslashes.
    """
    mended = _SURE.sub(lambda found: _BACK[found[0]], text)
    if sure or mended != text:
        mended = _LIKELY.sub(lambda found: _BACK[found[0]], mended)
    return mended


# Reader of cut or malformed JSON: missing commas and braces, unescaped quotes, LaTeX with single backslashes. One pass
# with an explicit stack: time linear in the length, no recursion, for any text.


# Names of the keys for a piece's box, label, and text; of several names, the first present one counts.
_BOX_KEYS = ("bbox", "bbox_2d", "box", "box_2d", "block_bbox", "poly", "polygon", "quad", "points")
_LABEL_KEYS = ("category", "label", "type", "class", "block_label")
_TEXT_KEYS = ("text", "content", "markdown", "html", "block_content", "text_content", "transcription", "latex")
_NAME = f"(?:{'|'.join((*_BOX_KEYS, *_LABEL_KEYS, *_TEXT_KEYS))})"

_BEGIN = re.compile(r"[\[{]")
_SPACE = re.compile(r"\s*+")
_WORD = re.compile(r'[^\s{}\[\]:,"]++')
_NUMBER = re.compile(r"[-+]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][-+]?\d{1,4})?")
_STRING = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_LITERALS: dict[str, Any] = {"true": True, "false": False, "null": None, "NaN": None, "None": None}
# Possible text after a quote that ends a value in an object. Before other text, the quote is part of the string.
_BEHIND_VALUE = re.compile(
    r"""\s*+(?: \Z
              | \}\s*+ (?: [,\]}{] | \Z | ``` )
              | \]\s*+ (?: [,\]}] | \Z )
              | ,\s*+ (?: "[^"\\]{0,40}+ (?: "\s*+: | "?+\s*+\Z ) | [\]}{] | \Z
                       | "NAME "{0,2}+\s*+:?+\s*+" | NAME ":\s*+" )  # a key that lacks a mark, or has one twice
              | "[\w -]{1,40}"\s*+: )""".replace("NAME", _NAME),
    re.VERBOSE,
)
_KEY = re.compile(r'[^"\\{}\[\],:]{0,60}+(?:"|\Z)')
_NEXT_OBJECT = re.compile(r"(?:\}\s*+,?\s*+)?\{\Z")
_FIRST_KEY = re.compile(r'"[\w-]{1,40}"\s*+:\s*+\[')
#: Another field of the same object, from its comma, or from the quote of its key.
_FIELD_BEHIND = re.compile(rf'\s*+,\s*+"{_NAME}"\s*+:')
_FIELD = re.compile(rf'"{_NAME}"\s*+:')
_END_OF_KEY = re.compile(r'\s*+:\s*+"')


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = {key: with_latex(value) if isinstance(value, str) else value for key, value in pairs}
    if len(made) < len(pairs):
        raise ValueError("duplicate key")  # duplicate key: the braces between two objects are missing
    return made


_DECODER = json.JSONDecoder(strict=False, parse_constant=lambda name: None, object_pairs_hook=_object)


@dataclass(slots=True)
class _Open:
    """Open object or list. `key` has no value yet; `place` is the container's own key in the object above."""

    value: Any
    place: str | None
    key: str | None = None


@dataclass(slots=True)
class Loose:
    """All objects and lists in a text, in order; `read_loosely` reads them."""

    _text: str
    values: list[Any] = field(default_factory=list)
    sound: bool = True  # JSON without a fault
    cut: bool = False  # the text ends within a value
    cut_object: dict[str, Any] | None = None  # the innermost object at the end of the text
    cut_key: str = ""  # its key whose string has no end
    outside: str = ""  # the text around the values
    _at: int = 0
    _open: list[_Open] = field(default_factory=list)
    _lists: int = 0  # number of open lists

    def read(self) -> None:
        outside: list[str] = []
        while (begin := _BEGIN.search(self._text, self._at)) is not None:
            outside.append(self._text[self._at : begin.start()])
            self._at = begin.start()
            # After a failure, only the tolerant reader is used, so that no text is read repeatedly.
            if self.sound:
                try:
                    value, self._at = _DECODER.raw_decode(self._text, self._at)
                    self.values.append(value)
                    continue
                except (ValueError, RecursionError):
                    self.sound = False
            self._loosely()
        outside.append(self._text[self._at :])
        self.outside = "\n".join(outside)

    def _loosely(self) -> None:
        """Read one value from its opening bracket to the closing one, or to the end of the text."""
        self._step()
        while self._open:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text):
                self._step()
                continue
            # The text ends within a value: open containers keep their known content.
            self.cut = True
            objects = (container.value for container in reversed(self._open) if isinstance(container.value, dict))
            self.cut_object = next(objects, None)
            last = self._open.pop()
            numbers = isinstance(last.value, list) and not any(isinstance(part, dict | list) for part in last.value)
            if numbers and last.place:
                del self._open[-1].value[last.place]
            self._open.clear()
            self._lists = 0

    def _step(self) -> None:
        mark = self._text[self._at]
        if mark == '"':
            self._string()
            return
        if mark not in "{}[]:,":
            word = _WORD.match(self._text, self._at)
            assert word is not None  # a character that is neither mark nor space begins a word
            self._at = word.end()
            name = word.group()
            if isinstance(self._open[-1].value, dict) and self._open[-1].key is None:
                self._key(name)
            else:
                self._put(float(name) if _NUMBER.fullmatch(name) else _LITERALS.get(name, name))
            return
        self._at += 1
        match mark:
            case "{":
                self._push({})
            case "[":
                self._push([])
            case "}" | "]":
                self._close(mark == "]")
            case ",":
                self._open[-1].key = None
            case _:
                # After a string in a list: the key of an object whose brace is missing.
                above = self._open[-1].value
                if isinstance(above, list) and above and isinstance(above[-1], str):
                    key = above.pop()
                    self._push({})
                    self._open[-1].key = key

    def _push(self, value: Any) -> None:
        """Begin a container. Inside an object that expects a key, the preceding brace is missing."""
        while self._open and isinstance(self._open[-1].value, dict) and self._open[-1].key is None:
            self._open.pop()
        place = None
        if not self._open:
            self.values.append(value)
        else:
            place = self._open[-1].key
            self._put(value)
        self._lists += isinstance(value, list)
        self._open.append(_Open(value, place))

    def _put(self, value: Any) -> None:
        above = self._open[-1]
        if isinstance(above.value, list):
            above.value.append(value)
        elif above.key is not None:
            above.value[above.key] = value
            above.key = None

    def _close(self, is_list: bool) -> None:
        """End the innermost container of this kind, and those inside; skip a mark that closes no container."""
        if is_list != isinstance(self._open[-1].value, list):
            others = self._lists if is_list else len(self._open) - self._lists
            # Before another field, this is the end of a list whose own bracket is missing, or has been read.
            if not others or (is_list and _FIELD_BEHIND.match(self._text, self._at)):
                return
        while self._open:
            ended = self._open.pop()
            self._lists -= isinstance(ended.value, list)
            if is_list == isinstance(ended.value, list):
                return

    def _key(self, key: str) -> None:
        """Handle a key; a duplicate key begins the next object: the braces between the two are missing."""
        if key in self._open[-1].value:
            self._open.pop()
            self._push({})
        self._open[-1].key = key

    def _string(self) -> None:
        above = self._open[-1]
        is_value = isinstance(above.value, dict) and above.key is not None
        start = self._at + 1
        if not is_value and isinstance(above.value, dict) and not _KEY.match(self._text, start):
            self._at = start  # surplus quote
            return
        if is_value and (key := _END_OF_KEY.match(self._text, start)):  # the quote was the second one of the key
            start = key.end()
        end = self._value_end(start) if is_value else self._quote(start)
        ended = end < len(self._text)
        string = unescaped(self._text[start:end])
        self._at = end + (ended and self._text[end] == '"')
        if is_value and not ended:
            assert above.key is not None
            self.cut_key = above.key
        if is_value or isinstance(above.value, list):
            self._put(string)
        elif ended:
            self._key(string)

    def _quote(self, at: int) -> int:
        """Return the position of the next quote without a backslash, or the end of the text."""
        run = _STRING.match(self._text, at)
        end = run.end() if run else at
        return end if end < len(self._text) and self._text[end] == '"' else len(self._text)

    def _value_end(self, start: int) -> int:
        text = self._text
        inner = -1  # last quote that did not seem to end the text
        at = start
        while (quote := self._quote(at)) < len(text):
            if _BEHIND_VALUE.match(text, quote + 1):
                return quote
            first = max(start, quote - 20)
            before = text[first:quote].rstrip()
            if (braces := _NEXT_OBJECT.search(before)) and _FIRST_KEY.match(text, quote):
                # The next object begins here: the preceding quote was the end, whatever text is between.
                return inner if inner >= 0 else first + braces.start()
            if before.endswith(",") and _FIELD.match(text, quote):  # the quote at the end of the text is missing
                return text.rindex(",", start, quote)
            inner, at = quote, quote + 1
        return len(text)


def read_loosely(text: str) -> Loose:
    """Return the objects and lists in a text, and the text around them. Never raises.

    A cut text loses only a key without a value and a list of numbers that may be incomplete.
    """
    found = Loose(text)
    found.read()
    return found


# Signs of a loop in an answer that ends within a block, as in dots.ocr's own cleaner: this many repetitions of the same
# label and text, or two of the same box.
_SAME_TEXTS = 5
_SAME_BOXES = 2
_CUT = "the answer ends within a block"
_LEFT_OVER = " \t\r\n,;]}"
_FENCE = re.compile(r"```\w*")
_REPR = re.compile(r"[\[{]\s*+\{?\s*+'")  # of Python, with single quotes
_JSON = re.compile(r"[\[{]\s*+(?:[\[{\"\]}]|\Z)")
_LONGEST_LABEL = 80
_LONGEST_BOX = 200  # maximum characters of a box that is a string
_MOST_SIDES = 8  # numbers of four corners


MOST_UNREAD = "more than half of the answer is JSON that cannot be read"
_BETWEEN = "words between the blocks of malformed JSON were left out"
#: Losses of an answer that is not acceptable, whatever was read.
UNACCEPTABLE = frozenset({MOST_UNREAD, _BETWEEN, _CUT})
#: Names of a box's sides, and of its corner and size.
_SIDES = (
    ("x1", "y1", "x2", "y2"),
    ("x0", "y0", "x1", "y1"),
    ("xmin", "ymin", "xmax", "ymax"),
    ("left", "top", "right", "bottom"),
)
_SIZES = (("x", "y", "width", "height"), ("left", "top", "width", "height"), ("x", "y", "w", "h"))


@dataclass(slots=True)
class _Piece:
    label: str
    box: tuple[float, ...]  # as written; four numbers if readable
    text: str | None
    above: "_Piece | None" = None  # piece that holds this one


def _parsed(text: str, scale: Scale, *, texts: bool = True) -> Parsed:
    """Return the blocks of a JSON answer: tables closed, formulas in `$$`, descriptions of figures in `described`.

    A piece with an unreadable box keeps its text, with the whole page as its place. A figure without a box is lost. An
    answer without JSON is read as Markdown. Without `texts`, blocks have only kinds and boxes. Never raises; linear.
    """
    pieces, lost, plain = _read(text, texts=texts)
    if plain is not None:
        return plain if texts else replace(plain, blocks=())
    sides = [side for piece in pieces for side in piece.box]
    if sides and 0 < max(sides) <= 1:  # no piece is as small: the model wrote fractions
        scale = from_fractions
    blocks: list[Block] = []
    for piece in pieces:
        box = scale(*piece.box) if len(piece.box) == 4 else None
        boxes = (box,) if box else ()
        kind = kind_of(piece.label)
        if box is None and (kind is not BlockKind.FIGURE or not texts):
            lost.append(unreadable(piece.label))
        if not texts:
            blocks += [Block(kind, box, label=piece.label, level=level_of(piece.label)) for box in boxes]
        elif kind is BlockKind.FIGURE:
            blocks += described(piece.label, boxes, piece.text or "", lost)
        else:
            if piece.text is None and kind is not BlockKind.TABLE:
                lost.append(f"{piece.label or 'a piece'}: no text")
            if piece.label:
                written = piece.text or ""
                blocks += labelled(
                    piece.label, boxes, table_text(written) if kind is BlockKind.TABLE else written, lost
                )
            else:
                blocks += unlabelled(piece.text or "", "", boxes or (WHOLE_PAGE,), headings=True)
    return Parsed(with_captions(blocks) if texts else tuple(blocks), tuple(lost))


def _read(text: str, *, texts: bool) -> tuple[list[_Piece], list[str], Parsed | None]:
    """Return the pieces and the losses, or the answer read as Markdown if it is not JSON."""
    body = without_special(text).strip()
    if body.startswith('"'):
        with suppress(ValueError):
            body = json.loads(body, strict=False) or body
    found = read_loosely(body)
    if not found.sound and _REPR.match(body):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            found = Loose(body, [literal_eval(body)])
    # Objects with a box or a text, in order, at any depth. Those within another one have its place and label.
    objects: list[dict[str, Any]] = []
    pieces: list[_Piece] = []
    waiting: list[tuple[Any, _Piece]] = [(value, _Piece("", (), None)) for value in reversed(found.values)]
    between: list[str] = []  # strings in lists that are no texts
    while waiting:
        value, above = waiting.pop()
        value = (_row(value) if isinstance(value, list) else None) or value
        if isinstance(value, list) and above.text is None and any(isinstance(part, dict) for part in value):
            between += [part for part in value if isinstance(part, str) and not _FENCE.fullmatch(part)]
        within = value.values() if isinstance(value, dict) else value
        inner = [part for part in within if isinstance(part, dict | list)]
        if isinstance(value, dict) and not value.keys().isdisjoint((*_BOX_KEYS, *_TEXT_KEYS)):
            objects.append(value)
            above = _piece(value, above)
            pieces.append(above)
        waiting.extend((part, above) for part in reversed(inner))
    # A piece without a text of its own that holds others is only their place, unless it is a figure.
    holders = {id(piece.above) for piece in pieces}
    last = objects[-1] if objects else None
    holders -= {id(piece) for piece in pieces if piece.text is not None or kind_of(piece.label) is BlockKind.FIGURE}
    pieces = [piece for piece in pieces if id(piece) not in holders]
    lost: list[str] = []
    outside = _FENCE.sub("", found.outside).strip(_LEFT_OVER)
    mostly_prose = not pieces or (2 * len(outside) > len(body) and not _FIELD.search(outside))
    if body and mostly_prose and (outside or not _JSON.search(body)):
        plain = parse_plain(text)
        return [], lost, replace(plain, lost=("no layout in the answer: the place of its text is not known",))
    lost += [_BETWEEN] if not found.sound and any(map(str.isalpha, "".join(between))) else []
    if outside:
        lost.append(MOST_UNREAD if 2 * len(outside) > len(body) else "text outside of the JSON was left out")
    begun = found.cut_object or {}
    holds = any(isinstance(part, dict | list) for part in begun.values())  # the list of blocks: only its brace is cut
    cut = lacks = found.cut_object is not None and (last is begun or not holds)
    if last is not None and last is begun:
        # A piece at the cut stays if it has a text, or a whole label and box where no text is expected.
        end = pieces[-1]
        named = bool(end.label) and found.cut_key not in _LABEL_KEYS
        whole = named and len(end.box) == 4 and (not texts or kind_of(end.label) is BlockKind.FIGURE)
        pieces = pieces if end.text or whole else pieces[:-1]
        lacks = bool(found.cut_key) or not (end.text or whole)
    if lacks:
        lost.append(_CUT)
    if not pieces and not lost and (found.cut or any(found.values)):
        lost.append("the answer ends before the first block is whole" if found.cut else "JSON without any block")
    return _without_doubles(pieces, cut, lost), lost, None


def _row(value: list[Any]) -> dict[str, Any] | None:
    """Return a piece that is written as a list of its box, label, and text; None for another list."""
    if len(value) == 3 and isinstance(value[0], list) and isinstance(value[1], str) and isinstance(value[2], str):
        return dict(zip(("bbox", "label", "text"), value, strict=True)) if len(_numbers(value[0])) == 4 else None
    return None


def _piece(value: dict[str, Any], above: _Piece) -> _Piece:
    box, label, text = (
        next((value[key] for key in keys if key in value), None) for keys in (_BOX_KEYS, _LABEL_KEYS, _TEXT_KEYS)
    )
    name = " ".join(label.split())[:_LONGEST_LABEL] if isinstance(label, str) else ""
    numbers = above.box if value.keys().isdisjoint(_BOX_KEYS) else _numbers(box)
    return _Piece(name or above.label, numbers, _written(text), above)


def _written(value: Any) -> str | None:
    """Return the text of a piece: a string, a number, or lines; rows of cells as a table. None without a text."""
    if isinstance(value, list) and value and all(isinstance(row, list) and row for row in value):
        if any(isinstance(cell, dict | list) for row in value for cell in row):
            return None
        rows = ([html.escape(_written(cell) or "", quote=False) for cell in row] for row in value)
        cells = ("".join(cell_html("td", cell, 1, 1) for cell in row) for row in rows)
        return f"<table>{''.join(f'<tr>{line}</tr>' for line in cells)}</table>"
    if isinstance(value, dict | list) and value:
        parts = list(value.values() if isinstance(value, dict) else value)
        lines = [_written(part) for part in parts if not isinstance(part, dict | list)]
        return "\n".join(filter(None, lines)) if len(lines) == len(parts) else None
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else None


def _numbers(value: Any) -> tuple[float, ...]:
    """Return the numbers of a box: a list, two points, four corners, named sides, or a string."""
    if isinstance(value, str):
        return tuple(map(float, NUMBER.findall(value))) if len(value) <= _LONGEST_BOX else ()
    if isinstance(value, dict):
        for names, sized in (*((names, False) for names in _SIDES), *((names, True) for names in _SIZES)):
            if all(name in value for name in names):
                found = _numbers([value[name] for name in names])
                return (*found[:2], found[0] + found[2], found[1] + found[3]) if sized and len(found) == 4 else found
        return ()
    if not isinstance(value, list) or len(value) > _MOST_SIDES:
        return ()
    flat: list[Any] = []
    for part in value:
        flat += part if isinstance(part, list) and len(part) <= 4 else [part]
    numbers: list[float] = []
    for number in flat:
        if isinstance(number, str):
            sound = NUMBER.fullmatch(number.strip()) is not None
        else:
            sound = isinstance(number, int | float) and not isinstance(number, bool) and abs(number) < 1e9
        if not sound:
            return ()
        numbers.append(float(number))
    if len(numbers) == _MOST_SIDES:
        xs, ys = numbers[::2], numbers[1::2]
        return min(xs), min(ys), max(xs), max(ys)
    return tuple(numbers)


def _without_doubles(pieces: list[_Piece], cut: bool, lost: list[str]) -> list[_Piece]:
    """Return the pieces without repetitions by a loop, keeping the first; unless it is cut, drop only exact copies."""
    texts: Counter[Any] = Counter((piece.label, piece.text) for piece in pieces if piece.text)
    boxes: Counter[Any] = Counter(piece.box for piece in pieces if len(piece.box) == 4)

    def signs(piece: _Piece) -> list[Hashable]:
        found: list[Hashable] = [(piece.label, piece.text, piece.box)] if len(piece.box) == 4 else []
        if cut and texts[(piece.label, piece.text)] >= _SAME_TEXTS:
            found.append((piece.label, piece.text))
        if cut and boxes[piece.box] >= _SAME_BOXES:
            found.append(piece.box)
        return found

    return without_copies(pieces, signs, lost)


def parse_dots(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of dots.ocr's layout, boxes in pixels of the resized image. Never raises; linear."""
    return _parsed(text, from_resized(frame))


def parse_dots_layout_only(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of dots.ocr's layout without text."""
    return _parsed(text, from_resized(frame), texts=False)


def parse_json(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of a layout in JSON with common key names and boxes in 0..1000."""
    return _parsed(text, from_1000)


def parse_surya_layout(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of Surya's layout (`label`, `bbox`, `count`) without text, boxes in 0..1000."""
    return _parsed(text, from_1000, texts=False)
