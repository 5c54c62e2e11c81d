"""olmOCR's answers become blocks, and what their head says becomes notes."""

import pytest
from any_answers import pieces_for
from hypothesis import given
from hypothesis import strategies as st

from llm_ocr.models.parsers.markdown import parse_front_matter
from llm_ocr.models.profile import NO_FRAME, Frame, PageNotes
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.types import BlockKind, Box

FRAME = Frame(1000, 1288)
WHOLE = Box(0, 0, 1, 1)
HEAD = """---
primary_language: en
is_rotation_valid: True
rotation_correction: 0
is_table: False
is_diagram: False
---
"""
SOUND = PageNotes("en", True, 0, False, False)
FIGURE = "![Arch bridge seen from the east](page_100_322_400_644.png)"
PAGE = f"{HEAD}The bridge opened in 1902.\n\n{FIGURE}\n\nIt is \\(40\\) m long.\n\n<table><tr><td>1</td></tr></table>"


def head(**values: str) -> str:
    lines = {
        "primary_language": "en",
        "is_rotation_valid": "True",
        "rotation_correction": "0",
        "is_table": "False",
        "is_diagram": "False",
        **values,
    }
    return "---\n" + "".join(f"{name}: {value}\n" for name, value in lines.items()) + "---\n"


@pytest.mark.parametrize("answer", [PAGE, PAGE.replace("\n", "\r\n"), f"```markdown\n{PAGE}\n```", f"{PAGE}<|im_end|>"])
def test_a_page_has_its_notes_text_and_figure(answer: str):
    parsed = parse_front_matter(answer, FRAME)
    assert parsed.notes == SOUND
    assert [block.kind.value for block in parsed.blocks] == ["text", "figure", "text", "table"]
    assert parsed.lost == ()
    figure = parsed.blocks[1]
    assert (figure.box.x0, figure.box.y0, figure.box.x1, figure.box.y1) == pytest.approx((0.1, 0.25, 0.5, 0.75))
    assert (figure.label, figure.described, figure.text) == ("image", "Arch bridge seen from the east", "")


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("primary_language", "null", None),
        ("primary_language", "", None),
        ("primary_language", "no", "no"),  # Norwegian, which YAML takes for false
        ("primary_language", '"pt-BR"', "pt-BR"),
        ("primary_language", "{x: 1}", None),
        ("is_rotation_valid", "false", False),
        ("is_rotation_valid", "maybe", None),
        ("rotation_correction", "45", None),
        ("rotation_correction", "180", 180),
        ("rotation_correction", "9" * 100, None),
        ("is_table", "TRUE", True),
        ("is_diagram", "'true'", True),
    ],
)
def test_values_are_read_or_not_known(name: str, value: str, read: object):
    notes = parse_front_matter(head(**{name: value}) + "words").notes
    assert getattr(notes, name) == read


@pytest.mark.parametrize(("said", "clockwise"), [("90", 270), ("270", 90), ("180", 180), ("0", 0), ("-90", 90)])
def test_corrections_are_clockwise_degrees_as_in_olmocr_client(said: str, clockwise: int):
    notes = parse_front_matter(head(is_rotation_valid="False", rotation_correction=said) + "words").notes
    assert notes is not None
    assert notes.rotation_correction == clockwise


def test_lines_that_are_missing_are_not_known():
    parsed = parse_front_matter("---\nis_table: true\n---\nwords")
    assert parsed.notes == PageNotes(is_table=True)
    assert [block.text for block in parsed.blocks] == ["words"]


def test_names_that_nobody_knows_are_left_out():
    parsed = parse_front_matter("---\nmood: good\nis_table: true\nmood: bad\n---\nwords")
    assert parsed.notes == PageNotes(is_table=True)
    assert blocks_to_markdown(parsed.blocks) == "words"


def test_a_head_without_its_ends_is_one_all_the_same():
    parsed = parse_front_matter("primary_language: en\nis_table: true\nWords: of the page\n\nMore")
    assert parsed.notes == PageNotes(primary_language="en", is_table=True)
    assert "More" in blocks_to_markdown(parsed.blocks)


def test_text_on_the_line_of_the_end_is_kept():
    assert blocks_to_markdown(parse_front_matter("---\nis_table: false\n--- words").blocks) == "words"


@pytest.mark.parametrize(
    "text", ["Just words.", "---\n\nJust words.", "---\nnote: this is the page's own\n---\n\nwords"]
)
def test_an_answer_without_a_head_is_text_and_says_so(text: str):
    parsed = parse_front_matter(text)
    assert parsed.notes is None
    assert parsed.lost == ("no front matter: what it says of the page is not known",)
    assert blocks_to_markdown(parsed.blocks).split() == text.split()


@pytest.mark.parametrize("body", ["", "null", "None", " \n"])
def test_a_page_without_text_has_notes_and_no_blocks(body: str):
    parsed = parse_front_matter(HEAD + body)
    assert (parsed.blocks, parsed.notes, parsed.lost) == ((), SOUND, ())


