"""Export with `format=chunks`: passages for retrieval."""

import asyncio
import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from llm_ocr.errors import UsageError
from llm_ocr.exporting import Exported, ExportJob
from llm_ocr.models.parsers.coordinates import WHOLE_PAGE
from llm_ocr.models.parsers.pieces import markdown_pieces
from llm_ocr.results.dataset import DatasetRow
from llm_ocr.results.documents import figure_file
from llm_ocr.results.figure_text import new_words, with_figures
from llm_ocr.results.joining import is_cjk, join
from llm_ocr.results.markdown import IMAGE, blocks_to_markdown, clean, escape, target_id
from llm_ocr.results.schema import box_value, open_writer
from llm_ocr.types import FURNITURE, Block, BlockKind, Box, PageRecord, Status
from llm_ocr_outputs.exports.chunk_text import Measure, sentences, split_code, split_table, split_text, token_count
from llm_ocr_outputs.files import Batch, File, Form, export_files, json_line
from llm_ocr_outputs.source import Document

if TYPE_CHECKING:
    import pyarrow as pa


# Parts of a document: its blocks in reading order, without furniture, each as Markdown. Paragraphs across a page break
# are joined. Every part has its position and its headings.


HEADINGS = frozenset({BlockKind.TITLE, BlockKind.HEADING})
#: Kinds that are cut between sentences and may be repeated.
PROSE = frozenset({BlockKind.TEXT, BlockKind.LIST_ITEM})
#: Kinds that may separate the two halves of a paragraph across a page break.
_BETWEEN = frozenset({BlockKind.FIGURE, BlockKind.CAPTION, BlockKind.TABLE, BlockKind.FOOTNOTE})
_ENDED = re.compile(r"""[.!?…:;。！？；：।؟۔][\"'”’»)\]*_]*$""")
#: Dots of a table of contents, followed by the page.
_LEADERS = re.compile(r"(?<![.·…\s])(?:\s?[.·…]){4,}+[\s\d]*+$")
_NO_LETTERS = re.compile(r"\W+")
_LINK = "](figure:"
_LOOK_BACK = 20  # characters


class Place(NamedTuple):
    """Position of the text from the character `start` on; `boxes` are relative, empty if the model gave none."""

    start: int
    page: int
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class FigureNote:
    """Figure of a passage. `image` is the key of its file in the workspace."""

    id: str
    description: str
    image: str


@dataclass(frozen=True, slots=True)
class Part:
    """Block, or joined paragraph, as Markdown.

    `path` are its headings; for a heading, its own text is the last. `caption` is for figures only.
    """

    kind: BlockKind
    text: str
    places: tuple[Place, ...]
    path: tuple[str, ...] = ()
    figures: tuple[FigureNote, ...] = ()
    caption: str = field(default="", compare=False)

    @property
    def last_page(self) -> int:
        return self.places[-1].page


def document_parts(rows: Sequence[DatasetRow], name: str) -> list[Part]:
    """Return the parts of a document from its rows in page order; failed pages have none.

    `name` is the document's name in the Markdown tree, for the keys of its figures' files.
    """
    parts: list[Part] = []
    open_headings: list[tuple[int, str]] = []
    for row in rows:
        if row.record.status is Status.FAILED or row.record.page_number is None:
            continue
        found = [part for block in _blocks(row.record) if (part := _part(block, row, name, open_headings))]
        _append(parts, found)
    return parts


def _blocks(record: PageRecord) -> Sequence[Block]:
    """Return the page's blocks, or blocks of its Markdown if that differs (after an import or a user's own stage)."""
    markdown = clean(record.markdown)
    letters = _letters(markdown)
    texts = (blocks_to_markdown(record.blocks, furniture=furniture) for furniture in (False, True))
    if (letters or record.blocks) and any(_letters(text) == letters for text in texts):
        return [block for block in record.blocks if block.kind not in FURNITURE]
    figures = {figure.id: figure for figure in record.figures}
    blocks = []
    for piece in markdown_pieces(markdown):
        link = IMAGE.fullmatch(piece.text.strip()) if piece.kind is BlockKind.TEXT else None
        figure = figures.get(target_id(link["target"]) or "") if link else None
        if figure is None:
            blocks.append(Block(piece.kind, WHOLE_PAGE, piece.text, level=piece.level))
        else:  # a paragraph that is nothing but the link of a figure
            named = Block(BlockKind.FIGURE, figure.box, figure_id=figure.id, label=figure.label, caption=figure.caption)
            blocks.append(named)
    return blocks


