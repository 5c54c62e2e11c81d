"""Parts of a document as the pieces of which passages are filled: each fits the limit, and none is cut any more."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from llm_ocr.results.chunk_packing import Measure, split_code, split_text
from llm_ocr.results.chunk_parts import HEADINGS, PROSE, FigureNote, Part, Place
from llm_ocr.results.chunk_tables import split_table
from llm_ocr.types import BlockKind

_PARAGRAPH, _LINE = "\n\n", "\n"
_SHOWN = frozenset({BlockKind.TABLE, BlockKind.FIGURE})
#: What a paragraph that ends with a colon may introduce.
_INTRODUCED = frozenset({BlockKind.LIST_ITEM, BlockKind.TABLE, BlockKind.CODE, BlockKind.FORMULA})


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that goes into one passage whole. `separator` stands before it unless it is the first.

    `section`: it begins with a heading. `prose`: its end may be repeated.
    """

    text: str
    size: int
    separator: str
    kinds: tuple[str, ...]
    places: tuple[Place, ...]
    path: tuple[str, ...]
    figures: tuple[FigureNote, ...] = ()
    section: bool = False
    prose: bool = False

    def since(self, start: int, measure: Measure) -> "Piece":
        """The text from there on, which is prose: without figures, and not as the beginning of a section."""
        text = self.text[start:]
        kinds = tuple(kind for kind in self.kinds if kind in PROSE)
        places = between(self.places, start, len(self.text))
        return Piece(text, measure(text), self.separator, kinds, places, self.path, prose=True)


@dataclass(frozen=True, slots=True)
class _Group:
    """What belongs together: headings and captions, what they stand over, captions below.

    `item`: the part before it is an item of the same list.
    """

    leads: tuple[Part, ...]
    main: Part
    trails: tuple[Part, ...]
    item: bool = False


def joined(pieces: Sequence[Piece]) -> Piece:
    """Pieces as one; its size is not known (0), its path what all of them share."""
    texts: list[str] = []
    places: list[Place] = []
    at = 0
    for piece in pieces:
        before = piece.separator if at and piece.text else ""
        at += len(before)
        places += [place._replace(start=place.start + at) for place in piece.places]
        texts += [before, piece.text]
        at += len(piece.text)
    return Piece(
        "".join(texts),
        0,
        pieces[0].separator,
        tuple(dict.fromkeys(kind for piece in pieces for kind in piece.kinds)),
        tuple(places),
        _shared([piece.path for piece in pieces]),
        tuple(figure for piece in pieces for figure in piece.figures),
        pieces[0].section,
        pieces[-1].prose,
    )


def _shared(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    first, last = min(paths), max(paths)
    same = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), None)
    return first[: min(len(first), len(last)) if same is None else same]


def between(places: Sequence[Place], start: int, end: int) -> tuple[Place, ...]:
    """The places of the characters from `start` to `end`, counted from `start`."""
    ends = [*(place.start for place in places[1:]), max(end, 1)]
    inside = [place for place, after in zip(places, ends, strict=True) if place.start < max(end, 1) and after > start]
    return tuple(place._replace(start=max(0, place.start - start)) for place in inside or places[-1:])


def document_pieces(parts: Sequence[Part], limit: int, measure: Measure) -> Iterator[Piece]:
    """The pieces of a document in order. All of their text is that of the parts, repeated headers of tables aside."""
    for group in _groups(parts):
        pieces = _group_pieces(group, limit, measure)
        if group.item:
            yield replace(next(pieces), separator=_LINE)
        yield from pieces


def _groups(parts: Sequence[Part]) -> Iterator[_Group]:
    leads: list[Part] = []
    before: BlockKind | None = None
    at = 0
    while at < len(parts):
        part = parts[at]
        at += 1
        if at < len(parts) and _leads(part, parts[at]):
            leads.append(part)
            continue
        trails: list[Part] = []
        while part.kind in _SHOWN and at < len(parts) and _trails(part, parts, at):
            trails.append(parts[at])
            at += 1
        item = part.kind is before is BlockKind.LIST_ITEM
        yield _Group(tuple(leads), part, tuple(trails), item)
        before = part.kind
        leads = []


