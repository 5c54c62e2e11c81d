"""A running head or foot is dropped only if the document has its words at another place."""

from dataclasses import replace

import made

from llm_ocr.results.documents import with_only_places
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.types import Block, BlockKind, Box, PageRecord

PLACE = Box(0.1, 0.1, 0.9, 0.2)
TEXT, HEADER, FOOTER = BlockKind.TEXT, BlockKind.HEADER, BlockKind.FOOTER


def pages(*drawn: tuple[tuple[BlockKind, str], ...], document: str = "0123456789abcdef") -> list[PageRecord]:
    """Pages of a document, each given by the kinds and texts of its blocks."""
    found = []
    for number, blocks in enumerate(drawn, start=1):
        parts = tuple(Block(kind, PLACE, text) for kind, text in blocks)
        found.append(made.record(number, document=document, blocks=parts, markdown=blocks_to_markdown(parts)))
    return found


def markdown(records: list[PageRecord]) -> list[str]:
    return [record.markdown for record in with_only_places(records)]


def test_each_running_head_is_kept_once():
    same = ((HEADER, "Statement for account 4711-22 of Arlo Finch"), (TEXT, "Payments in May."))
    first, second = markdown(pages(same, same))
    assert first == "Statement for account 4711-22 of Arlo Finch\n\nPayments in May."
    assert second == "Payments in May."


def test_numbers_that_differ_between_heads_are_all_kept():
    drawn = [((HEADER, f"Invoice 2026-00{n}"), (TEXT, "Glass bottles.")) for n in (17, 26)]
    assert markdown(pages(*drawn)) == ["Invoice 2026-0017\n\nGlass bottles.", "Invoice 2026-0026\n\nGlass bottles."]


def test_heads_whose_words_are_in_the_text_are_dropped():
    drawn = ((TEXT, "The *Harbour Guide* by A. Finch"),), ((HEADER, "FINCH: HARBOUR GUIDE"), (TEXT, "More."))
    assert markdown(pages(*drawn))[1] == "More."


def test_numbers_of_heads_that_are_elsewhere_by_chance_are_kept():
    drawn = [
        ((HEADER, f"Certificate {n} of {n - 14} May"), (TEXT, "3. Ropes 4. Oars 17. Salt 18. May")) for n in (17, 18)
    ]
    assert [text.split("\n")[0] for text in markdown(pages(*drawn))] == [
        "Certificate 17 of 3 May",
        "Certificate 18 of 4 May",
    ]


def test_number_at_the_end_of_a_layer_head_is_content():
    drawn = [((HEADER, f"Certificate {n}"), (TEXT, "Ropes.")) for n in (17, 18)]
    of_layer = [replace(record, text_source="text-layer") for record in pages(*drawn)]
    assert markdown(of_layer) == ["Certificate 17\n\nRopes.", "Certificate 18\n\nRopes."]


def test_page_numbers_that_count_are_dropped():
    drawn = [((TEXT, "Ropes."), (FOOTER, f"Page {n} of 9"), (HEADER, f"Guide {n}")) for n in (3, 4)]
    assert markdown(pages(*drawn)) == ["Ropes.\n\nPage 3 of 9\n\nGuide 3", "Ropes."]


def test_documents_do_not_share_their_heads():
    same = ((HEADER, "Confidential"), (TEXT, "Ropes."))
    other = pages(same, document="fedcba9876543210")
    assert markdown(pages(same) + other) == ["Confidential\n\nRopes."] * 2


def test_dropped_heads_stay_in_the_blocks_of_the_row():
    same = ((HEADER, "Confidential"), (TEXT, "Ropes."))
    first, second = with_only_places(pages(same, same))
    assert [block.kind for block in first.blocks] == [TEXT, TEXT]
    assert [block.kind for block in second.blocks] == [HEADER, TEXT]


def test_pages_that_a_stage_has_edited_are_unchanged():
    (record,) = pages(((HEADER, "Secret 77"), (TEXT, "Ropes.")))
    edited = replace(record, markdown="Edited.")
    assert list(with_only_places([edited])) == [edited]
