"""Nothing lost, nothing invented: whatever the page, its characters are those of the blocks."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from llm_ocr.engines.embedded.layout import page_blocks, unescape
from llm_ocr.engines.embedded.regions import Region
from llm_ocr.types import Block, BlockKind, Box, Line, PageContent, Word

WIDTH, HEIGHT = 600.0, 800.0
#: Characters that the layout takes away (hyphens at line ends) or writes in another way (bullets).
VARIABLE = set("-\u2010\u2011\u00ad•–—o*+▪\uf0b7")

token = st.one_of(
    st.text(alphabet="abcdeXYZ", min_size=1, max_size=8),
    st.sampled_from(["•", "-", "1.", "(a)", "2)", "iv.", "12", "Figure", "3:", "1.2", "Page", "of", "Abstract", "\\*"]),
    st.sampled_from(["self-", "wa-", "ter", "本文", "한국", "مرحبا", "*x*", "`y`", "<b>", "#", ">", "_z_", "![a](b)"]),
    st.sampled_from(["www.example.org/", "\u00ad"]),
)


@st.composite
def lines(draw: st.DrawFn) -> Line:
    text = " ".join(draw(st.lists(token, min_size=1, max_size=6)))
    size = draw(st.sampled_from([6.0, 9.7, 10.0, 10.0, 10.0, 14.0, 24.0]))
    x = draw(st.one_of(st.sampled_from([50.0, 60.0, 310.0]), st.floats(0, 590)))
    y = draw(st.one_of(st.integers(0, 65).map(lambda row: 12.0 * row), st.floats(0, 790)))
    box = Box(x, y, x + draw(st.sampled_from([4.0, 60.0, 240.0])), y + size)
    if draw(st.integers(0, 12)) == 0:
        box = Box(x, y, x + size, y + 120)
    words = tuple(Word(word, box) for word in text.split()) if draw(st.booleans()) else ()
    faces = {name: draw(st.integers(0, 5)) == 0 for name in ("bold", "italic", "mono", "recurs")}
    return Line(text, box, size, words, confidence=draw(st.sampled_from([1.0, 0.9])), **faces)


@st.composite
def pages(draw: st.DrawFn) -> tuple[PageContent, list[Region]]:
    found = tuple(draw(st.lists(lines(), max_size=40)))
    free = list(range(len(found)))
    regions = []
    for kind in draw(st.lists(st.sampled_from(["table", "figure"]), max_size=2)):
        members = {free.pop() for _ in range(min(len(free), draw(st.integers(0, 4))))}
        caption = {free.pop() for _ in range(min(len(free), draw(st.integers(0, 2))))}
        y = draw(st.floats(0, 700))
        text = " ".join(found[index].text for index in members) if kind == "table" else ""
        regions.append(Region(kind, Box(50, y, 300, y + 90), frozenset(members), text, caption=frozenset(caption)))
    return PageContent(WIDTH, HEIGHT, found), regions


def characters(text: str) -> Counter[str]:
    return Counter(character for character in text if not character.isspace() and character not in VARIABLE)


def shown(block: Block) -> str:
    if block.kind is BlockKind.FIGURE:
        return block.inside
    return block.text if block.kind in (BlockKind.CODE, BlockKind.TABLE) else unescape(block.text)


@given(pages())
def test_every_character_of_the_page_is_in_exactly_one_block(made: tuple[PageContent, list[Region]]):
    content, regions = made
    blocks = page_blocks(content, regions)
    given_text = characters("".join(line.text for line in content.lines))
    assert sum((characters(shown(block)) for block in blocks), Counter()) == given_text


@given(pages())
def test_boxes_are_relative_and_every_region_is_one_block(made: tuple[PageContent, list[Region]]):
    content, regions = made
    blocks = page_blocks(content, regions)
    for block in blocks:
        assert 0 <= block.box.x0 <= block.box.x1 <= 1
        assert 0 <= block.box.y0 <= block.box.y1 <= 1
    assert sum(block.kind is BlockKind.TABLE for block in blocks) == sum(region.kind == "table" for region in regions)
    assert sum(block.kind is BlockKind.FIGURE for block in blocks) == sum(region.kind == "figure" for region in regions)