def _leads(part: Part, following: Part) -> bool:
    """Whether a part must not be the last one before what follows it."""
    if part.kind in HEADINGS:
        return True
    if part.kind is BlockKind.CAPTION:
        return following.kind in _SHOWN or following.kind is BlockKind.CODE
    ends_open = part.kind is BlockKind.TEXT and part.text.rstrip().endswith((":", "："))
    return ends_open and following.kind in _INTRODUCED


def _trails(shown: Part, parts: Sequence[Part], at: int) -> bool:
    """Whether the part at `at` is a caption of the figure or table before it."""
    if parts[at].kind is not BlockKind.CAPTION:
        return False
    if shown.caption and parts[at].text in shown.caption:
        return True
    return at + 1 == len(parts) or parts[at + 1].kind not in _SHOWN


def _group_pieces(group: _Group, limit: int, measure: Measure) -> Iterator[Piece]:
    whole = _merged([_piece(part, measure) for part in (*group.leads, group.main, *group.trails)], measure)
    if whole.size <= limit:
        yield whole
        return
    leads, room = list(_leads_of(group, limit, measure)), limit
    if leads and leads[-1].size <= limit // 2:
        room = limit - leads[-1].size - measure(_PARAGRAPH)
    yield from leads[:-1]
    first, *rest = _split(group.main, room, limit, measure)
    pieces = [*_together(leads[-1:], first, limit, measure), *rest]
    for trail in group.trails:
        begin, *more = _split(trail, limit, limit, measure)
        pieces = [*pieces[:-1], *_together(pieces[-1:], begin, limit, measure), *more]
    yield from pieces


def _leads_of(group: _Group, limit: int, measure: Measure) -> Iterator[Piece]:
    """The leads as one piece where they fit, so that the last one is what stays with the main part."""
    if not group.leads:
        return
    whole = _merged([_piece(part, measure) for part in group.leads], measure)
    if whole.size <= limit:
        yield whole
    else:
        for part in group.leads:
            yield from _split(part, limit, limit, measure)


def _together(before: Sequence[Piece], piece: Piece, limit: int, measure: Measure) -> list[Piece]:
    whole = _merged([*before, piece], measure)
    return [whole] if whole.size <= limit else [*before, piece]


def _merged(pieces: Sequence[Piece], measure: Measure) -> Piece:
    whole = joined(pieces)
    path = pieces[-1].path if whole.section else whole.path  # headings are over what follows them
    return replace(whole, size=measure(whole.text), path=path)


def _piece(part: Part, measure: Measure) -> Piece:
    return _cut(part, part.text, measure, part.places)


def _cut(part: Part, text: str, measure: Measure, places: tuple[Place, ...], separator: str = _PARAGRAPH) -> Piece:
    return Piece(
        text,
        measure(text),
        separator,
        (part.kind.value,),
        places,
        part.path,
        part.figures,
        section=part.kind in HEADINGS,
        prose=part.kind in PROSE,
    )


def _split(part: Part, room: int, limit: int, measure: Measure) -> list[Piece]:
    """The part in pieces of at most `limit`, the first one of at most `room`; one piece where it fits."""
    if measure(part.text) <= room:
        return [_piece(part, measure)]
    match part.kind:
        case BlockKind.TABLE:
            return _same_place(part, split_table(part.text, room, limit, measure), measure)
        case BlockKind.CODE if part.text.startswith("```"):
            return _same_place(part, split_code(part.text, room, limit, measure), measure)
        case _:
            return list(_by_sentence(part, split_text(part.text, room, limit, measure), measure))


def _same_place(part: Part, texts: Iterable[str], measure: Measure) -> list[Piece]:
    return [_cut(part, text, measure, part.places) for text in texts]


def _by_sentence(part: Part, texts: Iterable[str], measure: Measure) -> Iterator[Piece]:
    at = 0
    for text in texts:
        places = between(part.places, at, at + len(text))
        yield _cut(part, text, measure, places, "" if at else _PARAGRAPH)
        at += len(text)
