"""Layouts in JSON to blocks: a list of objects with a box, a label, and mostly a text.

This is the only form of dots.ocr and of Surya's layout, and the form of any model with a prompt for such JSON. Cut or
malformed answers keep every readable object.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llm_ocr.models.parsers.coordinates import WHOLE_PAGE, Scale, from_1000, from_resized
from llm_ocr.models.parsers.labels import described, kind_of, labelled, level_of, unlabelled, with_captions
from llm_ocr.models.parsers.loose_json import read_loosely
from llm_ocr.models.parsers.plain import parse_plain, without_special
from llm_ocr.models.profile import NO_FRAME, Frame, Parsed
from llm_ocr.types import Block, BlockKind, Box

# Signs of a loop in an answer that is not sound JSON, as in dots.ocr's own cleaner: this many repetitions of the same
# label and text, or two of the same box.
_SAME_TEXTS = 5
_SAME_BOXES = 2
_CUT = "the answer ends within a block"
_LEFT_OVER = " \t\r\n,;]}"
_FENCE = re.compile(r"```\w*")
_JSON = re.compile(r"[\[{]\s*+(?:[\[{\"\]}]|\Z)")
_NUMBERS = re.compile(r"-?\d{1,9}(?:\.\d{0,9})?")
_LONGEST_LABEL = 80
_LONGEST_BOX = 200  # maximum characters of a box that is a string


@dataclass(frozen=True, slots=True)
class LayoutKeys:
    """Names of the keys for a piece's box, label, and text; of several names, the first present one counts."""

    box: tuple[str, ...] = ("bbox", "bbox_2d", "box", "box_2d")
    label: tuple[str, ...] = ("category", "label", "type", "class", "block_label")
    text: tuple[str, ...] = ("text", "content", "markdown", "html", "block_content")


#: Keys of the known models.
KEYS = LayoutKeys()


@dataclass(slots=True)
class _Piece:
    label: str
    box: tuple[float, ...]  # as written; four numbers if readable
    text: str | None


