"""Keep running heads and feet in the Markdown where they are the only place of a word, number, or date."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from llm_ocr.documents.furniture import without_page_numbers
from llm_ocr.results.markdown import blocks_to_markdown, unescape
from llm_ocr.types import Block, BlockKind, PageRecord

_WORD = re.compile(r"[^\W_]+(?:[-.,/:'’][^\W_]+)*")
#: Number at an end of a running head without other digits: `HARBOUR GUIDE 17`.
_AT_END = re.compile(r"(?P<number>\d{1,4})\s+(?P<text>\D+)|(?P<before>\D+)\s+(?P<last>\d{1,4})")
#: Kinds of kept heads and feet. Paragraphs continue on the next page across footnotes.
_KEPT_AS = {BlockKind.HEADER: BlockKind.TEXT, BlockKind.FOOTER: BlockKind.FOOTNOTE}


def with_only_places(records: Iterable[PageRecord]) -> Iterator[PageRecord]:
    """Yield the pages with the running heads and feet that have words which no earlier text of their document has.

    These become text and footnotes, so that each is in a document's Markdown once. Page numbers that count are no
    words. Pages whose Markdown is not that of their blocks are unchanged: a user's own stage has edited them, or the
    settings keep furniture.

    Args:
        records: Pages in the order of their documents.
    """
    seen = _Seen("")
    for record in records:
        if record.document_id != seen.document_id:
            seen = _Seen(record.document_id)
        seen.words |= _words(unescape(record.markdown))
        blocks = tuple(seen.kept(block, record.page_number or 0) for block in record.blocks)
        if blocks != record.blocks and record.markdown == blocks_to_markdown(record.blocks):
            record = replace(record, blocks=blocks, markdown=blocks_to_markdown(blocks))
        yield record


@dataclass(slots=True)
class _Seen:
    """Words of a document's pages so far; the last page and number of heads that end in a number, by their text."""

    document_id: str
    words: set[str] = field(default_factory=set)
    numbered: dict[str, tuple[int, int]] = field(default_factory=dict)

    def kept(self, block: Block, page: int) -> Block:
        """Return the block as text or footnote if it has new words, which are added; otherwise the block itself."""
        if block.kind not in _KEPT_AS:
            return block
        text = unescape(block.text)
        new = _words(without_page_numbers(text)[0]) - self.words
        numbered = _AT_END.fullmatch(text.strip())
        if numbered:
            head, number = numbered["text"] or numbered["before"], int(numbered["number"] or numbered["last"])
            last = self.numbered.get(head)
            self.numbered[head] = page, number
            if last is not None and number - last[1] == page - last[0]:
                new.discard(str(number))
        self.words |= new
        return replace(block, kind=_KEPT_AS[block.kind]) if new else block


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))
