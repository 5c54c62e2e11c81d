"""The score of an answer: what is lost, invented, repeated or out of order shows, and good readings pass."""

import asyncio
import random
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from llm_ocr.documents.ink import ink_of, pixels_of, place_of
from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.results.quality import what_is_wrong
from llm_ocr.results.quality.order import in_order, matches_of, visits_of
from llm_ocr.results.quality.scoring import FITTED, Limits, rated
from llm_ocr.results.quality.scoring import score as scored
from llm_ocr.results.quality.text_layer import texts_of, with_reread
from llm_ocr.types import (
    Attempt,
    Block,
    BlockKind,
    Box,
    Evidence,
    InkMap,
    Ledger,
    OcrLine,
    OcrText,
    Page,
    Quality,
    Reason,
    Span,
    Status,
)
from llm_ocr_cpu.page import laid_out

FIXTURES = Path(__file__).parents[3] / "packages" / "cpu" / "tests" / "fixtures"
WHOLE_PAGE = Box(0, 0, 1, 1)


def score(page: Page, attempt: Attempt) -> Quality:
    return scored(page, attempt)[0]


def judged(page: Page, attempt: Attempt) -> tuple[Attempt, Quality, Ledger | None]:
    """What becomes of a model's transcription without settings of the user."""
    return rated(page, attempt, FITTED, transcribed=True)


def saying(read: Attempt, *texts: str) -> Attempt:
    """An answer with these texts, without places."""
    return replace(read, blocks=tuple(Block(BlockKind.TEXT, WHOLE_PAGE, text) for text in texts))


def lined(read: Attempt, lines: Sequence[tuple[str, Box]]) -> Attempt:
    """An answer with a text at the place of each line."""
    return replace(read, blocks=tuple(Block(BlockKind.TEXT, box, text) for text, box in lines))


def inked(page: Page, black: np.ndarray) -> Page:
    """The page with nothing but this ink."""
    ink = InkMap(black.shape[1], black.shape[0], zlib.compress(np.packbits(black, axis=1).tobytes()))
    return replace(page, evidence=Evidence(ink))


def layered(page: Page, lines: Sequence[tuple[str, Box]], pictured: float = 0.0) -> Page:
    """The page with a text layer, whose image lacks a part of it, so that only the layer is compared."""
    assert page.evidence is not None
    return replace(page, evidence=Evidence(page.evidence.ink, tuple(lines), pictured, undrawn=0.01))


@pytest.fixture(scope="module")
def paper(examples) -> Page:
    """A page of two columns with a figure, with all that is known of it before it is read."""

    async def render() -> Page:
        async with Renderer(RenderOptions(image_size=1000, workers=1)) as renderer:
            return await renderer.page(str(examples / "paper.pdf"), "", 1, page_id="d-p00001", document_id="d")

    return asyncio.run(render())


@pytest.fixture(scope="module")
def read(paper) -> Attempt:
    """What our own layout makes of it."""
    assert paper.content is not None
    return Attempt("some-model", "model", Status.OK, laid_out(paper.content))


def texts(blocks) -> list[int]:
    return [number for number, one in enumerate(blocks) if one.kind is BlockKind.TEXT and len(one.text) > 60]


def without(blocks, gone) -> tuple[Block, ...]:
    return tuple(block for number, block in enumerate(blocks) if number not in set(gone))


def no_layer(page: Page) -> Page:
    """The page as if it were a scan."""
    assert page.evidence is not None
    return replace(page, evidence=replace(page.evidence, lines=()))


def no_places(attempt: Attempt) -> Attempt:
    return replace(attempt, blocks=tuple(replace(block, box=WHOLE_PAGE, continued=()) for block in attempt.blocks))


def test_a_good_answer_has_nothing_wrong(paper, read):
    for page, attempt in (
        (paper, read),
        (paper, no_places(read)),
        (no_layer(paper), read),
        (no_layer(paper), no_places(read)),
    ):
        quality = score(page, attempt)
        assert quality.score > 0.9
        assert what_is_wrong(quality.parts) == ""
        assert judged(page, attempt)[0].status is Status.OK
    assert {"read", "supported", "order", "readable", "unrepeated"} <= set(score(paper, read).parts)


def test_case_hyphens_marks_and_line_ends_are_no_fault(paper, read):
    shouted = tuple(replace(one, text=f"**{one.text.upper()}**".replace(" ", "\n")) for one in read.blocks)
    assert score(paper, replace(read, blocks=shouted)).score > 0.9


@pytest.mark.parametrize(
    "said", ["<http://www.ilo.org/public/documents/wcms_142363.pdf>", "below < 150 kg and above > 250 kg"]
)
def test_text_in_angle_brackets_is_text(paper, read, said):
    line = f"The report is at {said} and was retrieved in August by the authors of the study."
    page = layered(paper, ((line, Box(0.1, 0.4, 0.9, 0.42)),))
    answer = replace(read, blocks=(Block(BlockKind.TEXT, Box(0.1, 0.4, 0.9, 0.42), line),))
    assert score(page, answer).parts["read"] == 1.0
    tagged = replace(answer, blocks=(Block(BlockKind.TEXT, Box(0.1, 0.4, 0.9, 0.42), f'<b class="x">{line}</b><br/>'),))
    assert score(page, tagged).parts["supported"] == 1.0


@pytest.mark.parametrize(
    ("said", "printed"),
    [
        (r"\<username>", "<username>"),
        ("<username>", "<username>"),
        ("`<title>`", "<title>"),
        (r"\\\host\\\<strong>", r"\\host\<strong>"),
        ("&lt;span>", "<span>"),
    ],
)
def test_placeholder_in_angle_brackets_is_no_lost_text(paper, read, said, printed):
    words = "the manual tells to run the command {} on the main server, which asks for a password"
    page = layered(paper, [(words.format(printed), Box(0.1, 0.4, 0.9, 0.42))])
    block = Block(BlockKind.TEXT, Box(0.1, 0.4, 0.9, 0.42), words.format(said))
    quality, ledger = scored(page, replace(read, blocks=(block,)))
    assert (quality.parts["read"], ledger.unread_share, ledger.unsupported_share) == (1.0, 0, 0)


@pytest.mark.parametrize(
    ("kind", "printed", "said"),
    [
        (BlockKind.TEXT, r"\newsavebox takes \boxA, and \savebox fills it with \fbox or \usebox", None),
        (BlockKind.CODE, r"\newcommand{\boxA}{\usebox{\boxa}} % \newsavebox{\boxb} \savebox{\boxb}", None),
        (BlockKind.CODE, '<td class="first">one cell of the table</td> <td class="second">two</td>', None),
        (
            BlockKind.TEXT,
            "the ratio of α to β is at least as large as the sum of all",
            r"the ratio of $\alpha$ to $\beta$",
        ),
    ],
)
def test_commands_and_tags_on_the_page_are_text_unless_formulas(paper, read, kind, printed, said):
    place = Box(0.1, 0.4, 0.9, 0.42)
    printed *= 2  # long enough to be judged
    answer = printed if said is None else printed.replace("the ratio of α to β", said)
    parts = score(layered(paper, [(printed, place)]), replace(read, blocks=(Block(kind, place, answer),))).parts
    assert (parts["read"], parts["supported"]) == (1.0, 1.0)


def test_lost_text_is_missed_and_said_in_words(paper, read):
    blocks = without(read.blocks, texts(read.blocks)[1::2])
    quality = score(paper, replace(read, blocks=blocks))
    assert quality.parts["read"] < 0.8
    assert quality.score < 0.4
    assert "text on the page that was not read: " in what_is_wrong(quality.parts)


def test_lost_text_is_missed_without_a_layer_by_the_image(paper, read):
    blocks = without(read.blocks, texts(read.blocks)[1::2])
    scan = score(no_layer(paper), replace(read, blocks=blocks))
    assert scan.parts["read"] < 0.9
    assert "text on the page that was not read" in what_is_wrong(scan.parts)


def test_lost_text_without_layer_or_boxes_is_found_by_the_image(paper, read):
    told = tuple(block for block in read.blocks if block.kind is not BlockKind.FIGURE)
    parts = score(no_layer(paper), no_places(replace(read, blocks=without(told, texts(told))))).parts
    assert parts["read"] < 0.6
    assert "text on the page that was not read" in what_is_wrong(parts)


@pytest.mark.parametrize(("word", "begins_at"), [("column", 0.1), ("טור", 0.55), ("عمود", 0.55)])
def test_columns_are_read_in_the_direction_of_their_script(word, begins_at):
    places = (begins_at, 0.65 - begins_at)
    columns = [[(word * 5, Box(x, y / 20, x + 0.35, y / 20 + 0.04)) for y in range(2, 18)] for x in places]
    assert in_order([*columns[0], *columns[1]]) == 1
    assert in_order([*columns[1], *columns[0]]) == 0


