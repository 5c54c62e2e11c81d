"""Keep running heads and feet in the Markdown where they are the only place of a word, number, or date."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from llm_ocr.documents.text_layer import without_page_numbers
from llm_ocr.results.markdown import blocks_to_markdown, unescape
from llm_ocr.types import Block, BlockKind, PageRecord

_WORD = re.compile(r"[^\W_]+(?:[-.,/:'’][^\W_]+)*")
#: Number at an end of a running head without other digits: `HARBOUR GUIDE 17`.
_AT_END = re.compile(r"(?P<number>\d{1,4})\s+(?P<text>\D+)|(?P<before>\D+)\s+(?P<last>\d{1,4})")
#: Kinds of kept heads and feet. Paragraphs continue on the next page across footnotes.
_KEPT_AS = {BlockKind.HEADER: BlockKind.TEXT, BlockKind.FOOTER: BlockKind.FOOTNOTE}


def with_only_places(records: Iterable[PageRecord]) -> Iterator[PageRecord]:
    """Yield the pages with the running heads and feet that no earlier page of their document has.

    These become text and footnotes, so that each is in a document's Markdown once. Page numbers that count make no
    difference. Heads without numbers whose words are all in the text, such as a title, are left out. Pages whose
    Markdown is not that of their blocks are unchanged: a user's own stage has edited them, or the settings keep
    furniture.

    Args:
        records: Pages in the order of their documents.
    """
    seen = _Seen("")
    for record in records:
        if record.document_id != seen.document_id:
            seen = _Seen(record.document_id)
        seen.words |= _words(unescape(record.markdown))
        # A text layer shows which numbers are apart from a head; other readers join both.
        joined = record.text_source != "text-layer"
        blocks = tuple(seen.kept(block, record.page_number or 0, joined) for block in record.blocks)
        if blocks != record.blocks and record.markdown == blocks_to_markdown(record.blocks):
            record = replace(record, blocks=blocks, markdown=blocks_to_markdown(blocks))
        yield record


@dataclass(slots=True)
class _Seen:
    """Words and heads of a document's pages so far; the last page and number of heads with a number at an end."""

    document_id: str
    words: set[str] = field(default_factory=set)
    heads: set[str] = field(default_factory=set)
    numbered: dict[str, tuple[int, int]] = field(default_factory=dict)

    def kept(self, block: Block, page: int, joined: bool) -> Block:
        """Return the block as text or footnote if it is new, and remember it; otherwise the block itself.

        Args:
            block: A block of the page.
            page: Number of the page.
            joined: Whether a number at an end of a head may be the page's.
        """
        if block.kind not in _KEPT_AS:
            return block
        head = " ".join(without_page_numbers(unescape(block.text))[0].casefold().split())
        words = _words(head)
        numbers = any(map(str.isdigit, head))
        new = bool(words) and head not in self.heads and (numbers or not words <= self.words)
        if joined and (found := _AT_END.fullmatch(head)):
            text, number = found["text"] or found["before"], int(found["number"] or found["last"])
            last = self.numbered.get(text)
            self.numbered[text] = page, number
            new = new and not (last is not None and number - last[1] == page - last[0])
        self.heads.add(head)
        self.words |= words
        return replace(block, kind=_KEPT_AS[block.kind]) if new else block


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))