def _letters(text: str) -> str:
    return _NO_LETTERS.sub("", text)


def _part(block: Block, row: DatasetRow, name: str, open_headings: list[tuple[int, str]]) -> Part | None:
    """Return a block as a part; None if it is empty. Updates `open_headings` (depth and text)."""
    linked: list[str] = []

    def shown(figure: str) -> str:
        linked.append(figure)
        words = new_words(row, figure)
        return f"[Figure: {escape(words)}]" if words else ""

    if block.kind is BlockKind.FIGURE:  # its text and description, without its caption
        bare = blocks_to_markdown([replace(block, figure_id="", inside="" if block.figure_id else block.inside)])
        text = "\n\n".join(filter(None, (bare, shown(block.figure_id) if block.figure_id else "")))
    else:
        text = blocks_to_markdown([block])
        if _LINK in text:
            text = with_figures(text, shown)
    if not text and not linked:
        return None
    if block.kind is BlockKind.LIST_ITEM:
        text = "\n".join("  " * block.level + line for line in text.split("\n"))
    if block.kind in HEADINGS and text:
        depth = 0 if block.kind is BlockKind.TITLE else max(block.level, 1)
        open_headings[:] = [one for one in open_headings if one[0] < depth]
        open_headings.append((depth, _LEADERS.sub("", text.lstrip("#").strip())))
    boxes = tuple(box for box in (block.box, *block.continued) if box != WHOLE_PAGE)
    return Part(
        block.kind,
        text,
        (Place(0, row.record.page_number or 0, boxes),),
        tuple(words for _, words in open_headings),
        tuple(note for one in linked if (note := _note(row, one, name))),
        clean(block.caption),
    )


def _note(row: DatasetRow, figure_id: str, name: str) -> FigureNote | None:
    figure = next((one for one in row.record.figures if one.id == figure_id), None)
    if figure is None:
        return None
    described = row.figures.get(figure_id)
    return FigureNote(clean(figure_id), clean(described.description) if described else "", figure_file(name, figure))


def _append(parts: list[Part], page: list[Part]) -> None:
    """Add a page's parts; join its first paragraph with the last one of the preceding page if it continues."""
    last = _open_end(parts)
    first = next((at for at, part in enumerate(page) if part.kind not in _BETWEEN), None)
    if last is not None and first is not None and _goes_on(parts[last], page[first]):
        before, after = parts[last], page.pop(first)
        text = join(before.text.rstrip(), after.text)
        shift = len(text) - len(after.text)
        moved = tuple(place._replace(start=place.start + shift) for place in after.places)
        figures = before.figures + after.figures
        parts[last] = replace(before, text=text, places=before.places + moved, figures=figures)
    parts.extend(page)


def _open_end(parts: list[Part]) -> int | None:
    for at in range(len(parts) - 1, -1, -1):
        if parts[at].kind not in _BETWEEN:
            return at if parts[at].kind in PROSE else None
        if parts[at].last_page != parts[-1].last_page:
            return None
    return None


def _goes_on(before: Part, after: Part) -> bool:
    """Return whether a paragraph continues on the next page: no end of a sentence before, no capital letter after."""
    if after.kind is not BlockKind.TEXT or after.places[0].page != before.last_page + 1:
        return False
    end, first = before.text.rstrip()[-_LOOK_BACK:], after.text[:1]
    last = end[-1:]
    if not last or _ENDED.search(end):
        return False
    return first.islower() or (is_cjk(last) and is_cjk(first) and first.isalnum())


# Pieces of a document, from which passages are filled: each fits the limit and is not cut further.


_PARAGRAPH, _LINE = "\n\n", "\n"
_SHOWN = frozenset({BlockKind.TABLE, BlockKind.FIGURE})
#: Kinds that a paragraph ending with a colon may introduce.
_INTRODUCED = frozenset({BlockKind.LIST_ITEM, BlockKind.TABLE, BlockKind.CODE, BlockKind.FORMULA})


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that is placed in a passage as a whole. `separator` precedes it unless it is the first.

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