def test_vertical_writing_is_read_from_the_right():
    lines = [("\u7e26\u66f8\u304d" * 8, Box(0.9 - 0.1 * column, 0.1, 0.95 - 0.1 * column, 0.8)) for column in range(8)]
    assert in_order(lines) == 1
    assert in_order([lines[at] for at in (3, 0, 6, 1, 7, 2, 5, 4)]) < 0.7
    assert in_order([("flowing text", box) for _, box in lines]) == 0


def test_invented_text_is_noticed(paper, read):
    place = texts(read.blocks)[0]
    story = (
        "Once upon a time a miller lived beside the mountain with his daughter, who could spin straw into gold. " * 8
    )
    blocks = (*read.blocks[:place], replace(read.blocks[place], text=story), *read.blocks[place + 1 :])
    parts = score(paper, replace(read, blocks=blocks)).parts
    assert parts["supported"] < 0.9
    assert "that nothing on the page supports" in what_is_wrong(parts)


def test_more_text_than_ink_is_a_fault(paper, read):
    scan = no_layer(paper)
    assert scan.evidence is not None and scan.evidence.ink is not None
    width, height = scan.evidence.ink.width, scan.evidence.ink.height
    few = np.zeros((height, width), np.uint8)
    few[height // 4 : height // 4 + 8, width // 8 : -width // 8 : 6] = 1  # one line of letters
    dark = replace(scan.evidence.ink, packed=zlib.compress(np.packbits(few, axis=1).tobytes()))
    page = replace(scan, evidence=replace(scan.evidence, ink=dark))
    answer = replace(read, blocks=tuple(block for block in read.blocks if block.kind is not BlockKind.FIGURE))
    assert "nothing on the page supports" in what_is_wrong(score(page, answer).parts)


def test_text_said_twice_must_stand_there_twice(paper, read):
    assert score(paper, replace(read, blocks=(*read.blocks, *read.blocks))).parts["supported"] < 0.6


def test_a_loop_in_the_middle_is_seen(paper, read):
    place = texts(read.blocks)[0]
    loop = f"{read.blocks[place].text} {'The mean is not the median. ' * 20}"
    blocks = (*read.blocks[:place], replace(read.blocks[place], text=loop), *read.blocks[place + 1 :])
    for page in (paper, no_layer(paper)):
        quality = score(page, replace(read, blocks=blocks))
        assert quality.parts["unrepeated"] < 0.95
        assert quality.score < 0.8


def test_text_that_the_page_itself_repeats_is_no_loop(paper, read):
    line = "The river rose again in the second week of March and covered the quay."
    lines = tuple((line, Box(0.1, 0.1 + 0.03 * at, 0.9, 0.12 + 0.03 * at)) for at in range(20))
    page = layered(paper, lines)
    blocks = (Block(BlockKind.TEXT, Box(0.1, 0.1, 0.9, 0.7), " ".join([line] * 20)),)
    assert score(page, replace(read, blocks=blocks)).score > 0.9
    looped = (replace(blocks[0], text=f"{blocks[0].text} {'The mean is not the median. ' * 60}"),)
    assert score(page, replace(read, blocks=looped)).score < 0.8
    by_ocr = replace(read, blocks=blocks, source="ocr")  # OCR reads what is printed; only models loop
    assert score(replace(page, evidence=None), by_ocr).score > 0.9


@pytest.mark.parametrize("name", ["tex/bitmaps", "right_to_left/browser"])
def test_decoded_glyphs_and_right_to_left_words_match_the_layer(name):
    async def render() -> Page:
        async with Renderer(RenderOptions(image_size=1000, workers=1)) as renderer:
            return await renderer.page(str(FIXTURES / f"{name}.pdf"), "", 1, page_id="d-p00001", document_id="d")

    page = asyncio.run(render())
    assert page.content is not None
    quality = score(page, Attempt("embedded", "text-layer", Status.OK, laid_out(page.content)))
    assert quality.parts["read"] == quality.parts["supported"] == 1.0
    assert quality.score > 0.9


def test_borders_and_bars_across_the_page_are_no_missing_text(paper, read):
    black = np.zeros((800, 600), np.uint8)
    black[100:112, 100:400:3] = 1
    black[760:785, 12:588] = 1
    line = Block(BlockKind.TEXT, Box(0.16, 0.12, 0.68, 0.145), "Results of two winters at the upper river")
    parts = score(inked(paper, black), replace(read, blocks=(line,))).parts
    assert parts["read"] == 1.0


def test_the_shadow_beside_a_scanned_page_is_no_missing_text(paper, read):
    black = np.zeros((800, 600), np.uint8)
    black[100:112, 100:400:3] = 1
    black[10:790:3, 12:26] = 1  # noise of the gutter's shadow
    line = Block(BlockKind.TEXT, Box(0.16, 0.12, 0.68, 0.145), "Results of two winters at the upper river")
    _, ledger = scored(inked(paper, black), replace(read, source="ocr", blocks=(line,)))
    assert ledger is not None and ledger.unread_share == 0


def test_ink_at_both_edges_of_a_page_is_no_bar(paper, read):
    black = np.zeros((800, 600), np.uint8)
    black[100:110, :60:3] = black[100:110, 540::3] = 1  # as unbroken ink across rows, it would be a bar
    other = Block(BlockKind.TEXT, Box(0.2, 0.5, 0.8, 0.6), "")
    _, ledger = scored(inked(paper, black), replace(read, source="ocr", blocks=(other,)))
    assert ledger is not None
    left, right = sorted(ledger.unread, key=lambda box: box.x0)
    assert left.x1 <= 0.11
    assert right.x0 >= 0.89
    assert ledger.unread_share == 1


def test_swapped_columns_are_out_of_order(paper, read):
    left = [one for one in read.blocks if one.box.x1 < 0.55]
    right = [one for one in read.blocks if one.box.x0 > 0.45]
    rest = [one for one in read.blocks if one not in left and one not in right]
    quality = score(paper, replace(read, blocks=(*rest, *right, *left)))
    assert quality.parts["order"] < 0.6
    assert quality.score < 0.5
    assert "text out of column order" in what_is_wrong(quality.parts)


def columns_of_prose():
    """Two columns of 20 lines of running text, as lines of a layer: their sentences go on in the next line."""
    words = [f"word{number:03d}" for number in range(240)]
    lines = [" ".join(words[at : at + 6]) for at in range(0, 240, 6)]
    boxes = [Box(x, 0.1 + y / 30, x + 0.35, 0.12 + y / 30) for x in (0.1, 0.55) for y in range(20)]
    return tuple(zip(lines, boxes, strict=True))


def test_reading_across_columns_is_out_of_order_at_any_height(paper, read):
    lines = columns_of_prose()
    page = layered(paper, lines)

    def answered(order):
        return score(page, replace(read, blocks=tuple(Block(BlockKind.TEXT, WHOLE_PAGE, text) for text, _ in order)))

    assert answered(lines).parts["order"] == 1.0
    # The columns begin at different heights, so that no line is beside the line before it.
    left, right = lines[:12], lines[28:]
    assert answered([one for pair in zip(left, right, strict=True) for one in pair]).score < 0.3


def test_paragraphs_that_the_page_repeats_are_in_order(paper, read):
    letters = str.maketrans("0123456789", "aeiourstnl")
    words = [f"{number * 7919 % 99991:05d}".translate(letters) for number in range(70)]
    lines = []
    for step in (3, 3, 6):
        lines += [" ".join(words[at : at + step]) for at in range(0, len(words), step)]
    layer = tuple((text, Box(0.1, 0.1 + row / 90, 0.9, 0.11 + row / 90)) for row, text in enumerate(lines))
    answer = tuple(Block(BlockKind.TEXT, WHOLE_PAGE, " ".join(words)) for _ in range(3))
    quality = score(layered(paper, layer), replace(read, blocks=answer))
    assert quality.parts.get("order", 1.0) > 0.9


def test_the_same_end_of_two_lines_side_by_side_is_in_order(paper, read):
    end, words = "under the supervision of the mayor.", [f"word{number:03d}" for number in range(240)]
    lines, blocks = [], {}
    for row in range(4):  # the file draws both columns of a row before the next row
        for column in range(2):
            own = words[30 * row + 15 * column :]
            last = f"{own[10]} {end}" if row in (0, 2) else " ".join(own[10:15])
            side = [" ".join(own[:5]), " ".join(own[5:10]), last]
            x, y = 0.1 + 0.45 * column, 0.1 + 0.1 * row
            drawn = [Box(x, y + down, x + 0.4, y + down + 0.02) for down in (0, 0.025, 0.05)]
            lines += zip(side, drawn, strict=True)
            blocks[column, row] = Block(BlockKind.TEXT, Box(x, y, x + 0.4, y + 0.07), " ".join(side))
    by_columns = tuple(blocks[place] for place in sorted(blocks))
    texts = texts_of(by_columns)
    visits = visits_of(matches_of(lines, texts), texts)
    assert all(lines[visit.line][1].x0 == by_columns[visit.block].box.x0 for visit in visits)
    assert score(layered(paper, tuple(lines)), replace(read, blocks=by_columns)).parts["order"] == 1.0


def test_text_of_a_picture_need_not_be_in_the_layer(paper, read):
    lines = columns_of_prose()
    column = Block(BlockKind.TEXT, Box(0.1, 0.1, 0.45, 0.8), " ".join(text for text, _ in lines[:20]))
    table = "| Balance of the year | 15,682 |\n| --- | --- |\n" + "| Expenses of the school for sports | 1,200 |\n" * 8
    blocks = (column, Block(BlockKind.TABLE, Box(0.55, 0.1, 0.9, 0.4), table))
    for pictured, least, most in ((0.2, 1.0, 1.0), (0.0, 0.0, 0.8)):
        page = layered(paper, lines[:20], pictured)
        assert least <= score(page, replace(read, blocks=blocks)).parts["supported"] <= most


@pytest.mark.parametrize("source", ["text-layer", "model"])
def test_picture_that_repeats_the_text_leaves_it_supported(paper, read, source):
    sentences = [
        "The committee met in the old town hall on the second Tuesday of March.",
        "Its members discussed the repair of the northern bridge at great length.",
        "Nobody doubted that the stone piers would need support before winter.",
    ]
    lines = [(text, Box(0.1, 0.1 + 0.03 * row, 0.8, 0.12 + 0.03 * row)) for row, text in enumerate(sentences)]
    copy = Block(BlockKind.TEXT, Box(0.1, 0.5, 0.8, 0.7), " ".join(sentences))
    own = lined(replace(read, source=source), lines)
    for blocks in ((*own.blocks, copy), (copy, *own.blocks)):
        _, ledger = scored(layered(paper, lines, pictured=0.3), replace(own, blocks=blocks))
        assert (ledger.unsupported_share, ledger.unread_share) == (0, 0)


def test_a_layer_that_lies_accuses_nobody(paper, read):
    def by_layer(page: Page, probe: float | None) -> bool:
        ledger = scored(page, replace(read, probe=probe))[1]
        assert ledger is not None
        return ledger.verified_by == "layer"

    assert by_layer(paper, 0.1) and not by_layer(paper, 0.9)
    scanned = replace(paper, evidence=replace(paper.evidence, pictured=0.9))
    assert by_layer(scanned, 0.0) and not by_layer(scanned, None)
    shifted = tuple(("".join(chr(ord(c) + 1) for c in text), box) for text, box in paper.evidence.lines)
    assert not by_layer(replace(paper, evidence=replace(paper.evidence, lines=shifted)), None)


def sideways(page: Page, degrees: int) -> Page:
    """The page as a scan that must be turned clockwise by `degrees` to be upright."""
    ink = page.evidence.ink
    black = np.unpackbits(np.frombuffer(zlib.decompress(ink.packed), np.uint8).reshape(ink.height, -1), axis=1)
    turned = np.rot90(black[:, : ink.width], degrees // 90)
    height, width = turned.shape
    packed = zlib.compress(np.packbits(turned, axis=1).tobytes())
    return replace(page, evidence=Evidence(replace(ink, width=width, height=height, packed=packed)))


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_a_turned_page_scores_like_the_upright_page(paper, read, degrees):
    upright = score(no_layer(paper), read)
    assert score(sideways(paper, degrees), replace(read, rotation=degrees)).parts == pytest.approx(
        upright.parts, abs=0.03
    )
    # The unread lines are at the same places.
    part = replace(read, blocks=tuple(one for one in read.blocks if one.box.y1 < 0.4))
    turned = scored(sideways(paper, degrees), replace(part, rotation=degrees))[1]
    expected = scored(no_layer(paper), part)[1]
    assert turned is not None and expected is not None
    found = [any(box.iou(other) > 0.5 for other in expected.unread) for box in turned.unread]
    assert sum(found) >= 0.9 * len(found) > 5


def test_one_percent_of_meaningless_text_costs_over_a_tenth(paper, read):
    for junk in ("\ufffd", "\ue001"):
        text = f"{'An ordinary line of the text of a page. ' * 10}{junk * 4}"
        assert score(replace(paper, evidence=None), saying(read, text)).score < 0.9


def test_lines_read_from_last_to_first_cost(paper, read):
    lines = [
        "The river was high in that year and every", "farmer near the bridge moved his sheep to the", "upper fields.",
        "No harvest came. In the autumn the council", "met twice and wrote to the governor for seed", "and money.",
        "The answer came in winter, when the snow had", "closed the road and nobody could read it. It", "was kept.",
        "Historians found it later in a box of papers", "that had been the property of a miller and of", "his sons.",
    ]  # fmt: skip
    boxes = [Box(0.1, 0.9 - 0.06 * number, 0.9, 0.94 - 0.06 * number) for number in range(len(lines))]
    upside_down = layered(paper, tuple(zip(lines, boxes, strict=True)))

    def answered(order):
        return saying(read, *order)

    assert score(upside_down, answered(lines[::-1])).score < 0.3
    bottom_up = layered(paper, tuple(zip(lines[::-1], boxes, strict=True)))
    assert score(bottom_up, answered(lines)).score > 0.9


def test_text_in_a_figure_need_not_be_in_the_layer(paper, read):
    inside = "Letters drawn as curves, such as the names of the axes of a chart and of its legend. " * 6
    (number,) = [number for number, one in enumerate(read.blocks) if one.kind is BlockKind.FIGURE][:1]
    blocks = list(read.blocks)
    blocks[number] = replace(blocks[number], inside=inside)
    assert score(paper, replace(read, blocks=tuple(blocks))).parts["supported"] > 0.99


SENTENCES = "The river was high in that year and every farmer near the bridge moved his sheep to the upper fields. " * 3
GOOD_TABLES = [
    "| Name | Description |\n| --- | --- |\n" + "".join(f"| key {n} | {SENTENCES} |\n" for n in range(4)),
    "| a | b |\n| --- | --- |\n| 1 | x |\n| 2 |  |\n| 3 |  |",
    # A single divided row, and phrases in lower case.
    "| Email | Receive alerts when new articles cite this. Sign up in the |\n| --- | --- |\n"
    "| service | box at the top right corner of the article. |\n| RSS | Follow the list of new articles. |",
    "| Animal | Food |\n| --- | --- |\n" + "| grey seal of the north | herring and sand eel |\n" * 8,
    '<table><tr><th rowspan="2">Key</th><th colspan="2">Both</th></tr><tr><th>one</th><th>two</th></tr>'
    "<tr><td>k</td><td>1</td><td>2</td></tr></table>",
]
BAD_TABLES = [
    f"| The Gazette | 12 |\n| --- | --- |\n| {SENTENCES} | {SENTENCES} |",
    "| The river was high in that year and | No harvest came. In the autumn the council |\n| --- | --- |\n"
    "| Farmers near the bridge moved their | Met twice and wrote to the governor |\n"
    "| sheep to the upper fields, where the | for seed and money, which never came to |\n",
    "\n".join(
        f"| {left} | {right} |"
        for left, right in zip(
            [
                "The river was high in",
                "that year. Every farmer",
                "near the bridge moved",
                "his sheep to the upper",
                "fields. No harvest came",
                "and the council met.",
            ],
            [
                "was read in the hall and",
                "kept. Historians found",
                "it later in a box of",
                "papers that had been the",
                "property of a miller and",
                "his sons. It is lost.",
            ],
            strict=True,
        )
    ),
    "<table>" + "<tr><td>a word</td>" * 1 + "<td></td>" * 19 + "</tr></table>",
    "<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr><tr><td>d</td><td>e</td><td>f</td></tr></table>",
]


@pytest.mark.parametrize("text", GOOD_TABLES)
def test_ordinary_tables_have_nothing_wrong(paper, read, text):
    table = Block(BlockKind.TABLE, Box(0.1, 0.1, 0.9, 0.9), text)
    assert score(replace(paper, evidence=None), replace(read, blocks=(table,))).parts["tabular"] == 1.0


@pytest.mark.parametrize("text", BAD_TABLES)
def test_text_columns_empty_grids_and_uneven_rows_are_no_tables(paper, read, text):
    table = Block(BlockKind.TABLE, Box(0.1, 0.1, 0.9, 0.9), text)
    quality = score(replace(paper, evidence=None), replace(read, blocks=(table,)))
    assert quality.parts["tabular"] < 0.9
    assert "tables with running text" in what_is_wrong(quality.parts)


def test_an_empty_answer_for_a_page_with_text_is_worthless(paper, read):
    for page in (paper, no_layer(paper)):
        assert score(page, replace(read, blocks=())).score == 0.0


def test_an_empty_answer_for_an_empty_page_is_right(paper, read):
    page = replace(paper, evidence=Evidence(None))
    assert score(page, replace(read, blocks=())).score == 1.0


def test_text_of_a_page_without_ink_is_never_ok(paper, read):
    page = replace(paper, evidence=Evidence(ink_of(Image.new("L", (500, 700), 250))))
    attempt, quality, ledger = rated(page, read, FITTED)
    assert (attempt.status, attempt.reason, quality.score) == (Status.DEGRADED, Reason.UNSUPPORTED, 0.0)
    assert ledger is not None
    assert (ledger.ink, ledger.unsupported_share) == (0, 1)
    assert {span.block for span in ledger.unsupported} == {
        n for n, block in enumerate(read.blocks) if block.text or block.inside
    }


def test_a_models_text_is_not_trusted_if_all_ink_is_pale(paper, read):
    assert paper.evidence is not None and paper.evidence.ink is not None
    pale = replace(paper, evidence=Evidence(replace(paper.evidence.ink, pale=True)))
    answer = replace(read, source="model")
    attempt, _, _ = judged(pale, answer)
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.UNSUPPORTED)
    assert "so pale that it may be the other side of the sheet" in attempt.detail
    attempt, quality, _ = judged(pale, replace(answer, blocks=()))
    assert (attempt.status, quality.score) == (Status.OK, 1.0)
    lines = tuple(OcrLine(text, box, 0.99) for text, box in paper.evidence.lines)
    verified = replace(pale, evidence=replace(pale.evidence, ocr=OcrText(lines, frozenset({"LATIN"}))))
    attempt, _, ledger = rated(verified, answer, Limits(verify="ocr"), transcribed=True)
    assert (attempt.status, ledger.verified_by) == (Status.OK, "ocr")
    attempt, _, _ = rated(verified, replace(answer, blocks=()), Limits(verify="ocr"), transcribed=True)
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.EMPTY)