def test_a_diagram_without_text_is_a_figure():
    (block,) = parse_front_matter(head(is_diagram="True") + "null").blocks
    assert (block.kind, block.label, block.box) == (BlockKind.FIGURE, "diagram", WHOLE)
    turned = head(is_diagram="True", is_rotation_valid="False", rotation_correction="90")
    assert parse_front_matter(turned).blocks == ()


@pytest.mark.parametrize(
    "target",
    [
        "page_1200_0_10_10.png",
        "page_10_10_0_50.png",
        "page_startx_starty_width_height.png",
        "page_1_2.png",
        "photo.jpg",
    ],
)
def test_a_figure_whose_box_is_not_on_the_page_keeps_its_words(target: str):
    parsed = parse_front_matter(f"{HEAD}Before\n\n![A heron]({target})\n\nafter", FRAME)
    assert [(block.text, block.label, block.box) for block in parsed.blocks] == [
        ("Before", "", WHOLE),
        ("A heron", "image", WHOLE),
        ("after", "", WHOLE),
    ]
    assert parsed.lost == ("image: its box is not on the page",)


def test_without_the_size_of_the_image_words_stay():
    parsed = parse_front_matter(PAGE, NO_FRAME)
    assert "Arch bridge seen from the east" in blocks_to_markdown(parsed.blocks)


def test_words_of_figures_may_hold_brackets_and_lines():
    figure = parse_front_matter(f"{HEAD}a\n\n![Map [sheet 2]\nof ![it]](page_1_2_30_40.png)", FRAME).blocks[1]
    assert figure.described == "Map [sheet 2] of ![it]"


def test_links_to_other_places_stay():
    text = "![x](https://example.org/a.png) and [y](page.html)"
    assert blocks_to_markdown(parse_front_matter(HEAD + text, FRAME).blocks) == text


def test_a_figure_within_a_table_stands_behind_it():
    body = "<table><tr><td>![A heron](page_1_2_30_40.png)</td></tr></table>"
    parsed = parse_front_matter(HEAD + body, FRAME)
    assert [block.text or block.described for block in parsed.blocks] == [
        "<table><tr><td></td></tr></table>",
        "A heron",
    ]


def test_a_cut_answer_keeps_its_text_and_shows_no_part_of_a_link():
    shown = ""
    for end in range(len(PAGE)):
        parsed = parse_front_matter(PAGE[:end], FRAME)
        shown = blocks_to_markdown(parsed.blocks)
        assert "](" not in shown
        assert "page_1" not in shown
        if end > PAGE.index("1902.") + 5:
            assert "The bridge opened in 1902." in shown
            assert parsed.notes == SOUND
    assert "m long." in shown


@given(st.lists(st.sampled_from(pieces_for("front-matter")), max_size=40).map("".join))
def test_a_sound_head_is_read_whatever_stands_behind_it(text: str):
    assert parse_front_matter(HEAD + text, FRAME).notes == SOUND


@pytest.mark.parametrize(
    "head",
    [
        "```yaml\nprimary_language: en\nis_table: false\n---\n",
        "```yaml\n---\nprimary_language: en\nis_table: false\n---\n```\n",
        "# Primary language: en\n# Is table: false\n",
    ],
)
def test_a_head_in_another_form_is_no_text(head: str):
    parsed = parse_front_matter(f"{head}# Night watch\n\nThe lamp burned.")
    assert blocks_to_markdown(parsed.blocks) == "# Night watch\n\nThe lamp burned."
    assert parsed.notes is not None and parsed.notes.primary_language == "en"


def test_answer_of_the_first_olmocr_is_read():
    values = '"primary_language": "en", "is_rotation_valid": true, "rotation_correction": 0'
    flags = '"is_table": false, "is_diagram": false'
    parsed = parse_front_matter(f'{{{values}, {flags}, "natural_text": "# Watch\\n\\nNo \\"ship\\"."}}')
    assert (blocks_to_markdown(parsed.blocks), parsed.notes) == ('# Watch\n\nNo "ship".', SOUND)
    assert parse_front_matter(f'{{{values}, {flags}, "natural_text": null}}').blocks == ()
    assert parse_front_matter('{"natural_text": null}').blocks == ()


@pytest.mark.parametrize(
    "answer",
    [
        f"{HEAD}{HEAD}The lamp burned.",
        f"The lamp burned.\n\n{HEAD}",
        f"{' '.join(HEAD.split())}\nThe lamp burned.",
        '{"primary_language": "en", "is_rotation_valid": true, "rotation_correction": 0, "is_table": false, '
        '"is_diagram": false}\n\nThe lamp burned.',
    ],
)
def test_a_head_at_another_place_is_read(answer: str):
    parsed = parse_front_matter(answer)
    assert (blocks_to_markdown(parsed.blocks), parsed.notes) == ("The lamp burned.", SOUND)