def joined(pieces: Sequence[Piece]) -> Piece:
    """Join pieces. The size of the result is unknown (0), its path is the common one."""
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
    """Return the positions of the characters from `start` to `end`, counted from `start`."""
    ends = [*(place.start for place in places[1:]), max(end, 1)]
    inside = [place for place, after in zip(places, ends, strict=True) if place.start < max(end, 1) and after > start]
    return tuple(place._replace(start=max(0, place.start - start)) for place in inside or places[-1:])


def document_pieces(parts: Sequence[Part], limit: int, measure: Measure) -> Iterator[Piece]:
    """Yield the pieces of a document in order. They have the text of the parts, apart from repeated table headers.

    Headings and captions stay with the part below them, and captions with the table or figure above them.
    """
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
        first, *rest = _group_pieces(leads, part, trails, limit, measure)
        yield replace(first, separator=_LINE) if part.kind is before is BlockKind.LIST_ITEM else first
        yield from rest
        before = part.kind
        leads = []


def _leads(part: Part, following: Part) -> bool:
    """Return whether a part must not be separated from the following part."""
    if part.kind in HEADINGS:
        return True
    if part.kind is BlockKind.CAPTION:
        return following.kind in _SHOWN or following.kind is BlockKind.CODE
    ends_open = part.kind is BlockKind.TEXT and part.text.rstrip().endswith((":", "："))
    return ends_open and following.kind in _INTRODUCED


def _trails(shown: Part, parts: Sequence[Part], at: int) -> bool:
    """Return whether the part at `at` is a caption of the preceding figure or table."""
    if parts[at].kind is not BlockKind.CAPTION:
        return False
    if shown.caption and parts[at].text in shown.caption:
        return True
    return at + 1 == len(parts) or parts[at + 1].kind not in _SHOWN


def _group_pieces(
    leads: Sequence[Part], main: Part, trails: Sequence[Part], limit: int, measure: Measure
) -> list[Piece]:
    """Return the pieces of a part, of the headings and captions before it, and of its captions after it."""
    whole = _merged([_piece(part, measure) for part in (*leads, main, *trails)], measure)
    if whole.size <= limit:
        return [whole]
    before, room = list[Piece](), limit
    if leads:  # as one piece if they fit, so that the last piece stays with the main part
        together = _merged([_piece(part, measure) for part in leads], measure)
        each = (piece for part in leads for piece in _split(part, limit, limit, measure))
        before = [together] if together.size <= limit else list(each)
    if before and before[-1].size <= limit // 2:
        room = limit - before[-1].size - measure(_PARAGRAPH)
    pieces = before
    for part in (main, *trails):
        first, *rest = _split(part, room if part is main else limit, limit, measure)
        pieces = [*pieces[:-1], *_together(pieces[-1:], first, limit, measure), *rest]
    return pieces


def _together(before: Sequence[Piece], piece: Piece, limit: int, measure: Measure) -> list[Piece]:
    whole = _merged([*before, piece], measure)
    return [whole] if whole.size <= limit else [*before, piece]


def _merged(pieces: Sequence[Piece], measure: Measure) -> Piece:
    whole = joined(pieces)
    path = pieces[-1].path if whole.section else whole.path  # headings apply to the pieces after them
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
    """Return the part in pieces of at most `limit`, the first piece of at most `room`."""
    if measure(part.text) <= room:
        return [_piece(part, measure)]
    match part.kind:
        case BlockKind.TABLE:
            texts = split_table(part.text, room, limit, measure)
        case BlockKind.CODE if part.text.startswith("```"):
            texts = split_code(part.text, room, limit, measure)
        case _:
            pieces, at = list[Piece](), 0
            for text in split_text(part.text, room, limit, measure):
                places = between(part.places, at, at + len(text))
                pieces.append(_cut(part, text, measure, places, "" if at else _PARAGRAPH))
                at += len(text)
            return pieces
    return [_cut(part, text, measure, part.places) for text in texts]