def test_numbers_between_other_neighbors_are_supported(paper, read):
    labels = [
        ("Skipper Brask 19", "23 Quay Street", "4819 Malmby"),
        ("Skipper Pell 20", "24 Quay Street", "4820 Malmby"),
    ]
    lines = tuple((line, Box(0.1, 0.1 * at, 0.4, 0.1 * at + 0.02)) for at, line in enumerate(sum(labels, ()), start=1))
    page = replace(paper, evidence=replace(paper.evidence, lines=lines))
    rows = "\n".join("   ".join(row) for row in zip(*labels, strict=True))
    answer = replace(read, source="text-layer", blocks=(Block(BlockKind.TEXT, Box(0, 0, 1, 0.99), rows),))
    assert not scored(page, answer)[1].unsupported
    answer = replace(answer, blocks=(replace(answer.blocks[0], text=rows.replace("24 Quay", "25 Quay")),))
    assert scored(page, answer)[1].unsupported


def test_faint_text_that_a_true_layer_has_is_supported(paper, read):
    assert paper.evidence is not None and paper.evidence.ink is not None
    black = pixels_of(paper.evidence.ink, 0).copy()
    block = next(block for block in read.blocks if len(block.text) > 100)
    black[place_of(block.box, *black.shape)] = False
    rows, width = np.packbits(black, axis=1).tobytes(), black.shape[1]
    faint = replace(paper.evidence, ink=InkMap(width, black.shape[0], zlib.compress(rows), False))
    layer = replace(read, source="text-layer")
    assert rated(replace(paper, evidence=faint), layer, FITTED)[0].status is Status.OK
    without = replace(paper, evidence=replace(faint, lines=()))
    assert rated(without, layer, FITTED)[0].reason is Reason.UNSUPPORTED


