"""Fields of a document: its passages, the places of quotes, and the row of the document. Pure.

    quote ──find──▶ place on a page: its text, its box, and whether it is verified ──states──▶ value

A page contains a quote if it has the same letters and digits in a row, in one case, as in the page's ledger: white
space, hyphens, and marks differ between correct readings. Text that the ledger calls unsupported is not verified. A
quote across a page break is on the page on which it begins. The value is compared with the text of the page, not with
the model's copy of it, whose separators and signs may differ.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import accumulate, chain, groupby, pairwise
from typing import Any, NamedTuple

from llm_ocr.models.parsers.coordinates import WHOLE_PAGE
from llm_ocr.results.field_schema import Found, Node, Tree
from llm_ocr.results.field_values import letters_of, states, with_whole_numbers
from llm_ocr.results.joining import is_cjk
from llm_ocr.results.quality.text_layer import BlockText, texts_of
from llm_ocr.types import FURNITURE, Block, BlockKind, Box, FieldsRecord, PageRecord, Reason, Status

#: Characters per token in ordinary script, at least.
CHARACTERS = 2


class _Word(NamedTuple):
    """Word in one case, with its block and its first and last character there."""

    letters: str
    block: int
    start: int
    end: int


class Place(NamedTuple):
    """Place of a quote: whether the text there is verified, the box of its blocks, and the text with whole numbers."""

    verified: bool
    box: Box | None
    text: str


class _Letters:
    """All letters of words, for the search of words in a row."""

    def __init__(self, words: Sequence[_Word]) -> None:
        self._text = "".join(word.letters for word in words)
        self._starts = [0, *accumulate(len(word.letters) for word in words)]
        self._edges = frozenset(self._starts)

    def find(self, wanted: str) -> Iterator[tuple[int, int]]:
        """Yield the ranges of words that have the wanted letters."""
        at = self._text.find(wanted) if wanted else -1
        while at >= 0:
            end = at + len(wanted)
            # `2012` does not contain the quote `12`. Text without spaces between words has no edges.
            if (at in self._edges or is_cjk(wanted[0])) and (end in self._edges or is_cjk(wanted[-1])):
                yield bisect_right(self._starts, at) - 1, bisect_left(self._starts, end)
            at = self._text.find(wanted, at + 1)


@dataclass(frozen=True)
class PageText:
    """Page with its text, as the model receives it, and its words for the search of quotes."""

    record: PageRecord
    markdown: str

    @property
    def number(self) -> int:
        """Number of the page, from 1."""
        return self.record.page_number or 1

    @cached_property
    def _blocks(self) -> list[BlockText]:
        """Blocks with their texts. A page of an imported dataset is one block without a place."""
        found = texts_of(self.record.blocks)
        if any(entry.chunks for entry in found):
            return found
        return texts_of([Block(BlockKind.TEXT, WHOLE_PAGE, self.record.markdown)])

    @cached_property
    def _words(self) -> list[_Word]:
        return [
            _Word(word, number, start, end)
            for number, entry in enumerate(self._blocks)
            for chunk in entry.chunks
            for word, (start, end) in zip(chunk.words, chunk.places, strict=True)
        ]

    @cached_property
    def _body(self) -> list[_Word]:
        """Words without running heads and feet, which separate the text of two pages."""
        return [word for word in self._words if self._blocks[word.block].block.kind not in FURNITURE]

    @cached_property
    def _letters(self) -> _Letters:
        return _Letters(self._words)

    def find(self, quote: str) -> Iterator[Place]:
        """Yield the places of a quote."""
        for first, last in self._letters.find(letters_of(quote)):
            yield self._place(self._words[first:last])

    def find_across(self, following: "PageText", quote: str) -> Iterator[Place]:
        """Yield the places of a quote that begins on this page and ends on the next one; the boxes are of this page."""
        wanted = letters_of(quote)
        own, other = self._body[-len(wanted) :], following._body[: len(wanted)]
        for first, last in _Letters([*own, *other]).find(wanted):
            if first < len(own) < last:
                begin, end = self._place(own[first:]), following._place(other[: last - len(own)])
                yield Place(begin.verified and end.verified, begin.box, f"{begin.text} {end.text}")

    def _place(self, words: Sequence[_Word]) -> Place:
        foreign = self.record.ledger.unsupported if self.record.ledger else ()
        verified = not any(
            span.block == word.block and span.start < word.end and span.end > word.start
            for span in foreign
            for word in words
        )
        box = reduce(Box.union, (self._blocks[word.block].block.box for word in words))
        parts = []
        for block, group in groupby(words, key=lambda word: word.block):
            some = list(group)
            first, last = some[0], some[-1]
            parts.append(with_whole_numbers(self._blocks[block].text, first.start, last.end))
        return Place(verified, None if box == WHOLE_PAGE else box, " ".join(parts))


@dataclass(frozen=True, slots=True)
class Passage:
    """Consecutive pages of a document, or a part of one long page, that one request contains."""

    document_id: str
    number: int
    text: str
    pages: tuple[PageText, ...]

    @property
    def id(self) -> str:
        """Name of the passage in messages."""
        return f"{self.document_id}-fields-{self.number}"

    def located(self, tree: Tree) -> Tree:
        """Return an answer about the passage with the page and the box of each quote."""
        if isinstance(tree, dict):
            return {name: self.located(one) for name, one in tree.items()}
        if isinstance(tree, list):
            return [self.located(one) for one in tree]
        if not isinstance(tree, Found):
            return tree
        on_pages = ((page, place) for page in self.pages for place in page.find(tree.quote))
        across = ((one, place) for one, other in pairwise(self.pages) for place in one.find_across(other, tree.quote))
        for page, place in chain(on_pages, across):
            quoted = place.verified and (tree.named or states(place.text, tree.value))
            if quoted or tree.page is None:  # the first place counts, unless a later one is verified
                tree = replace(tree, page=page.number, box=place.box, quoted=quoted)
            if quoted:
                break
        return tree


def passages(document_id: str, pages: Sequence[PageText], tokens: int) -> list[Passage]:
    """Cut a document into passages of whole pages. A page that exceeds a passage is cut between lines, or words.

    Args:
        document_id: Id of the document.
        pages: Its pages with text, in order.
        tokens: Most tokens of a passage's text.
    """
    room = tokens * CHARACTERS
    found: list[Passage] = []
    text, members = "", list[PageText]()

    def end() -> None:
        nonlocal text, members
        if members:
            found.append(Passage(document_id, len(found) + 1, text, tuple(members)))
        text, members = "", []

    for page in pages:
        head, rest = f"[page {page.number}]\n", page.markdown.strip()
        if text and len(text) + len(head) + len(rest) > room:
            end()
        while rest:
            part, rest = _cut(rest, max(1, room - len(head)))
            text, members = f"{text}{head}{part}\n\n", [*members, page]
            if rest:
                end()
    end()
    return found


def _cut(text: str, most: int) -> tuple[str, str]:
    """Return the first part of a text, of at most `most` characters, and the rest."""
    if len(text) <= most:
        return text, ""
    place = max(text.rfind("\n", most // 2, most), -1)
    place = place if place > 0 else text.rfind(" ", most // 2, most)
    place = place if place > 0 else most
    return text[:place], text[place:].strip()


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer about a passage, or the failure of its requests; `tree` is None without a usable answer."""

    passage: Passage
    tree: Tree | None
    reason: Reason | None = None
    detail: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0