# Passages: a document cut along its headings and blocks into texts of limited size.
#
# - A heading begins a passage. Exception: the preceding passage is small (less than a quarter of the limit) and belongs
#   to the same section or its parent. A heading stays with the text after it, a caption with its table or figure.
# - A paragraph, list item, table, figure (description and caption), formula, or listing within the limit is never cut.
#   A longer paragraph or description is cut between sentences, a longer sentence between words. A longer table is cut
#   between rows, with its header repeated; a longer listing between lines.
# - Only a word or a row above the limit makes a larger passage.
# - A paragraph across a page break is joined. Running heads, feet, and page numbers are excluded.


#: Share of the limit below which a passage continues with the next section.
SMALL = 0.25


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of passages: `size` is the maximum, `overlap` the maximum to repeat from the preceding passage."""

    size: int = 2000
    overlap: int = 0
    measure: Measure = len


def document_chunks(
    document_id: str, source: str, name: str, rows: Sequence[DatasetRow], limits: Limits
) -> Iterator[dict[str, Any]]:
    """Yield the passages of a document.

    Args:
        document_id: Id of the document.
        source: Its path or URL.
        name: Its name in the Markdown tree.
        rows: Its rows in page order.
        limits: Limits of the passages.

    Yields:
        `id`, which stays the same while the passage does, wherever it moves; `document_id`; `source`; `index`, from 0
        within the document; `text`, Markdown; `heading_path`, the headings that apply to all of it, highest first;
        `page_first` and `page_last`, from 1; `boxes`, `{page, x0, y0, x1, y1}` relative to the page as displayed, empty
        if the model gave none; `kinds` of its blocks; `figures`, `{id, description, image}`, where `image` is the key
        of the file in the workspace; `characters`; `tokens`, null unless a tokenizer counts them; `overlap`, the number
        of initial characters that repeat the end of the preceding passage.
    """
    seen: Counter[str] = Counter()
    found = document_pieces(document_parts(rows, name), limits.size, limits.measure)
    for index, (pieces, repeated) in enumerate(_passages(found, limits)):
        whole = joined(pieces)
        text = whole.text.rstrip()
        about = json.dumps([whole.path, text], ensure_ascii=False)
        digest = hashlib.sha256(f"{about}{seen[about] or ''}".encode()).hexdigest()[:16]
        seen[about] += 1
        pages = [place.page for place in whole.places]
        boxes = dict.fromkeys((place.page, box) for place in whole.places for box in place.boxes)
        yield {
            "id": f"{clean(document_id)}-c{digest}",
            "document_id": clean(document_id),
            "source": clean(source),
            "index": index,
            "text": text,
            "heading_path": list(whole.path),
            "page_first": min(pages),
            "page_last": max(pages),
            "boxes": [{"page": page, **box_value(box)} for page, box in boxes],
            "kinds": list(whole.kinds),
            "figures": [asdict(figure) for figure in dict.fromkeys(whole.figures)],
            "characters": len(text),
            "tokens": None if limits.measure is len else limits.measure(text),
            "overlap": repeated,
        }


def _passages(pieces: Iterable[Piece], limits: Limits) -> Iterator[tuple[list[Piece], int]]:
    """Yield the pieces of each passage, and the number of characters repeated from the preceding passage."""
    measure = limits.measure
    filled: list[Piece] = []
    size = repeated = 0
    for piece in pieces:
        is_section = bool(filled) and piece.section and _parts_from(filled[-1], piece, size, limits)
        is_full = bool(filled) and not is_section and not _fits(filled, size, piece, limits)
        tail = _tail(filled, piece, limits) if is_full else None
        if is_section or is_full:
            if any(one.text.strip() for one in filled):
                yield filled, repeated
            filled, size, repeated = [], 0, 0
        if tail is not None:
            filled, size, repeated = [tail], tail.size, len(tail.text) + len(piece.separator)
        size += piece.size + (measure(piece.separator) if filled else 0)
        filled.append(piece)
    if any(one.text.strip() for one in filled):
        yield filled, repeated


def _parts_from(last: Piece, section: Piece, size: int, limits: Limits) -> bool:
    """Return whether a section begins a passage: after an unrelated section, and after a passage that is not small."""
    here, path = last.path, section.path
    related = len(here) <= len(path) and here[: len(path) - 1] == path[:-1]
    return not related or size >= SMALL * limits.size


def _fits(filled: Sequence[Piece], size: int, piece: Piece, limits: Limits) -> bool:
    measure = limits.measure
    if size + measure(piece.separator) + piece.size > limits.size:
        return False
    # A text may have more tokens than its parts together.
    return measure is len or measure(joined([*filled, piece]).text) <= limits.size


def _tail(filled: Sequence[Piece], follows: Piece, limits: Limits) -> Piece | None:
    """Return the last sentences of a passage that may be repeated before the next piece; None for none."""
    most, measure = limits.overlap, limits.measure
    alike = takewhile(lambda piece: piece.prose and piece.path == follows.path, reversed(filled))
    run = list(alike)[::-1] if most and follows.prose else []
    if not run:
        return None
    last = joined(run)
    begin, total = len(last.text), 0
    room = min(most, limits.size - follows.size - measure(follows.separator))
    for sentence in reversed(list(sentences(last.text))[1 if last.section else 0 :]):
        total += measure(sentence)
        if total > room:
            break
        begin -= len(sentence)
    tail = last.text[begin:]
    # A text may have more tokens than its parts together.
    if not tail or measure(tail) > most or measure(f"{tail}{follows.separator}{follows.text}") > limits.size:
        return None
    # Prose: without figures, and not as the beginning of a section.
    kinds = tuple(kind for kind in last.kinds if kind in PROSE)
    places = between(last.places, begin, len(last.text))
    return Piece(tail, measure(tail), last.separator, kinds, places, last.path, prose=True)


#: Rows of a row group in Parquet.
_GROUP = 1000


@cache
def _schema() -> "pa.Schema":
    import pyarrow as pa

    real, whole, text = pa.float64(), pa.int64(), pa.string()
    box = pa.struct([("page", whole), *((side, real) for side in ("x0", "y0", "x1", "y1"))])
    figure = pa.struct([(name, text) for name in ("id", "description", "image")])
    return pa.schema(
        [
            *((name, text) for name in ("id", "document_id", "source")),
            ("index", whole),
            ("text", text),
            ("heading_path", pa.list_(text)),
            ("page_first", whole),
            ("page_last", whole),
            ("boxes", pa.list_(box)),
            ("kinds", pa.list_(text)),
            ("figures", pa.list_(figure)),
            *((name, whole) for name in ("characters", "tokens", "overlap")),
        ]
    )


# Files of the format: `chunks/<batch>.jsonl` or `.parquet`, one passage per row, with the fields of `document_chunks`.


#: Increased when the same rows give other passages.
_VERSION = 1


async def export_chunks(job: ExportJob) -> Exported:
    """Write the passages; errors as in `export_files` and `token_count`.

    Raises:
        UsageError: the overlap is more than half of the size.
    """
    settings = job.settings
    if settings.chunk_overlap > settings.chunk_size // 2:
        raise UsageError(
            f"`chunk_overlap={settings.chunk_overlap}` is more than half of `chunk_size={settings.chunk_size}`",
            hint="Decrease the overlap, or increase the size.",
        )
    measure: Measure = len
    tokenizer = ""
    if settings.tokenizer is not None:
        measure, tokenizer = await asyncio.to_thread(token_count, settings.tokenizer)
    limits = Limits(settings.chunk_size, settings.chunk_overlap, measure)

    def write(batch: Batch, documents: Iterator[Document]) -> Iterator[File]:
        rows = (row for one in documents for row in document_chunks(one.id, one.source, one.names[0], one.rows, limits))
        buffer, count = io.BytesIO(), 0
        if settings.chunk_format == "parquet":
            import pyarrow as pa

            with open_writer(buffer, _schema()) as writer:
                while group := list(islice(rows, _GROUP)):
                    writer.write_table(pa.Table.from_pylist(group, schema=_schema()))
                    count += len(group)
        else:
            for row in rows:
                buffer.write(json_line(row))
                count += 1
        if count:
            yield File(f"chunks/{batch.name}.{settings.chunk_format}", buffer.getvalue(), count)

    form = Form(
        "chunks",
        _VERSION,
        write,
        lambda _: job.output.load_line(
            f"chunks/*.{settings.chunk_format}",
            described=False,
            reader="parquet" if settings.chunk_format == "parquet" else "json",
        ),
        {
            "size": limits.size,
            "overlap": limits.overlap,
            "tokenizer": tokenizer,
            "format": settings.chunk_format,
        },
        unit="passages",
    )
    return await export_files(job, form)