def test_text_of_a_picture_without_measurable_ink_is_ok(paper, read):
    picture = InkMap(500, 700, zlib.compress(bytes(63 * 700)), blank=False)
    attempt, _, ledger = judged(replace(paper, evidence=Evidence(picture)), read)
    assert (attempt.status, ledger) == (Status.OK, Ledger(0.0))


@pytest.mark.parametrize(
    ("limits", "unread", "unsupported", "reason"),
    [
        (FITTED, 0.1, 0.3, Reason.UNSUPPORTED),
        (FITTED, 0.3, 0.1, Reason.UNREAD),
        (Limits(max_unsupported=0.5), 0.1, 0.3, Reason.UNREAD),
        (Limits(max_unread=0.5), 0.3, 0.1, Reason.UNSUPPORTED),
    ],
)
def test_the_larger_share_above_its_limit_is_the_reason(limits, unread, unsupported, reason):
    found = limits.unbalanced(Ledger(0.1, unread, unsupported), ())
    assert found is not None
    assert found[0] is reason


@pytest.mark.parametrize("source", ["model", "ocr", "text-layer"])
def test_ink_without_text_is_never_ok(paper, read, source):
    attempt, quality, _ = rated(no_layer(paper), replace(read, blocks=(), source=source), FITTED)
    assert (attempt.status, attempt.reason, quality.score) == (Status.DEGRADED, Reason.EMPTY, 0.0)


