"""What a document's passages are made of: its blocks in reading order, without furniture, each as Markdown.

Paragraphs that go on over a page are joined. Every part knows where it stands and under which headings.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from llm_ocr.engines.embedded.layout.joining import is_cjk, join
from llm_ocr.models.coordinates import WHOLE_PAGE
from llm_ocr.models.pieces import pieces
from llm_ocr.results.dataset import DatasetRow
from llm_ocr.results.documents import figure_file
from llm_ocr.results.figure_links import IMAGE, escape, target_id
from llm_ocr.results.figure_marks import new_words, with_figures
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.results.text import clean
from llm_ocr.types import FURNITURE, Block, BlockKind, Box, Figure, PageRecord, Status

HEADINGS = frozenset({BlockKind.TITLE, BlockKind.HEADING})
#: What is cut by sentences and may be repeated.
PROSE = frozenset({BlockKind.TEXT, BlockKind.LIST_ITEM})
#: What may stand between the two halves of a paragraph that a page's end parts.
_BETWEEN = frozenset({BlockKind.FIGURE, BlockKind.CAPTION, BlockKind.TABLE, BlockKind.FOOTNOTE})
_ENDED = re.compile(r"""[.!?…:;。！？；：।؟۔][\"'”’»)\]*_]*$""")
#: The dots of a table of contents, and the page behind them.
_LEADERS = re.compile(r"(?<![.·…\s])(?:\s?[.·…]){4,}+[\s\d]*+$")
_NO_LETTERS = re.compile(r"\W+")
_LINK = "](figure:"
_LOOK_BACK = 20  # characters


class Place(NamedTuple):
    """Where the text from the character `start` on stands; `boxes` are relative, none where the model gave none."""

    start: int
    page: int
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class FigureNote:
    """A figure of a passage. `image` is the key of its file in the workspace."""

    id: str
    description: str
    image: str


@dataclass(frozen=True, slots=True)
class Part:
    """A block, or a paragraph that was joined, as Markdown.

    `path` are the headings that it stands under, its own words last for a heading. `caption` of figures alone.
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
    """The parts of a document from its rows in page order; failed pages have none.

    `name` is the document's in the Markdown tree, for the keys of its figures' files.
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
    """The page's blocks; where its Markdown says other things (an import, a stage of the user's), pieces of that."""
    markdown = clean(record.markdown)
    letters = _letters(markdown)
    texts = (blocks_to_markdown(record.blocks, furniture=furniture) for furniture in (False, True))
    if (letters or record.blocks) and any(_letters(text) == letters for text in texts):
        return [block for block in record.blocks if block.kind not in FURNITURE]
    figures = {figure.id: figure for figure in record.figures}
    return [_placed(Block(one.kind, WHOLE_PAGE, one.text, level=one.level), figures) for one in pieces(markdown)]


def _letters(text: str) -> str:
    return _NO_LETTERS.sub("", text)


def _placed(block: Block, figures: dict[str, Figure]) -> Block:
    """A paragraph that is nothing but the link to a figure is that figure."""
    link = IMAGE.fullmatch(block.text.strip()) if block.kind is BlockKind.TEXT else None
    figure = figures.get(target_id(link["target"]) or "") if link else None
    if figure is None:
        return block
    return Block(BlockKind.FIGURE, figure.box, figure_id=figure.id, label=figure.label, caption=figure.caption)


def _part(block: Block, row: DatasetRow, name: str, open_headings: list[tuple[int, str]]) -> Part | None:
    """None for a block without anything in it. `open_headings`, depth and words, is kept up to date."""
    linked = [block.figure_id] if block.figure_id else []
    if block.kind is BlockKind.FIGURE:
        text = _figure_text(block, row)
    else:
        text = blocks_to_markdown([block])
        if _LINK in text:
            text = with_figures(text, lambda figure: linked.append(figure) or _shown(row, figure))  # type: ignore[func-returns-value]
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


def _figure_text(block: Block, row: DatasetRow) -> str:
    """What is written of it beside its caption: its text, and its description."""
    bare = blocks_to_markdown([replace(block, figure_id="", inside="" if block.figure_id else block.inside)])
    words = new_words(row, block.figure_id) if block.figure_id else ""
    return "\n\n".join(filter(None, (bare, f"[Figure: {escape(words)}]" if words else "")))


def _shown(row: DatasetRow, figure: str) -> str:
    words = new_words(row, figure)
    return f"[Figure: {escape(words)}]" if words else ""


def _note(row: DatasetRow, figure_id: str, name: str) -> FigureNote | None:
    figure = next((one for one in row.record.figures if one.id == figure_id), None)
    if figure is None:
        return None
    described = row.figures.get(figure_id)
    return FigureNote(clean(figure_id), clean(described.description) if described else "", figure_file(name, figure))


def _append(parts: list[Part], page: list[Part]) -> None:
    """Add a page's parts; its first paragraph is joined to the last one of the page before where that goes on."""
    last = _open_end(parts)
    first = next((at for at, part in enumerate(page) if part.kind not in _BETWEEN), None)
    if last is not None and first is not None and _goes_on(parts[last], page[first]):
        parts[last] = _joined(parts[last], page.pop(first))
    parts.extend(page)


def _open_end(parts: list[Part]) -> int | None:
    for at in range(len(parts) - 1, -1, -1):
        if parts[at].kind not in _BETWEEN:
            return at if parts[at].kind in PROSE else None
        if parts[at].last_page != parts[-1].last_page:
            return None
    return None


def _goes_on(before: Part, after: Part) -> bool:
    """Whether the layout says so: no end of a sentence there, no capital here, on the next page."""
    if after.kind is not BlockKind.TEXT or after.places[0].page != before.last_page + 1:
        return False
    end, first = before.text.rstrip()[-_LOOK_BACK:], after.text[:1]
    last = end[-1:]
    if not last or _ENDED.search(end):
        return False
    return first.islower() or (is_cjk(last) and is_cjk(first) and first.isalnum())


def _joined(before: Part, after: Part) -> Part:
    text = join(before.text.rstrip(), after.text)
    shift = len(text) - len(after.text)
    moved = tuple(place._replace(start=place.start + shift) for place in after.places)
    return replace(before, text=text, places=before.places + moved, figures=before.figures + after.figures)
