"""Pages in DocTags become blocks, whole, cut or broken as they may be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_ocr.models.parsers.otsl import parse_doctags
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.types import BlockKind, Box

AT = "<loc_50><loc_100><loc_250><loc_500>"
PAGE = f"""<doctag><page_header>{AT}Journal</page_header>
<title>{AT}Of Tides</title>
<section_header_level_1>{AT}Intro</section_header_level_1>
<text>{AT}With <formula>a < b</formula> at P < 3.</text>
<picture>{AT}<line_chart><caption>{AT}Fig. 1</caption></picture>
<chart>{AT}<bar_chart><ched>Year<nl><fcel>2019<nl></chart>
<unordered_list><list_item>{AT}one</list_item>
<ordered_list><list_item>{AT}two</list_item><list_item>{AT}three</list_item></ordered_list></unordered_list>
<otsl>{AT}<caption>{AT}Table 1</caption><ched>A<ched>B<nl><fcel>1<fcel>2<nl></otsl>
<code>{AT}<_Python_>x = 1
y = 2</code>
<formula>{AT}E = mc^2</formula>
<checkbox_selected>{AT}Paid</checkbox_selected>
<footnote>{AT}At noon.</footnote>
<page_footer>{AT}7</page_footer></doctag>"""
MARKDOWN = """# Of Tides

## Intro

With $a < b$ at P < 3.

Fig. 1

- one
  1. two
  2. three

<table><tr><th>A</th><th>B</th></tr><tr><td>1</td><td>2</td></tr></table>

Table 1

```python
x = 1
y = 2
```

$$
E = mc^2
$$

☑ Paid

At noon."""


@pytest.mark.parametrize("text", [PAGE, PAGE + "<|end_of_text|>", PAGE.removeprefix("<doctag>")])
def test_a_page_becomes_its_markdown(text: str):
    parsed = parse_doctags(text)
    assert blocks_to_markdown(parsed.blocks) == MARKDOWN
    assert parsed.lost == ()
    assert {block.box for block in parsed.blocks} == {Box(0.1, 0.2, 0.5, 1.0)}


def test_figures_have_the_documents_caption_and_their_data():
    figures = [block for block in parse_doctags(PAGE).blocks if block.kind is BlockKind.FIGURE]
    assert [(block.label, block.caption) for block in figures] == [("picture", "Fig. 1"), ("chart", "")]
    assert figures[1].described == "<table><tr><th>Year</th></tr><tr><td>2019</td></tr></table>"


def test_forgotten_ends_and_places_lose_no_words():
    parsed = parse_doctags(f"<text>{AT}one<text>{AT}two</section_header_level_1><text><loc_1>three</text>four")
    assert [block.text for block in parsed.blocks] == ["one", "two", "three", "four"]
    assert parsed.lost == ("text: a box that cannot be read", "text without a place on the page")


def test_words_without_tags_are_markdown():
    parsed = parse_doctags("# A\n\nwords <x>")
    assert blocks_to_markdown(parsed.blocks) == "# A\n\nwords <x>"
    assert len(parsed.lost) == 1
    assert parse_doctags("").lost == ()


def test_a_cut_answer_keeps_all_blocks_before_the_cut():
    whole = parse_doctags(PAGE).blocks
    for end in range(len(PAGE)):
        blocks = parse_doctags(PAGE[:end]).blocks
        assert not any(
            part in block.text for block in blocks for part in ("loc_", "_header", "doct", "<cap", "<fc", "<_")
        )
        same = [
            one for one, other in zip(blocks, whole, strict=False) if (one.text, one.box) == (other.text, other.box)
        ]
        assert len(same) >= len(blocks) - 2  # a figure's or table's caption comes behind it


PARTS = [
    *("<text>", "</text>", "<picture>", "</picture>", "<caption>", "<otsl>", "<fcel>", "<nl>", "<loc_1>"),
    "<list_item>",
]
PARTS += [
    *("<loc_99>", "<ordered_list>", "</ordered_list>", "<inline>", "<formula>", "</formula>", "<_C_>", "<code>"),
    *("<", AT),
]


@given(st.lists(st.sampled_from([*PARTS, "word "]), max_size=40).map("".join))
def test_whatever_is_answered_keeps_its_words(text: str):
    parsed = parse_doctags(text)
    assert sum((block.text + block.described).count("word") for block in parsed.blocks) == text.count("word")


def test_keys_and_values_are_text():
    answer = (
        "<doctag><key_value_region><loc_30><loc_50><loc_430><loc_200><key_0><loc_31><loc_51><loc_60><loc_60>SHIP:<link_2>"
        "</key_0><value_2><loc_82><loc_51><loc_162><loc_61>Dorothea</value_2></key_value_region></doctag>"
    )
    assert blocks_to_markdown(parse_doctags(answer).blocks) == "SHIP:\n\nDorothea"


def test_a_number_in_the_text_of_an_item_is_its_mark():
    item = "<list_item><loc_40><loc_50><loc_400><loc_60>{}</list_item>"
    answer = f"<unordered_list>{item.format('1. Soak')}{item.format('3.5 mm drill')}</unordered_list>"
    assert [block.text for block in parse_doctags(answer).blocks] == ["1. Soak", "- 3.5 mm drill"]


def test_a_caption_above_its_table_precedes_it():
    answer = (
        "<otsl><loc_80><loc_90><loc_420><loc_200><fcel>Vessin<fcel>11<nl>"
        "<caption><loc_80><loc_60><loc_330><loc_76>TABLE 8</caption></otsl>"
    )
    assert [block.kind.value for block in parse_doctags(answer).blocks] == ["caption", "table"]


def test_headings_and_copies_are_read():
    text = f"<doctag><heading>{AT}Intro</heading><text>{AT}Port</text><text>{AT}Port</text></doctag>"
    blocks = parse_doctags(text).blocks
    assert [(block.kind, block.text) for block in blocks] == [(BlockKind.HEADING, "Intro"), (BlockKind.TEXT, "Port")]


def test_marks_and_attributes_of_newer_doctags_are_read():
    text = (
        f'<doctag><heading level="2">{AT}Of water</heading>'
        f"<text><location>{AT}</location>The <bold>wheel</bold> and H<subscript>2</subscript>O.</text></doctag>"
    )
    assert [block.text for block in parse_doctags(text).blocks] == ["Of water", "The **wheel** and H<sub>2</sub>O."]