@pytest.mark.parametrize(
    ("lower", "status"),
    [
        ("lines of a graph", Status.OK),
        ("solid shapes", Status.OK),
        ("text", Status.DEGRADED),
        ("blurred text", Status.DEGRADED),
    ],
)
def test_only_text_that_ocr_left_out_is_an_alarm(paper, read, lower, status):
    image = Image.new("L", (500, 700), 255)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(size=11)
    line = "The north hall of the harbor holds crates of glass"
    for y in range(60, 660, 18):
        if y < 300 or "text" in lower:
            draw.text((60, y), line, fill=0, font=font)
    if lower == "blurred text":
        image.paste(image.crop((0, 300, 500, 700)).filter(ImageFilter.GaussianBlur(1.2)), (0, 300))
    for start in (340, 420, 500) if lower == "lines of a graph" else ():
        draw.line([(x, start + (x * x // 97) % 130) for x in range(40, 460, 14)], fill=0, width=2)
    if lower == "solid shapes":
        for left, start in ((60, 20), (250, 100)):
            draw.pieslice((left, 330, left + 150, 480), start, start + 250, fill=60)
        for left in range(60, 440, 60):
            draw.ellipse((left, 500, left + 34, 534), fill=60)
            draw.polygon([(left, 600), (left + 25, 555), (left + 50, 600)], fill=60)
    page = replace(paper, evidence=Evidence(ink_of(image)))
    upper = Block(BlockKind.TEXT, Box(0.1, 0.08, 0.9, 0.44), " ".join([line] * 14))
    attempt, _, _ = rated(page, replace(read, blocks=(upper,), source="ocr", confidence=0.99), FITTED)
    assert attempt.status is status


@pytest.mark.parametrize(("confidence", "status"), [(0.9, Status.DEGRADED), (0.95, Status.OK)])
def test_a_tenth_of_the_words_misread_is_an_alarm(paper, read, confidence, status):
    blocks = (Block(BlockKind.TEXT, Box(0.1, 0.1, 0.9, 0.2), "Some words of a page."),)
    page = replace(paper, evidence=None)
    attempt, _, _ = rated(page, replace(read, blocks=blocks, source="ocr", confidence=confidence), FITTED)
    assert attempt.status is status


def test_a_grid_with_empty_cells_is_listed_and_no_alarm(paper, read):
    rows = "\n".join(f"| {name} | | | | | |" for name in ("Crane", "Pilot", "Tug", "Dock"))
    table = Block(BlockKind.TABLE, WHOLE_PAGE, f"| Needed | | | | | |\n| --- | --- | --- | --- | --- | --- |\n{rows}")
    attempt, quality, _ = rated(
        replace(paper, evidence=None), replace(read, blocks=(table,), source="text-layer"), FITTED
    )
    assert attempt.status is Status.OK
    assert quality.parts["tabular"] < 0.8


def test_long_text_of_a_page_with_one_number_scores_low(paper, read):
    image = Image.new("L", (500, 700), 250)
    ImageDraw.Draw(image).text((240, 660), "27", fill=20, font=ImageFont.load_default(size=12))
    page = replace(paper, evidence=Evidence(ink_of(image)))
    number = Block(BlockKind.TEXT, WHOLE_PAGE, "27")
    assert score(page, replace(read, blocks=(number,))).score == 1.0
    invented = replace(number, text="The members of the rowing society met in the boat house. " * 10)
    assert score(page, replace(read, blocks=(invented,))).parts["supported"] < 0.2
    # OCR invents no text: it saw letters that are too pale for the map of the ink.
    assert score(page, replace(read, blocks=(invented,), source="ocr")).parts["supported"] == 1


@pytest.mark.parametrize("reason", [Reason.LOOP, Reason.TRUNCATED, Reason.MALFORMED])
def test_a_cut_answer_is_not_worth_much(paper, read, reason):
    cut = replace(read, status=Status.DEGRADED, reason=reason)
    assert score(paper, cut).score <= 0.3
    assert "truncated" in what_is_wrong(score(paper, cut).parts)
    # What another reader then read is whole.
    assert score(paper, replace(cut, source="text-layer")).score > 0.9


@pytest.mark.parametrize("junk", ["\ufffd" * 40, "\x03\x04" * 20, "Тhе wоrld іs mіхеd " * 6])
def test_meaningless_characters_and_mixed_scripts_are_unreadable(paper, read, junk):
    blocks = (Block(BlockKind.TEXT, Box(0.1, 0.1, 0.9, 0.2), f"Some words of a page. {junk}"),)
    assert score(paper, replace(read, blocks=blocks)).parts["readable"] < 0.8


@pytest.mark.parametrize(
    "fine", ["Η απόσταση είναι 5 μm", "R وPython", "10 µm, 5 kΩ, α-Fe", "東京都 Tokyo", "naïve Überlauf"]
)
def test_other_scripts_and_units_are_readable(paper, read, fine):
    blocks = (Block(BlockKind.TEXT, Box(0.1, 0.1, 0.9, 0.2), fine),)
    assert score(paper, replace(read, blocks=blocks)).parts["readable"] == 1.0


def test_what_ocr_is_not_sure_of_lowers_the_score(paper, read):
    assert score(paper, replace(read, confidence=0.99)).score > 0.9
    unsure = score(paper, replace(read, confidence=0.5))
    assert unsure.score < 0.2
    assert "about 50 % of the words are probably misread" in what_is_wrong(unsure.parts)


KINDS = st.sampled_from(list(BlockKind))
SIDES = st.floats(0, 1)
BLOCKS = st.lists(
    st.builds(
        lambda kind, a, b, c, d, text: Block(kind, Box(a, b, c, d).clipped(), text),
        KINDS,
        *([SIDES] * 4),
        st.one_of(st.text(max_size=300), st.text("ab |<>$\\\n", max_size=300)),
    ),
    max_size=8,
)


@given(BLOCKS, st.sampled_from([0, 90, 180, 270]), st.sampled_from(["model", "ocr"]))
def test_any_answer_has_a_score_and_places_within_the_page(paper, read, blocks, rotation, source):
    answer = replace(read, blocks=tuple(blocks), rotation=rotation, source=source)
    quality, ledger = scored(paper, answer)
    assert 0 <= quality.score <= 1
    assert all(0 <= value <= 1 for value in quality.parts.values())
    what_is_wrong(quality.parts)
    assert ledger is not None
    for share in (ledger.ink, ledger.unread_share, ledger.unsupported_share, ledger.furniture_share):
        assert 0 <= share <= 1
    for box in ledger.unread:
        assert box == box.clipped()
    for span in ledger.unsupported:
        assert 0 <= span.start < span.end <= len(blocks[span.block].text)


# What follows from the score: pages of models that contradict a true text layer.


def half(read: Attempt) -> Attempt:
    blocks = tuple(block for block in read.blocks if block.text)
    return replace(read, blocks=blocks[: len(blocks) // 3])


@pytest.mark.parametrize("seen", ["layer", "ink"])
def test_answer_that_lacks_most_of_the_page_is_degraded(paper, read, seen):
    page = paper if seen == "layer" else no_layer(paper)
    attempt, _, ledger = judged(page, half(read))
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.UNREAD)
    assert "text on the page that was not read" in attempt.detail
    assert ledger is not None
    assert (ledger.verified_by, ledger.unread_share > 0.3) == (seen, True)
    gone = [block.box for block in read.blocks if block.text and block not in half(read).blocks]
    right = [any(box.covered_by(place.grown(0.02)) > 0.5 for place in gone) for box in ledger.unread]
    assert sum(right) >= 0.9 * len(right) > 5


@pytest.mark.parametrize(
    ("limits", "asked"), [(FITTED, False), (Limits(min_quality=0), True), (Limits(max_unread=1), True)]
)
def test_prompts_and_limits_of_the_user_turn_the_account_off(paper, read, limits, asked):
    assert rated(paper, half(read), limits, transcribed=asked)[0].status is Status.OK


def test_an_answer_for_another_page_is_degraded_by_a_short_layer(paper, read):
    assert paper.evidence is not None
    page = layered(paper, paper.evidence.lines[:5])
    other = "Quarterly accounts of the harbor board show seven vessels with cargoes of timber, wool, and salted fish. "
    swapped = saying(read, other)
    attempt, _, _ = judged(page, swapped)
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.UNSUPPORTED)
    assert rated(page, swapped, FITTED)[0].status is Status.OK  # a prompt of the user


def test_text_the_machine_cannot_draw_is_not_invented(paper, read):
    assert paper.evidence is not None
    white = InkMap(8, 8, zlib.compress(bytes(8), 1), True)
    page = replace(paper, evidence=replace(paper.evidence, ink=white, undrawn=1.0))
    layer = replace(read, source="text-layer")
    attempt, _, ledger = rated(page, layer, FITTED)
    assert (attempt.status, ledger.ink, ledger.unsupported_share) == (Status.OK, 0.0, 0.0)
    assert rated(page, half(layer), FITTED)[0].reason is Reason.UNREAD


def test_a_changed_number_is_degraded_and_named(paper, read):
    number, place = next(
        (n, found) for n, one in enumerate(read.blocks) if (found := re.search(r"\b\d\d+\b", one.text))
    )
    block = read.blocks[number]
    changed = f"{block.text[: place.start()]}{'7' * len(place[0])}1{block.text[place.end() :]}"
    blocks = (*read.blocks[:number], replace(block, text=changed), *read.blocks[number + 1 :])
    attempt, _, ledger = judged(paper, replace(read, blocks=blocks))
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.UNSUPPORTED)
    assert f"1 number that the text layer lacks, the first is {'7' * len(place[0])}1" in attempt.detail
    assert ledger is not None
    assert ledger.unsupported == (Span(number, place.start(), place.end() + 1),)


def test_a_stamp_in_the_margin_has_no_place_in_the_order(paper, read):
    """A vertical stamp that the layer and the answer have, wherever the answer has it."""
    assert paper.evidence is not None
    stamp = "Downloaded from the library of rivers and lakes by a guest on the first of May in the year 1953"
    box = Box(0.95, 0.1, 0.97, 0.9)
    page = replace(paper, evidence=replace(paper.evidence, lines=(*paper.evidence.lines, (stamp, box))))
    for blocks in (
        (Block(BlockKind.TEXT, box, stamp), *read.blocks),
        (*read.blocks, Block(BlockKind.TEXT, box, stamp)),
    ):
        assert score(page, replace(read, blocks=blocks)).parts["order"] > 0.9


@pytest.mark.parametrize("place", ["boxes", "no boxes"])
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("a sentence of words that the page has", Reason.UNSUPPORTED),
        ("a paragraph twice", Reason.UNSUPPORTED),
        ("no line of a paragraph", Reason.UNREAD),
    ],
)
def test_one_passage_too_much_or_too_few_is_degraded(paper, read, fault, reason, place):
    long = max(texts(read.blocks), key=lambda number: len(read.blocks[number].text))
    words = read.blocks[long].text.split()
    at = len(words) // 2
    match fault:
        case "a paragraph twice":
            changed = words * 2
        case "no line of a paragraph":
            changed = words[:at] + words[at + 10 :]
        case _:
            changed = words[:at] + words[-3::-4][:9] + words[at:]
    block = replace(read.blocks[long], text=" ".join(changed))
    bad = replace(read, blocks=(*read.blocks[:long], block, *read.blocks[long + 1 :]))
    attempt, _, ledger = judged(paper, bad if place == "boxes" else no_places(bad))
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, reason)
    if reason is Reason.UNREAD:
        assert all(box.covered_by(read.blocks[long].box.grown(0.01)) > 0.5 for box in ledger.unread)
    else:
        assert {span.block for span in ledger.unsupported} == {long}