def parse_dots(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of dots.ocr's layout, boxes in pixels of the resized image. Never raises; linear."""
    return parse_layout(text, from_resized(frame))


def parse_dots_layout_only(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of dots.ocr's layout without text."""
    return parse_layout_only(text, from_resized(frame))


def parse_json(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of a layout in JSON with common key names and boxes in 0..1000."""
    return parse_layout(text, from_1000)


def parse_surya_layout(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of Surya's layout (`label`, `bbox`, `count`) without text, boxes in 0..1000."""
    return parse_layout_only(text, from_1000)


def parse_layout(text: str, scale: Scale, keys: LayoutKeys = KEYS) -> Parsed:
    """Return the blocks of a JSON answer: tables closed, formulas in `$$`, descriptions of figures in `described`.

    A piece with an unreadable box keeps its text, with the whole page as its place. A figure without a box is lost. An
    answer without JSON is read as Markdown.
    """
    pieces, lost, plain = _read(text, keys, texts=True)
    if plain is not None:
        return plain
    blocks: list[Block] = []
    for piece in pieces:
        blocks += _blocks(piece, scale, lost)
    return Parsed(with_captions(blocks), tuple(lost))


def parse_layout_only(text: str, scale: Scale, keys: LayoutKeys = KEYS) -> Parsed:
    """Return blocks with kinds and boxes and without text; pieces without a readable box are lost."""
    pieces, lost, plain = _read(text, keys, texts=False)
    if plain is not None:
        return replace(plain, blocks=())
    blocks: list[Block] = []
    for piece in pieces:
        box = _box(piece.box, scale)
        if box is None:
            lost.append(f"{piece.label or 'a piece'}: a box that cannot be read")
        else:
            blocks.append(Block(kind_of(piece.label), box, label=piece.label, level=level_of(piece.label)))
    return Parsed(tuple(blocks), tuple(lost))


def _read(text: str, keys: LayoutKeys, *, texts: bool) -> tuple[list[_Piece], list[str], Parsed | None]:
    """Return the pieces and the losses, or the answer read as Markdown if it is not JSON."""
    body = without_special(text).strip()
    found = read_loosely(body)
    objects = list(_objects(found.values, keys))
    pieces = [_piece(one, keys) for one in objects]
    lost: list[str] = []
    outside = _FENCE.sub("", found.outside).strip(_LEFT_OVER)
    if body and (not pieces or 2 * len(outside) > len(body)) and (outside or not _JSON.search(body)):
        plain = parse_plain(text)
        return [], lost, replace(plain, lost=("no layout in the answer: the place of its text is not known",))
    if outside:
        lost.append("text outside of the JSON was left out")
    begun = found.cut_object or {}
    within = bool(objects) and objects[-1] is begun
    if within and not _usable(pieces[-1], found.cut_key in keys.label, texts):
        pieces.pop()
        lost.append(_CUT)
    elif not within and any(key in begun for key in keys.label):
        lost.append(_CUT)
    if not pieces and not lost and (found.cut or any(found.values)):
        lost.append("the answer ends before the first block is whole" if found.cut else "JSON without any block")
    return _without_doubles(pieces, found.sound, lost), lost, None


def _objects(values: Sequence[Any], keys: LayoutKeys) -> Iterator[dict[str, Any]]:
    """Yield every object with a box or a text, in order, at any depth."""
    waiting = list(reversed(values))
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if any(key in value for key in (*keys.box, *keys.text)):
                yield value
            waiting.extend(reversed([one for one in value.values() if isinstance(one, dict | list)]))
        elif isinstance(value, list):
            waiting.extend(one for one in reversed(value) if isinstance(one, dict | list))


def _piece(value: dict[str, Any], keys: LayoutKeys) -> _Piece:
    label = _first(value, keys.label)
    name = " ".join(label.split())[:_LONGEST_LABEL] if isinstance(label, str) else ""
    return _Piece(name, _numbers(_first(value, keys.box)), _words(_first(value, keys.text)))


def _first(value: dict[str, Any], names: Sequence[str]) -> Any:
    return next((value[name] for name in names if name in value), None)


def _words(value: Any) -> str | None:
    """Return a text, or lines joined to one; None for other values."""
    if isinstance(value, list) and value and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value) if abs(value) < 1e15 else value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else None


def _numbers(value: Any) -> tuple[float, ...]:
    """Return the numbers of a box: a list, two points, or a string."""
    if isinstance(value, str):
        return tuple(map(float, _NUMBERS.findall(value))) if len(value) <= _LONGEST_BOX else ()
    if not isinstance(value, list) or len(value) > 4:
        return ()
    flat: list[Any] = []
    for one in value:
        flat += one if isinstance(one, list) and len(one) <= 4 else [one]
    numbers = [_number(one) for one in flat]
    return tuple(one for one in numbers if one is not None) if None not in numbers else ()


def _number(value: Any) -> float | None:
    if isinstance(value, str) and _NUMBERS.fullmatch(value.strip()):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e9 else None


def _usable(last: _Piece, label_cut: bool, texts: bool) -> bool:
    """Return whether the piece at the cut of an answer has enough content to stay."""
    if last.text:
        return True
    named = bool(last.label) and not label_cut
    return named and len(last.box) == 4 and (not texts or kind_of(last.label) is BlockKind.FIGURE)


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


def _blocks(piece: _Piece, scale: Scale, lost: list[str]) -> list[Block]:
    box = _box(piece.box, scale)
    boxes = (box,) if box else ()
    kind = kind_of(piece.label)
    if kind is BlockKind.FIGURE:
        return described(piece.label, boxes, piece.text or "", lost)
    if box is None:
        lost.append(f"{piece.label or 'a piece'}: a box that cannot be read")
    if piece.text is None and kind is not BlockKind.TABLE:
        lost.append(f"{piece.label or 'a piece'}: no text")
    if piece.label:
        return labelled(piece.label, boxes, piece.text or "", lost)
    return unlabelled(piece.text or "", "", boxes or (WHOLE_PAGE,), headings=True)


def _box(numbers: tuple[float, ...], scale: Scale) -> Box | None:
    return scale(*numbers) if len(numbers) == 4 else None
