"""Figures that were found on a page stand in the answer where they stand on the page."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from looking import ScriptedInspector, asked, reading
from scripted_model import PAGE, PROFILE, ScriptedEngine, stop

from llm_ocr.engines import Inspection
from llm_ocr.engines.vlm.placing import Places, mentions_figures, with_crops, with_detected
from llm_ocr.errors import PageFailure
from llm_ocr.models.parsers.coordinates import WHOLE_PAGE
from llm_ocr.models.parsers.plain import is_placeless, parse_plain, without_position
from llm_ocr.types import Block, BlockKind, Box, Page, Reason, Status

FIRST = "The lower Arlen rises in the meadows above the old quay."
SECOND = "Its level has been read from a brass gauge since the flood of 1906."
THIRD = "Three winters stand out among all those that were recorded."
CAPTION = "Figure 1: Levels at the three gauges from October to March."
HIGH, LOW = Box(0.1, 0.1, 0.9, 0.3), Box(0.1, 0.6, 0.9, 0.8)


def text(words: str, y: float = 0.5) -> Block:
    return Block(BlockKind.TEXT, Box(0.1, y, 0.9, y + 0.02), words)


def caption(words: str = CAPTION) -> Block:
    return Block(BlockKind.CAPTION, Box(0.1, 0.4, 0.9, 0.42), words)


def found(box: Box = HIGH, **more: str) -> Block:
    return Block(BlockKind.FIGURE, box, label="chart", **more)


def shown(answer: str | list[Block], *seen: Block, digital: bool = True) -> list[str]:
    """The blocks in order: a word of each text, figures by their label."""
    blocks = parse_plain(answer).blocks if isinstance(answer, str) else answer
    return [
        f"[{block.label}]" if block.kind is BlockKind.FIGURE else block.text.split()[-1].strip(".")
        for block in with_detected(blocks, Inspection(tuple(seen), digital))
    ]


@pytest.mark.parametrize("at", range(4))
def test_figure_follows_the_text_that_precedes_it_on_the_page(at):
    texts = [text(words) for words in (FIRST, SECOND, THIRD)]
    order = ["quay", "1906", "recorded"]
    seen = [*texts[:at], found(), *texts[at:]]
    assert shown(f"{FIRST}\n\n{SECOND}\n\n{THIRD}", *seen) == [*order[:at], "[chart]", *order[at:]]


def test_text_is_found_again_however_the_model_writes_it():
    answer = f"# **The lower Arlen**\n\n{FIRST.replace('meadows', '*meadows*')} {SECOND}\n\n{THIRD}"
    seen = [text("The lower Ar-\nlen rises in the mea-\ndows above the old quay."), text(SECOND), found(), text(THIRD)]
    assert shown(answer, *seen) == ["Arlen**", "1906", "[chart]", "recorded"]


def test_figure_goes_with_its_caption_wherever_the_model_puts_it():
    seen = [found(caption=CAPTION), caption(), text(FIRST), text(SECOND)]
    blocks = with_detected(
        parse_plain(f"{FIRST}\n\n{SECOND}\n\nFIGURE 1: Levels at the three gauges from October to March.").blocks,
        Inspection(tuple(seen), True),
    )
    assert [block.kind for block in blocks] == [BlockKind.TEXT, BlockKind.TEXT, BlockKind.FIGURE, BlockKind.CAPTION]
    assert blocks[2].caption == "FIGURE 1: Levels at the three gauges from October to March."


def test_a_caption_above_its_figure_stays_above():
    seen = [text(FIRST), caption(), found(caption=CAPTION), text(SECOND)]
    assert shown(f"{FIRST}\n\n{CAPTION}\n\n{SECOND}", *seen) == ["quay", "March", "[chart]", "1906"]


@pytest.mark.parametrize("words", ["Abb. 3: Der Pegel.", "**Figure 2.** The gauge.", "图 1 水位"])
def test_caption_like_line_belongs_to_the_adjacent_figure(words):
    figure, line = with_detected(parse_plain(words).blocks, Inspection((found(),), True))[::-1]
    assert (figure.kind, figure.caption) == (BlockKind.FIGURE, words)
    assert line.kind is BlockKind.CAPTION


def test_a_sentence_about_a_figure_is_no_caption():
    assert not mentions_figures(parse_plain("Figure 3 shows the level of the river.").blocks)
    assert mentions_figures(parse_plain("Figure 3: the level of the river.").blocks)


def test_a_figure_that_cannot_be_placed_stands_at_the_end():
    assert shown(f"{FIRST}\n\n{SECOND}", text("Ganz andere Worte auf dieser Seite."), found()) == [
        "quay",
        "1906",
        "[chart]",
    ]


def test_two_figures_keep_their_order():
    seen = [text(FIRST), Block(BlockKind.FIGURE, HIGH, label="image"), found(LOW), text(SECOND)]
    assert shown(f"{FIRST}\n\n{SECOND}", *seen) == ["quay", "[image]", "[chart]", "1906"]


def test_image_of_a_table_that_the_model_has_read_is_no_figure():
    table = "<table><tr><td>Hollow Bridge</td><td>412 cm</td></tr><tr><td>Old Quay</td><td>389 cm</td></tr></table>"
    inside = "Hollow Bridge 412 cm\nOld Quay 389 cm"
    assert "[chart]" not in shown(f"{FIRST}\n\n{table}", text(FIRST), found(inside=inside))
    assert "[chart]" in shown(
        f"{FIRST}\n\n{table}", text(FIRST), found(inside="Hollow Bridge\n0\n100\nOctober\nMarch\ncm")
    )


def link(box: Box, words: str) -> Block:
    return Block(BlockKind.FIGURE, box, label="image", described=words)


def test_answer_figure_gets_the_detected_box_and_keeps_its_words():
    blocks = [text(FIRST), link(Box(0.15, 0.12, 0.8, 0.35), "A chart of levels."), text(SECOND)]
    figure = with_detected(blocks, Inspection((found(LOW), found(HIGH)), True))[1]
    assert (figure.box, figure.described, figure.label) == (HIGH, "A chart of levels.", "chart")


def test_answer_figures_with_impossible_boxes_match_in_order():
    blocks = [without_position("image", "One."), text(FIRST), link(Box(0.9, 0.9, 0.99, 0.99), "Two.")]
    first, _, second = with_detected(blocks, Inspection((found(HIGH), found(LOW)), True))
    assert [(one.kind, one.box, one.described) for one in (first, second)] == [
        (BlockKind.FIGURE, HIGH, "One."),
        (BlockKind.FIGURE, LOW, "Two."),
    ]


def test_of_more_names_than_figures_only_a_neighbour_is_taken():
    blocks = [
        text(FIRST),
        without_position("image", "One."),
        text(SECOND),
        without_position("image", "Two."),
        text(THIRD),
    ]
    seen = Inspection((text(FIRST), text(SECOND), found(), text(THIRD)), True)
    made = with_detected(blocks, seen)
    assert [(block.kind, block.described or block.text) for block in made][1::2] == [
        (BlockKind.TEXT, "One."),
        (BlockKind.FIGURE, "Two."),
    ]


@pytest.mark.parametrize(("digital", "kind"), [(True, BlockKind.TEXT), (False, BlockKind.FIGURE)])
def test_a_figure_that_was_not_found_is_kept_on_scans_only(digital, kind):
    blocks = [text(FIRST), link(LOW, "A quay.")]
    made = with_detected(blocks, Inspection(digital=digital))[1]
    assert (made.kind, made.text or made.described) == (kind, "A quay.")


def test_a_box_over_the_text_of_a_scan_is_no_figure():
    lines = (text(FIRST, 0.61), text(SECOND, 0.65), text(THIRD, 0.7), found(HIGH))
    blocks = [text(FIRST), link(LOW, "A quay."), text(SECOND), text(THIRD), link(Box(0.1, 0.1, 0.9, 0.31), "A bridge.")]
    made = with_detected(blocks, Inspection(lines, False))
    assert [(block.kind, block.described) for block in made if block.label] == [
        (BlockKind.TEXT, ""),
        (BlockKind.FIGURE, "A bridge."),
    ]


def test_a_page_that_is_nothing_but_a_figure_is_one():
    (block,) = with_detected([Block(BlockKind.FIGURE, WHOLE_PAGE, label="diagram")], Inspection(digital=True))
    assert block.kind is BlockKind.FIGURE


def test_what_stands_in_two_blocks_tells_no_place():
    places = Places([FIRST, SECOND, FIRST])
    assert places.find(FIRST) is None
    assert places.find(SECOND) == (1, 1)
    assert places.find("") is None


def names(attempt) -> list[str]:
    return [block.label for block in attempt.blocks if block.kind is BlockKind.FIGURE]


def test_only_answers_without_positions_get_the_page_figures():
    seen = Inspection((text("The Danube flows through ten countries."), found()), True)
    assert names(asked(ScriptedEngine(stop()), PROFILE, ScriptedInspector(seen))) == ["chart"]
    marked = ScriptedEngine(stop("one\nfig:image"))
    assert names(asked(marked, PROFILE, ScriptedInspector(seen), mode="marked", figures_from="model")) == ["image"]


@pytest.mark.parametrize(
    ("options", "labels"),
    [({"figures_from": "none"}, []), ({"figures_from": "model"}, []), ({"figure_labels": frozenset({"image"})}, [])],
)
def test_the_user_says_which_figures_there_are(options, labels):
    inspector = ScriptedInspector(Inspection((found(),), True))
    assert names(asked(ScriptedEngine(stop()), PROFILE, inspector, **options)) == labels


def test_page_is_inspected_closely_if_its_text_mentions_a_figure():
    inspector = ScriptedInspector()
    asked(ScriptedEngine(stop()), PROFILE, inspector)
    asked(ScriptedEngine(stop(f"Rivers\n\n{CAPTION}")), PROFILE, inspector)
    assert inspector.asked == ["see", "see hinted"]


@pytest.mark.parametrize(
    ("inspector", "detail"),
    [
        (
            ScriptedInspector(PageFailure(Reason.ENGINE_TIMEOUT, "killed after 300 s")),
            "figures were not detected: killed after 300 s",
        ),
        (ScriptedInspector(Inspection(detail="OCR is not installed")), "OCR is not installed"),
    ],
)
def test_a_page_that_could_not_be_looked_at_says_so_and_stands(inspector, detail):
    attempt = asked(ScriptedEngine(stop()), PROFILE, inspector)
    assert (attempt.status, attempt.detail) == (Status.OK, detail)


async def test_no_page_is_asked_for_while_too_many_wait_for_a_look():
    waits = asyncio.Event()

    class SlowInspector(ScriptedInspector):
        async def inspect(self, page: Page, *, hinted: bool) -> Inspection:
            await waits.wait()
            return await super().inspect(page, hinted=hinted)

    engine, inspector = ScriptedEngine(stop()), SlowInspector()
    made = reading(engine, PROFILE, inspector)
    made.backlog = asyncio.Semaphore(1)
    pages = [asyncio.create_task(made.read(PAGE)) for _ in range(2)]
    await asyncio.sleep(0.05)
    assert len(engine.requests) == 1
    waits.set()
    assert [attempt.status for attempt in await asyncio.gather(*pages)] == [Status.OK, Status.OK]
    assert len(engine.requests) == 2
    await made.close()
    assert inspector.closed == 1


def test_list_in_one_page_block_is_found_in_the_answer_items():
    items = [
        "Wipe the brass plate with a dry cloth.",
        "Read where the water cuts the scale.",
        "Note the hour by the church clock.",
        "Write both into the blue book.",
        "Look for driftwood under the arch.",
        "Tell the harbour master of any flood.",
        "Close the iron gate behind you.",
        "Hang the lantern back on its hook.",
    ]
    answer = "\n".join(f"- {item}" for item in items)
    assert shown(f"{answer}\n\n{THIRD}", text("\n".join(items)), found())[-2:] == ["[chart]", "recorded"]


WORDS = st.text(st.sampled_from("abc <>|.1\n"), max_size=60)
BOXES = st.builds(lambda x, y, w, h: Box(x, y, x + w, y + h), *[st.floats(0, 0.5)] * 4) | st.just(WHOLE_PAGE)
BLOCKS = st.lists(
    st.builds(
        Block, st.sampled_from(BlockKind), BOXES, WORDS, label=st.sampled_from(["", "image", "text"]), inside=WORDS,
        caption=WORDS, described=WORDS,
    ),
    max_size=8,
)  # fmt: skip


@given(BLOCKS, BLOCKS, st.booleans())
def test_text_always_stays_in_order_and_no_figure_comes_twice(blocks, seen, digital):
    made = with_detected(blocks, Inspection(tuple(seen), digital))
    kept = [block.text for block in blocks if block.kind is not BlockKind.FIGURE and not is_placeless(block)]
    left = iter(block.text for block in made)
    assert all(text in left for text in kept)
    places = [block.box for block in made if block.kind is BlockKind.FIGURE]
    allowed = [block.box for block in (*blocks, *seen) if block.kind is BlockKind.FIGURE]
    assert all(places.count(box) <= allowed.count(box) for box in places)


def test_a_figure_that_is_not_cut_out_keeps_its_description():
    figure = Block(BlockKind.FIGURE, HIGH, label="chemical_block", described="Lye for soap, 12 g")
    assert [(block.kind, block.text) for block in with_crops([figure], ("image",))] == [
        (BlockKind.TEXT, "Lye for soap, 12 g")
    ]
    assert with_crops([figure], ("chemical-block",)) == (figure,)