def test_a_number_is_compared_at_its_place(paper, read):
    lines = [
        ("In 1994 the harbor board counted seven vessels with timber and wool.", Box(0.1, 0.4, 0.9, 0.42)),
        ("In 1995 the harbor board counted eleven vessels with salted fish.", Box(0.1, 0.45, 0.9, 0.47)),
    ]
    page = layered(paper, lines)
    right = lined(read, lines)
    assert judged(page, right)[0].status is Status.OK
    swapped = (replace(right.blocks[0], text=lines[0][0].replace("1994", "1995")), right.blocks[1])
    attempt, _, _ = judged(page, replace(right, blocks=swapped))
    assert "the first is 1995" in attempt.detail


def test_number_before_its_exponent_is_on_the_page(paper, read):
    line = 'All errors of the harbor board shall be below 10−7, and so the tolerance is "1.0e-7" in the file.'
    place = Box(0.1, 0.4, 0.9, 0.42)
    for number, found in (("10", []), ("18", ["18"])):
        text = line.replace("10−7", f"{number}<sup>−7</sup>")
        _, ledger = scored(layered(paper, [(line, place)]), replace(read, blocks=(Block(BlockKind.TEXT, place, text),)))
        assert [text[span.start : span.end] for span in ledger.unsupported] == found


@pytest.mark.parametrize(
    ("printed", "written", "is_same"),
    [
        ("12.50", "12.50", True),
        ("12.50", "1250", False),
        ("1234.56", "12.3456", False),
        ("1,234.50", "1234.50", True),
        ("1,234", "1.234", False),
        ("12/03/2031", "12.03.2031", True),
        ("-12.50", "12.50", False),
        ("-12.50", "\u2212 12.50", True),
        ("-12.50", "\u201112.50", True),
        ("-12.50", "-\u00a012.50", True),
        ("(1,250)", "1,250", False),
        ("(1,250)", "-1,250", True),
        ("(1,250)", "(1,250)", True),
    ],
)
def test_a_number_keeps_its_decimal_mark_and_sign(paper, read, printed, written, is_same):
    lines = [("Surplus of the harbor board in the year, thousands", Box(0.1, 0.4, 0.9, 0.42))]
    lines += [(f"From tolls and moorings {printed} tons", Box(0.1, 0.43, 0.9, 0.45))]
    table = f"<table><tr><td>From tolls and moorings</td><td>{written}</td><td>tons</td></tr></table>"
    blocks = Block(BlockKind.TEXT, lines[0][1], lines[0][0]), Block(BlockKind.TABLE, lines[1][1], table)
    attempt, _, _ = judged(layered(paper, lines), replace(read, blocks=blocks))
    assert attempt.reason is (None if is_same else Reason.UNSUPPORTED)


def test_wrong_numbers_beside_each_other_count_as_two(paper, read):
    printed = "In the list of the harbor board, the vessels have the numbers 411 527 and no names."
    page = layered(paper, [(printed, Box(0.1, 0.4, 0.9, 0.42))])
    attempt, _, _ = judged(page, saying(read, printed.replace("411 527", "438 569")))
    assert "2 numbers that the text layer lacks, the first is 438" in attempt.detail


#: A page whose table has a line of the layer for each row.
_ROWS = ["Goods in store Count Price", "Oars, ash, long 14 31.50", "Lamp oil 6 12.75", "Canvas, number four 22 17.40"]
_NOTICE = "The harbor commission met at the custom house with the pilot from Vessin in the chair."


def _stored(rows: Sequence[str], notice: str = _NOTICE) -> list[tuple[str, Box]]:
    return [(text, Box(0.1, 0.4 + 0.03 * at, 0.9, 0.42 + 0.03 * at)) for at, text in enumerate([notice, *rows, "End."])]


@pytest.mark.parametrize("row", [1, 2, 3])
def test_a_lost_row_counts_although_it_is_short(paper, read, row):
    lines = [(text, box) for text, box in _stored(_ROWS) if text != _ROWS[row]]
    attempt, _, ledger = judged(layered(paper, _stored(_ROWS)), lined(read, lines))
    assert attempt.reason is Reason.UNREAD
    assert ledger is not None and ledger.unread == (_stored(_ROWS)[row + 1][1],)


@pytest.mark.parametrize(
    ("notice", "status"),
    [
        (_NOTICE, Status.OK),
        (_NOTICE.replace("Vessin", "Vesein"), Status.OK),
        (_NOTICE.replace("Vessin", "Marlow"), Status.DEGRADED),
        (_NOTICE.replace("pilot", "mayor"), Status.DEGRADED),
    ],
)
def test_a_word_in_place_of_another_counts(paper, read, notice, status):
    lines = _stored(_ROWS, notice)
    attempt, _, ledger = judged(layered(paper, _stored(_ROWS)), lined(read, lines))
    assert attempt.status is status
    if status is Status.DEGRADED:
        [span] = ledger.unsupported
        assert notice[span.start : span.end] in ("Marlow", "mayor")


@pytest.mark.parametrize(
    ("printed", "written", "place"),
    [("5 mg of it", "5 g of it", "g"), ("dose of 5 mg", "dose of 8 mg", "8"), ("5 mg of it", "5 mq of it", "")],
)
def test_another_unit_or_digit_counts(paper, read, printed, written, place):
    text = "The surgeon of the harbor gave a dose of 5 mg of it to the pilot of each vessel."
    changed = text.replace(printed, written)
    attempt, _, ledger = judged(layered(paper, [(text, Box(0.1, 0.4, 0.9, 0.42))]), saying(read, changed))
    assert [changed[span.start : span.end] for span in ledger.unsupported] == ([place] if place else [])
    assert attempt.reason is (Reason.UNSUPPORTED if place else None)


@pytest.mark.parametrize(
    ("printed", "written", "reason"),
    [
        ("met at the custom house", "met not at the custom house", Reason.UNSUPPORTED),
        ("met not at the custom house", "met at the custom house", Reason.UNREAD),
        ("met & left the custom house", "met and left the custom house", None),
        ("met 9 at the custom house", "met at the custom house", None),
    ],
)
def test_a_word_that_is_added_or_lost_counts(paper, read, printed, written, reason):
    lines = _stored(_ROWS, _NOTICE.replace("met at the custom house", printed))
    texts = [_NOTICE.replace("met at the custom house", written), *_ROWS, "End."]
    blocks = [Block(BlockKind.TEXT, box, text) for (_, box), text in zip(lines, texts, strict=True)]
    assert judged(layered(paper, lines), replace(read, blocks=tuple(blocks)))[0].reason is reason


@pytest.mark.parametrize(
    ("high", "wide", "reason"),
    [(0.04, 0.5, Reason.UNREAD), (0.018, 0.5, None), (0.04, 0.1, None)],  # the last: small letters that lie askew
)
def test_a_lost_title_in_large_letters_is_no_running_head(paper, read, high, wide, reason):
    title = ("Harbor dues", Box(0.1, 0.02, 0.1 + wide, 0.02 + high))
    body = stacked(_HARBOR)
    attempt, _, ledger = judged(layered(paper, [title, *body]), lined(read, body))
    assert attempt.reason is reason and list(ledger.unread) == ([title[1]] if reason else [])


def test_text_in_a_comment_is_not_read(paper, read):
    lines = stacked(_HARBOR)
    text = " ".join(_HARBOR[:3]), f"<!-- {' '.join(_HARBOR[3:])} -->"
    ledger = judged(layered(paper, lines), saying(read, *text))[2]
    assert [round(box.y0, 2) for box in ledger.unread] == [round(box.y0, 2) for _, box in lines[3:]]


def test_a_lost_heading_of_two_short_lines_counts(paper, read):
    lines = stacked([*_HARBOR[:3], "Old dues", "and fees", *_HARBOR[3:]])
    blocks = tuple(Block(BlockKind.TEXT, box, text) for text, box in lines if len(text) > 8)
    attempt, _, ledger = judged(layered(paper, lines), replace(read, blocks=blocks))
    assert attempt.reason is Reason.UNREAD and [round(box.y0, 2) for box in ledger.unread] == [0.26, 0.28]


