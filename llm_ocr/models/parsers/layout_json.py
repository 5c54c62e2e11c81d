"""Layouts in JSON to blocks: a list of objects with a box, a label, and mostly a text.

This is the only form of dots.ocr and of Surya's layout, and the form of any model with a prompt for such JSON. Cut or
malformed answers keep every readable object.
"""

import re
from ast import literal_eval
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from llm_ocr.models.parsers.coordinates import NUMBER, WHOLE_PAGE, Scale, from_1000, from_resized
from llm_ocr.models.parsers.labels import (
    described,
    kind_of,
    labelled,
    level_of,
    unlabelled,
    unreadable,
    with_captions,
)
from llm_ocr.models.parsers.loose_json import Loose, read_loosely
from llm_ocr.models.parsers.plain import parse_plain, without_special
from llm_ocr.models.profile import NO_FRAME, Frame, Parsed
from llm_ocr.types import Block, BlockKind

# Signs of a loop in an answer that is not sound JSON, as in dots.ocr's own cleaner: this many repetitions of the same
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


# Names of the keys for a piece's box, label, and text; of several names, the first present one counts.
_BOX_KEYS = ("bbox", "bbox_2d", "box", "box_2d")
_LABEL_KEYS = ("category", "label", "type", "class", "block_label")
_TEXT_KEYS = ("text", "content", "markdown", "html", "block_content")


@dataclass(slots=True)
class _Piece:
    label: str
    box: tuple[float, ...]  # as written; four numbers if readable
    text: str | None


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


def _parsed(text: str, scale: Scale, *, texts: bool = True) -> Parsed:
    """Return the blocks of a JSON answer: tables closed, formulas in `$$`, descriptions of figures in `described`.

    A piece with an unreadable box keeps its text, with the whole page as its place. A figure without a box is lost. An
    answer without JSON is read as Markdown. Without `texts`, blocks have only kinds and boxes.
    """
    pieces, lost, plain = _read(text, texts=texts)
    if plain is not None:
        return plain if texts else replace(plain, blocks=())
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
                blocks += labelled(piece.label, boxes, piece.text or "", lost)
            else:
                blocks += unlabelled(piece.text or "", "", boxes or (WHOLE_PAGE,), headings=True)
    return Parsed(with_captions(blocks) if texts else tuple(blocks), tuple(lost))


def _read(text: str, *, texts: bool) -> tuple[list[_Piece], list[str], Parsed | None]:
    """Return the pieces and the losses, or the answer read as Markdown if it is not JSON."""
    body = without_special(text).strip()
    found = read_loosely(body)
    if not found.sound and _REPR.match(body):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            found = Loose(values=[literal_eval(body)])
    # Objects with a box or a text, in order, at any depth.
    objects: list[dict[str, Any]] = []
    waiting = list(reversed(found.values))
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict) and not value.keys().isdisjoint((*_BOX_KEYS, *_TEXT_KEYS)):
            objects.append(value)
        inner = value.values() if isinstance(value, dict) else value
        waiting.extend(part for part in reversed(inner) if isinstance(part, dict | list))
    pieces = [_piece(value) for value in objects]
    lost: list[str] = []
    outside = _FENCE.sub("", found.outside).strip(_LEFT_OVER)
    if body and (not pieces or 2 * len(outside) > len(body)) and (outside or not _JSON.search(body)):
        plain = parse_plain(text)
        return [], lost, replace(plain, lost=("no layout in the answer: the place of its text is not known",))
    if outside:
        lost.append("text outside of the JSON was left out")
    begun = found.cut_object or {}
    if objects and objects[-1] is begun:
        # A piece at the cut stays if it has a text, or a whole label and box where no text is expected.
        last = pieces[-1]
        named = bool(last.label) and found.cut_key not in _LABEL_KEYS
        whole = named and len(last.box) == 4 and (not texts or kind_of(last.label) is BlockKind.FIGURE)
        if not (last.text or whole):
            pieces.pop()
            lost.append(_CUT)
    elif any(key in begun for key in _LABEL_KEYS):
        lost.append(_CUT)
    if not pieces and not lost and (found.cut or any(found.values)):
        lost.append("the answer ends before the first block is whole" if found.cut else "JSON without any block")
    return _without_doubles(pieces, found.sound, lost), lost, None


def _piece(value: dict[str, Any]) -> _Piece:
    box, label, text = (
        next((value[key] for key in keys if key in value), None) for keys in (_BOX_KEYS, _LABEL_KEYS, _TEXT_KEYS)
    )
    name = " ".join(label.split())[:_LONGEST_LABEL] if isinstance(label, str) else ""
    if isinstance(text, list) and text and all(isinstance(line, str) for line in text):
        text = "\n".join(text)
    elif isinstance(text, float) and text.is_integer() and abs(text) < 1e15:
        text = str(int(text))
    elif isinstance(text, int | float) and not isinstance(text, bool):
        text = str(text)
    return _Piece(name, _numbers(box), text if isinstance(text, str) else None)


def _numbers(value: Any) -> tuple[float, ...]:
    """Return the numbers of a box: a list, two points, or a string."""
    if isinstance(value, str):
        return tuple(map(float, NUMBER.findall(value))) if len(value) <= _LONGEST_BOX else ()
    if not isinstance(value, list) or len(value) > 4:
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
    return tuple(numbers)


def _without_doubles(pieces: list[_Piece], sound: bool, lost: list[str]) -> list[_Piece]:
    """Return the pieces without repetitions by a loop, keeping the first; in sound JSON, drop only exact copies."""
    texts: Counter[Any] = Counter((piece.label, piece.text) for piece in pieces if piece.text)
    boxes: Counter[Any] = Counter(piece.box for piece in pieces if len(piece.box) == 4)
    seen: set[Any] = set()
    kept: list[_Piece] = []
    for piece in pieces:
        signs: list[Any] = [(piece.label, piece.text, piece.box)] if len(piece.box) == 4 else []
        if not sound and texts[(piece.label, piece.text)] >= _SAME_TEXTS:
            signs.append((piece.label, piece.text))
        if not sound and boxes[piece.box] >= _SAME_BOXES:
            signs.append(piece.box)
        if seen.isdisjoint(signs):
            kept.append(piece)
        seen.update(signs)
    if len(kept) < len(pieces):
        lost.append(f"{len(pieces) - len(kept)} blocks that repeat another were left out")
    return kept