def document_record(
    schema: Node, document_id: str, records: Sequence[PageRecord], answers: Sequence[Answer], engine: str
) -> FieldsRecord:
    """Return the row of a document.

    `failed`: no passage has an answer, or no page has been read. `degraded`: the first that applies of a passage
    without a sound answer, failed pages, a required field without a value, a value that the schema does not allow, and
    a value whose quote the verified text does not contain. Otherwise `ok`.

    Args:
        schema: The schema.
        document_id: Id of the document.
        records: Its pages.
        answers: The answers about its passages, in order.
        engine: Name of the model.
    """
    trees = [answer.tree for answer in answers if answer.tree is not None]
    tree = schema.merged(trees)
    values = schema.values(tree)
    found = list(schema.fields(tree))
    missing, invalid = schema.faults(values)
    unquoted = [path for path, one in found if not one.quoted]
    unread = [record for record in records if record.status is Status.FAILED]
    unsound = [answer for answer in answers if answer.reason is not None]
    causes = [
        *((answer.reason, f"{_pages(answer.passage)}: {answer.detail}") for answer in unsound),
        *((record.reason, f"page {record.page_number or 'all'} was not read: {record.detail}") for record in unread),
        *([(Reason.FIELD_MISSING, f"no value for {_listed(missing)}")] if missing else []),
        *([(Reason.FIELD_INVALID, _listed(invalid))] if invalid else []),
        *([(Reason.NOT_QUOTED, f"no quote in the text for {_listed(unquoted)}")] if unquoted else []),
    ]
    nothing = not trees if answers else len(unread) == len(records)
    status = Status.FAILED if nothing else Status.DEGRADED if causes else Status.OK
    reason, detail = causes[0] if causes else (None, "")
    return FieldsRecord(
        document_id=document_id,
        source=records[0].source if records else "",
        status=status,
        reason=reason,
        detail=detail,
        values={} if nothing else values,
        fields=tuple({"path": path, **_row(one)} for path, one in found),
        pages=len(records),
        passages=len(answers),
        engine=engine,
        tokens_in=sum(answer.tokens_in for answer in answers),
        tokens_out=sum(answer.tokens_out for answer in answers),
        seconds=sum(answer.seconds for answer in answers),
    )


def _row(found: Found) -> dict[str, Any]:
    box = found.box
    return {
        "value": found.value,
        "page": found.page,
        "box": None if box is None else {"x0": box.x0, "y0": box.y0, "x1": box.x1, "y1": box.y1},
        "quote": found.quote,
        "quoted": found.quoted,
        **({"others": [_row(other) for other in found.others]} if found.others else {}),
    }


def _pages(passage: Passage) -> str:
    first, last = passage.pages[0].number, passage.pages[-1].number
    return f"page {first}" if first == last else f"pages {first} to {last}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f", and {len(names) - 3} more" if len(names) > 3 else "")