@pytest.mark.parametrize(("gap", "status"), [(0.05, Status.OK), (0.005, Status.DEGRADED)])
def test_only_a_line_apart_from_the_text_is_a_running_head(paper, read, gap, status):
    head = ("Proceedings of the harbor board, volume of the year, part two", Box(0.1, 0.08, 0.9, 0.1))
    body = [
        (f"The {name} of the board counted vessels with timber, wool, and salted fish.", Box(0.1, top, 0.9, top + 0.02))
        for name, top in (("chairman", 0.1 + gap), ("secretary", 0.125 + gap), ("treasurer", 0.15 + gap))
    ]
    assert judged(layered(paper, [head, *body]), lined(read, body))[0].status is status


@pytest.mark.parametrize(
    ("name", "sure", "places"), [("Tolland", 1.0, 0), ("Marlowe", 1.0, 1), ("Marlowe", 0.9, 0), ("Tolisnd", 1.0, 0)]
)
def test_a_name_is_marked_where_ocr_is_sure_of_another(paper, read, name, sure, places):
    printed = "Each week the deputy of Agnes Tolland keeps the second key of the rain gauge."
    words = tuple(sure if word == "Tolland" else 1.0 for word in printed.split())
    lines = (OcrLine(printed, Box(0.1, 0.2, 0.9, 0.22), 0.99, words),)
    evidence = replace(layered(paper, []).evidence, ocr=OcrText(lines, frozenset({"LATIN"})))
    _, ledger = scored(replace(paper, evidence=evidence), saying(read, printed.replace("Tolland", name)), "ocr")
    assert (ledger.verified_by, len(ledger.unsupported), ledger.unsupported_share) == ("ocr", places, 0)


def stacked(texts: Sequence[str]) -> list[tuple[str, Box]]:
    """Lines of a text layer, one below the other."""
    return [(text, Box(0.1, 0.2 + 0.02 * row, 0.9, 0.215 + 0.02 * row)) for row, text in enumerate(texts)]


@pytest.mark.parametrize("seed", range(2))
def test_words_of_the_page_cannot_hide_an_invented_sentence(paper, read, seed):
    """A page whose words are few, so that each word of the invented sentence is also elsewhere on it."""
    rng = random.Random(seed)
    words = [a + b for a in ("מים", "עיר", "אור", "בין", "תחת") for b in ("", "ים", "ה", "מער")]
    lines = [" ".join(rng.choices(words, k=11)) for _ in range(60)]
    page = layered(paper, [(text, Box(0.1, 0.2 + row / 100, 0.9, 0.209 + row / 100)) for row, text in enumerate(lines)])
    places = rng.sample(range(60), 60)  # the layer has another order
    right = [Block(BlockKind.TEXT, WHOLE_PAGE, lines[place]) for place in places]
    assert judged(page, replace(read, blocks=tuple(right)))[1].parts["supported"] == 1
    right[12] = replace(right[12], text=f"{right[12].text} {' '.join(rng.choices(words, k=11))}")
    attempt, _, ledger = judged(page, replace(read, blocks=tuple(right)))
    assert attempt.reason is Reason.UNSUPPORTED and ledger.unsupported


def test_formulas_are_neither_wrong_nor_missing(paper, read):
    """The layer has their symbols in another order than LaTeX, with numbers of formulas and accents between them."""
    prose = "The measured length of the river grows with the number of its bends in every valley of the district."
    symbols = [
        "n∑",
        "i = 1",
        "θi + σ0 + λ + 4",
        "(12)",
        "ˆxixˆj = ˆk2j",
        "aij ≈ bij + cij",
        "(13)",
        "q5 + r7 + s8 + tij",
    ]
    formula = r"$$\sum_{i=1}^{n}\theta_i+\sigma_0+\frac{\lambda+4}{n}\begin{vmatrix}22&-33\\44&55\end{vmatrix}$$"
    page = layered(paper, stacked([prose, *symbols, prose.replace("river", "glacier")]))
    blocks = [prose, formula, r"It holds $\hat{x}_i\hat{x}_j=\hat{k}_{2j}$.", prose.replace("river", "glacier")]
    attempt, _, ledger = judged(page, saying(read, *blocks))
    assert (attempt.status, ledger.unread_share, ledger.unsupported_share) == (Status.OK, 0, 0)


def test_commands_printed_in_a_manual_are_found_in_formulas(paper, read):
    lines = [f"The {name} of an accent in this manual is typeset in the next line." for name in ("first", "second")]
    code = r"$\dot{\overline{f}}^a_b$ $\widehat{\underline{g}}^a_b$ $\widetilde{\overbrace{h}}_b$"
    page = layered(paper, stacked([lines[0], code, lines[1]]))
    assert judged(page, saying(read, lines[0], code, lines[1]))[0].status is Status.OK


@pytest.mark.parametrize(("dollars", "kind"), [("$", "text"), ("US$ ", "text"), ("$", "formula"), ("", "formula")])
def test_prose_is_verified_wherever_a_formula_may_be(paper, read, dollars, kind):
    line = f"The board paid {dollars}500 to the harbor in spring and {dollars}700 to the museum in autumn of this year."
    page = layered(paper, stacked([line]))
    more = line.replace("harbor", "harbor and to all of its seven physicians and sailors")
    less = line.replace(f" to the harbor in spring and {dollars}700 to the museum", "")
    for text, reason in ((line, None), (more, Reason.UNSUPPORTED), (less, Reason.UNREAD)):
        assert judged(page, replace(read, blocks=(Block(BlockKind(kind), WHOLE_PAGE, text),)))[0].reason is reason, text


def test_beginnings_of_blocks_and_pictures_of_text_are_unread(paper, read):
    image = Image.new("L", (1000, 1414), 255)
    draw = ImageDraw.Draw(image)
    lines = [f"Boat {number} lay idle at the quay until the ice had left." for number in range(16)]
    for number, line in enumerate(lines):
        draw.text((100, 200 + 44 * number), line, fill=0, font=ImageFont.load_default(28))
    page = replace(paper, evidence=Evidence(ink_of(image)))
    place = Box(0.08, 0.12, 0.92, 0.66)
    whole = Block(BlockKind.TEXT, place, " ".join(lines))
    for block, reason in (
        (whole, None),
        (replace(whole, text="Boat 0 lay idle"), Reason.UNREAD),
        (Block(BlockKind.TABLE, place, f"<table><tr><td>{lines[0]}</td></tr></table>"), Reason.UNREAD),
        (Block(BlockKind.FIGURE, place, label="Picture"), Reason.UNREAD),
        (Block(BlockKind.FIGURE, place, label="Picture", described=" ".join(lines)), None),
    ):
        assert judged(page, replace(read, blocks=(block,)))[0].reason is reason


@pytest.mark.parametrize("first", [0x4E00, 0xAC00, 0x0B85], ids=["Chinese", "Korean", "Tamil"])
def test_wide_letters_have_the_room_of_two(paper, read, first):
    image = Image.new("L", (1000, 1414), 255)
    draw = ImageDraw.Draw(image)
    known = [chr(code) for code in range(first, first + 60) if chr(code).isalnum()]
    lines = []
    for row in range(16):
        for column in (at for at in range(27) if at % 9 != 8):  # a comma has the room of an ideograph, and little ink
            x, y = 95 + 30 * column, 200 + 44 * row
            draw.rectangle((x, y, x + 26, y + 26), outline=0, width=3)
            draw.line((x, y + 13, x + 26, y + 13), fill=0, width=3)
        signs = [known[(7 * row + column) % len(known)] for column in range(27)]
        lines.append("".join("\uff0c" if at % 9 == 8 else sign for at, sign in enumerate(signs)))
    page = replace(paper, evidence=Evidence(ink_of(image)))
    for kept, reason in ((lines, None), (lines[::2], Reason.UNREAD)):
        for place in (Box(0.08, 0.12, 0.92, 0.66), WHOLE_PAGE):
            answer = replace(read, blocks=(Block(BlockKind.TEXT, place, "".join(kept)),))
            assert judged(page, answer)[0].reason is reason, (len(kept), place)


def test_other_modes_are_judged_by_words_and_not_by_ink(paper, read):
    half = replace(read, blocks=without(read.blocks, texts(read.blocks)[1::2]))
    limits = Limits(by_ink=False)
    assert rated(no_layer(paper), half, limits, transcribed=True)[0].status is Status.OK
    assert rated(paper, half, limits, transcribed=True)[0].reason is Reason.UNREAD
    own = replace(limits, max_unread=0.01)
    assert rated(no_layer(paper), half, own, transcribed=True)[0].reason is Reason.UNREAD


def test_lines_in_the_margin_demand_no_letters(paper, read):
    image = Image.new("L", (1000, 1414), 255)
    draw = ImageDraw.Draw(image)
    draw.text((100, 300), "The mark is red.", fill=0, font=ImageFont.load_default(30))
    for number in range(12):
        draw.text((40 + 75 * number, 1385), "seal", fill=0, font=ImageFont.load_default(22))
    page = replace(paper, evidence=Evidence(ink_of(image)))
    assert judged(page, saying(read, "The mark is red."))[0].status is Status.OK


_HARBOR = (
    "In the spring of that year the harbor board counted its vessels, and the",
    "clerk wrote their names, owners, and loads into a ledger that is kept in the",
    "museum of the town, where visitors of all ages may read it on Sundays.",
    "The first schooner carried timber from the north, and its captain paid",
    "the fee in silver, because the bank had closed its doors in the winter",
    "and nobody trusted the paper notes that the council printed afterward.",
    "Two smaller boats brought wool and salted fish from islands in the west, but",
    "their crews left again before noon without a word to the harbor master.",
)


def _in_columns(left: Sequence[str], right: Sequence[str]) -> list[tuple[str, Box]]:
    sides = ((left, 0.1), (right, 0.55))
    return [
        (text, Box(x, 0.2 + row / 50, x + 0.35, 0.215 + row / 50)) for side, x in sides for row, text in enumerate(side)
    ]


@pytest.mark.parametrize("verify", ["layer", "ocr"])
@pytest.mark.parametrize(
    ("order", "place"),
    [
        ((0, 1, 2, 3, 4, 5, 6, 7), ""),
        ((0, 2, 1, 3, 4, 5, 6, 7), _HARBOR[2]),  # within a sentence
        ((3, 4, 5, 0, 1, 2, 6, 7), _HARBOR[3]),  # paragraphs
        ((0, 4, 1, 5, 2, 6, 3, 7), _HARBOR[4]),  # across the columns
    ],
)
def test_text_in_the_wrong_order_is_degraded_at_its_place(paper, read, verify, order, place):
    lines = _in_columns(_HARBOR[:4], _HARBOR[4:]) if order[1] == 4 else stacked(_HARBOR)
    page = layered(paper, lines)
    if verify == "ocr":
        found = tuple(OcrLine(text, box, 0.99, (1.0,) * len(text.split())) for text, box in lines[::-1])
        page = replace(page, evidence=replace(page.evidence, lines=(), ocr=OcrText(found, frozenset({"LATIN"}))))
    parts = [order] if order[1] == 4 else [order[:3], order[3:6], order[6:]]
    blocks = tuple(Block(BlockKind.TEXT, WHOLE_PAGE, " ".join(_HARBOR[row] for row in part)) for part in parts)
    attempt, quality, ledger = rated(page, replace(read, blocks=blocks), Limits(verify=verify), transcribed=True)
    if place:
        assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.LOW_QUALITY)
        assert "text where the page has other text" in attempt.detail and quality.score < 0.8
        span = ledger.unsupported[0]
        # The ends of a line may be matched with other words.
        assert place[10:-10] in blocks[span.block].text[span.start : span.end] and ledger.unsupported_share == 0
    else:
        assert (attempt.status, quality.parts["placed"], ledger.unsupported) == (Status.OK, 1, ())


@pytest.mark.parametrize(
    ("parts", "exchanged"),
    [
        ((_HARBOR[:3], ("Schooners of 1871",), _HARBOR[3:6], ("The smaller boats",), _HARBOR[6:]), (0, 3, 2, 1, 4)),
        (((*_HARBOR[:2], "museum of it."), _HARBOR[3:6], _HARBOR[6:]), (1, 0, 2)),
    ],
    ids=["headings", "paragraphs with a short last line"],
)
def test_exchanged_headings_and_paragraphs_are_out_of_order(paper, read, parts, exchanged):
    page = layered(paper, stacked([line for part in parts for line in part]))
    texts = [" ".join(part) for part in parts]
    assert judged(page, saying(read, *texts))[0].status is Status.OK
    assert judged(page, saying(read, *(texts[at] for at in exchanged)))[0].status is Status.DEGRADED


def test_captions_and_repeated_lines_may_be_anywhere(paper, read):
    caption = ("Vessels of the harbor in the year of the great storm, by their size", Box(0.1, 0.17, 0.9, 0.18))
    text = stacked(_HARBOR)
    moved = [*text[:3], *text[6:], caption]  # a model puts floats last
    blocks = tuple(Block(BlockKind.TEXT, WHOLE_PAGE, line) for line, _ in moved)
    assert judged(layered(paper, [caption, *text[:3], *text[6:]]), replace(read, blocks=blocks))[0].status is Status.OK
    twice = stacked([*_HARBOR[6:], *_HARBOR[6:], *_HARBOR[:3]])
    blocks = tuple(Block(BlockKind.TEXT, WHOLE_PAGE, text) for text, _ in twice)
    assert judged(layered(paper, twice), replace(read, blocks=blocks))[0].status is Status.OK


@pytest.mark.parametrize("verify", ["layer", "ocr"])
@pytest.mark.parametrize("lost", [None, 12])
@pytest.mark.parametrize("seed", range(2))
def test_words_that_are_left_over_cannot_hide_a_lost_line(paper, read, verify, lost, seed):
    """Each word of the lost line is also a word of the answer that is misread on the page."""
    rng = random.Random(seed)
    words = ["harbor", "timber", "salted", "vessel", "winter", "silver", "island", "museum"]
    lines = [rng.choices(words, k=7) for _ in range(40)]
    printed = [" ".join(["oovvoo", *line[1:]] if 20 <= row < 27 else line) for row, line in enumerate(lines)]
    for row, word in enumerate(lines[12], start=20):
        lines[row][0] = word
    page = layered(paper, stacked(printed))
    if verify == "ocr":
        found = tuple(OcrLine(text, box, 0.99, (1.0,) * 7) for text, box in stacked(printed))
        page = replace(page, evidence=replace(page.evidence, lines=(), ocr=OcrText(found, frozenset({"LATIN"}))))
    text = " ".join(" ".join(line) for row, line in enumerate(lines) if row != lost)
    answer = saying(read, text)
    ledger = scored(page, answer, verify)[1]
    assert [round(box.y0, 2) for box in ledger.unread] == ([] if lost is None else [0.2 + 0.02 * lost])


_TABLE = (("Vessel", "Crew", "Timber"), ("Aurora", "12", "340"), ("Bettina", "17", "85"), ("Cormoran", "31", "1900"))


@pytest.mark.parametrize("as_html", [False, True])
@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        (_TABLE, []),
        ((_TABLE[0], *((name, load, crew) for name, crew, load in _TABLE[1:])), [1, 2, 3]),  # columns swapped
        ((*_TABLE[:2], ("Bettina", "", "85"), ("Cormoran", "17", "1900"), ("", "31", "")), [3]),  # cells one row lower
        ((_TABLE[0], _TABLE[2], _TABLE[1], _TABLE[3]), [2]),  # rows swapped
    ],
)
def test_cells_in_wrong_places_are_degraded_at_their_rows(paper, read, rows, wrong, as_html):
    lines = stacked([" ".join(row) for row in _TABLE])
    if as_html:
        text = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    else:
        head, *body = (f"| {' | '.join(row)} |" for row in rows)
        text = "\n".join([head, "| --- | --- | --- |", *body])
    blocks = (Block(BlockKind.TABLE, WHOLE_PAGE, f"<table>{text}</table>" if as_html else text),)
    attempt, quality, ledger = judged(layered(paper, lines), replace(read, blocks=blocks))
    marked = "\n".join(blocks[span.block].text[span.start : span.end] for span in ledger.unsupported)
    assert [number for number, row in enumerate(rows) if "".join(row) and row[0] and row[0] in marked] == wrong
    assert attempt.reason is (Reason.LOW_QUALITY if wrong else None) and (quality.parts["placed"] < 1) is bool(wrong)


def test_corrected_parts_of_divided_words_correct_the_word():
    # pdfium joins the parts of a word, and leaves out letters without a mapping.
    layer = Evidence(None, (("by semanti riteria and onstraints", Box(0.1, 0.1, 0.9, 0.12)),))
    place = Box(0.2, 0.1, 0.3, 0.12)
    parts = (("manti\ufffd", "mantic"), ("\ufffdriteria", "criteria"), ("\ufffdonstr-", "constr-"), ("\ufffdo", "co"))
    attempt = Attempt("embedded", "text-layer", Status.OK, probe=0.0, reread=tuple((place, *part) for part in parts))
    assert with_reread(layer, attempt).lines[0][0] == "by semantic criteria and constraints"
