"""Pages in HTML with boxes become blocks, whole, cut or broken as they may be."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_ocr.models.parsers import parser_named
from llm_ocr.models.parsers.html_blocks import parse_chandra, parse_chandra1, parse_qwen_html, parse_surya
from llm_ocr.models.profile import NO_FRAME, Parser
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.types import Block, BlockKind, Box

WHOLE = Box(0, 0, 1, 1)
PAGE = """<div data-bbox="50 20 950 40" data-label="Page-Header"><p>Yields</p></div>
<div data-bbox="90 60 910 110" data-label="Section-Header"><h1>Annual <b>Yield</b></h1></div>
<div data-bbox="90 112 910 125" data-label="Section-Header"><h2>1 Methods</h2></div>
<div data-bbox="90 130 910 520" data-label="Figure"><img alt="Bar chart of yield per year"/><p>Four bars ...</p></div>
<div data-bbox="90 525 910 540" data-label="Caption"><p>Figure 1. Yield &amp; year</p></div>
<div data-bbox="90 550 910 600" data-label="Text"><p>We <i>grew</i> it with <math>a < b</math><br>twice.</p>
<p>Then <a href="https://example.org/a">sold</a> it.</p></div>
<div data-bbox="90 605 910 650" data-label="List-Group"><ul><li>oats<ul><li>black</li></ul></li><li>rye</li></ul></div>
<div data-bbox="90 655 910 680" data-label="Equation-Block"><math display="block">y = \\frac{a}{b}</math></div>
<div data-bbox="90 690 910 780" data-label="Table"><table border="1"><thead><tr><th colspan="2">Crop</th></tr></thead>
<tbody><tr><td style="x">oats</td><td>x<sup>2</sup></td></tr></tbody></table></div>
<div data-bbox="90 790 910 820" data-label="Code-Block"><pre><code class="language-python">x = 1
if x &lt; 2:
    y()</code></pre></div>
<div data-bbox="90 830 910 850" data-label="Form"><p>
<input type="checkbox" checked> Paid <input type="checkbox"> Open</p></div>
<div data-bbox="90 955 910 965" data-label="Footnote"><p><sup>1</sup> In tons.</p></div>
<div data-bbox="90 970 910 990" data-label="Page-Footer"><p>7</p></div>"""
MARKDOWN = """# Annual Yield

## 1 Methods

Figure 1. Yield & year

We *grew* it with $a < b$
twice.

Then [sold](https://example.org/a) it.

- oats
  - black
- rye

$$
y = \\frac{a}{b}
$$

<table><tr><th colspan="2">Crop</th></tr><tr><td>oats</td><td>x<sup>2</sup></td></tr></table>

```python
x = 1
if x < 2:
    y()
```

☑ Paid ☐ Open

<sup>1</sup> In tons."""


def div(label: str, inner: str, box: str = "1 1 500 500") -> str:
    return f'<div data-bbox="{box}" data-label="{label}">{inner}</div>'


def only(text: str) -> Block:
    (block,) = parse_chandra(text).blocks
    return block


@pytest.mark.parametrize(
    "text", [PAGE, f"```html\n{PAGE}\n```", f"<html><body>{PAGE}</body></html>", PAGE + "<|im_end|>"]
)
def test_a_page_becomes_its_markdown(text: str):
    for parse in (parse_chandra, parse_surya):
        parsed = parse(text)
        assert blocks_to_markdown(parsed.blocks) == MARKDOWN
        assert parsed.lost == ()


def test_every_label_has_its_kind():
    kinds = [block.kind.value for block in parse_chandra(PAGE).blocks]
    one = ["header", "title", "heading", "figure", "caption", "text", "list_item", "list_item", "list_item"]
    assert kinds == [*one, "formula", "table", "code", "text", "footnote", "footer"]


def test_boxes_are_relative_to_1000_or_in_chandra_1_to_1024():
    assert only(div("Text", "a", "100 200 300 400")).box == Box(0.1, 0.2, 0.3, 0.4)
    for box in ("[0, 256, 512, 1024]", "0 256 512 1024", "0,256,512,1024"):
        assert parse_chandra1(div("Text", "a", box)).blocks[0].box == Box(0, 0.25, 0.5, 1)


def test_attributes_may_come_in_any_order_and_quotes():
    assert only("<DIV data-label='Text' data-bbox='0 0 500 500' class=x>a</DIV>").box == Box(0, 0, 0.5, 0.5)


def test_figure_keeps_the_model_description_out_of_the_page():
    figure = parse_chandra(PAGE).blocks[3]
    assert figure.described == "Bar chart of yield per year\n\nFour bars ..."
    assert (figure.text, figure.caption, figure.label) == ("", "Figure 1. Yield & year", "Figure")
    assert "Four bars" not in blocks_to_markdown(parse_chandra(PAGE).blocks)


@pytest.mark.parametrize("label", ["Image", "Figure", "Diagram", "Chemical-Block"])
def test_charts_and_diagrams_keep_their_data(label: str):
    inner = (
        '<img alt="Sales"><table><tr><th>Year</th></tr><tr><td>2019</td></tr></table>'
        '<pre class="mermaid">graph TD\n  A --> B</pre><p><chem>C1=CC=CC=C1</chem></p>'
    )
    block = only(div(label, inner))
    assert block.kind is BlockKind.FIGURE
    assert block.described == (
        "Sales\n\n<table><tr><th>Year</th></tr><tr><td>2019</td></tr></table>\n\n"
        "```mermaid\ngraph TD\n  A --> B\n```\n\n`C1=CC=CC=C1`"
    )


@pytest.mark.parametrize(
    ("inner", "kinds", "markdown"),
    [
        (
            '<img alt="Photograph of a toll house"/><table><tr><td>Cart</td><td>2 pence</td></tr></table>',
            ["figure", "table"],
            "<table><tr><td>Cart</td><td>2 pence</td></tr></table>",
        ),
        ('<img alt="Sketch of a weir"/><h2>4. Levels</h2>', ["figure", "heading"], "## 4. Levels"),
        ('<h2>4. Levels</h2><img alt="Sketch of a weir"/>', ["heading", "figure"], "## 4. Levels"),
        (
            '<img alt="Map."/><p><b>FIGURE 2 | Points.</b> A to C.</p>',
            ["figure", "caption"],
            "**FIGURE 2 | Points.** A to C.",
        ),
        ('<img alt="Bar chart"/><table><tr><td>May</td></tr></table>', ["figure"], ""),
    ],
)
def test_what_is_printed_inside_a_figure_stays_on_the_page(inner: str, kinds: list[str], markdown: str):
    blocks = parse_chandra(div("Image", inner)).blocks
    assert [block.kind.value for block in blocks] == kinds
    assert blocks_to_markdown(blocks) == markdown
    assert next(block for block in blocks if block.kind is BlockKind.FIGURE).described


def test_containers_of_qwen_keep_their_contents():
    blocks = parse_qwen_html(
        '<body data-bbox="0 0 999 998"><div data-bbox="0 0 999 998"><section data-bbox="60 40 940 90">'
        '<h1 data-bbox="60 40 940 90">Locks</h1></section><section data-bbox="60 120 940 700">'
        '<div class="image" data-bbox="200 130 800 480"><img data-bbox="200 130 800 480"/></div>'
        '<p data-bbox="60 520 940 600">The gate is of oak.</p></section></div></body>'
    ).blocks
    assert [(block.kind.value, block.box.y0, block.box.y1) for block in blocks] == [
        ("title", 0.04, 0.09),
        ("figure", 0.13, 0.48),
        ("text", 0.52, 0.6),
    ]


def test_a_description_that_stands_there_twice_is_kept_once():
    assert only(div("Image", '<img alt="A heron"><p>A heron</p>')).described == "A heron"


@pytest.mark.parametrize("alt", ["A > B", 'A "big" heron', "An arrow -> here"])
def test_a_description_that_was_cut_stays_whatever_it_holds(alt: str):
    quote = "'" if '"' in alt else '"'
    assert only(f'<div data-bbox="1 1 9 9" data-label="Image"><img alt={quote}{alt}').described == alt


def test_figure_without_box_is_named_as_lost_and_words_are_kept():
    parsed = parse_chandra(div("Image", '<img alt="A heron">', "1 2") + div("Image", "", "") + div("Text", "a"))
    assert [(block.kind, block.text) for block in parsed.blocks] == [
        (BlockKind.TEXT, "A heron"),
        (BlockKind.TEXT, "a"),
    ]
    assert parsed.lost == ("Image: cannot be cut out without a box",) * 2


def test_a_blank_page_has_no_blocks():
    parsed = parse_chandra(div("Blank-Page", "", "0 0 1000 1000"))
    assert (parsed.blocks, parsed.lost) == ((), ())
    assert parse_chandra("").blocks == ()


@pytest.mark.parametrize("label", ["Bibliography", "List-Group", "Table-Of-Contents"])
def test_each_paragraph_of_a_list_is_an_entry(label: str):
    blocks = parse_chandra(div(label, "<p>[1] One</p><p>[2] Two</p>")).blocks
    assert [(block.kind, block.text) for block in blocks] == [
        (BlockKind.LIST_ITEM, "[1] One"),
        (BlockKind.LIST_ITEM, "[2] Two"),
    ]


def test_a_table_of_contents_may_be_a_table():
    assert only(div("Table-Of-Contents", "<table><tr><td>One</td><td>3</td></tr></table>")).kind is BlockKind.TABLE


def test_a_complex_block_falls_into_its_parts():
    inner = "<h3>Part</h3><p>Words</p><table><tr><td>a</td></tr></table><ol><li>x</li><li>y</li></ol>"
    blocks = parse_chandra(div("Complex-Block", inner)).blocks
    assert [(block.kind.value, block.text) for block in blocks] == [
        ("heading", "Part"),
        ("text", "Words"),
        ("table", "<table><tr><td>a</td></tr></table>"),
        ("list_item", "1. x"),
        ("list_item", "2. y"),
    ]
    assert {block.box for block in blocks} == {Box(0.001, 0.001, 0.5, 0.5)}


def test_a_form_keeps_its_boxes_and_values():
    inner = (
        '<p>Name: <input type="text" value="Ada"> <input type="radio" checked="true"> yes <input type="radio"> no</p>'
    )
    assert only(div("Form", inner)).text == "Name: Ada ☑ yes ☐ no"


def test_an_equation_is_set_apart_however_it_is_marked():
    for inner in ("<math>x</math>", "<p><math>x</math></p>", '<math display="block">$$x$$</math>', "x"):
        assert only(div("Equation-Block", inner)).text == "$$\nx\n$$"


def test_words_around_a_table_are_text():
    blocks = parse_chandra(div("Table", "<p>Note</p><table><tr><td>a</td></tr></table>")).blocks
    assert [block.kind for block in blocks] == [BlockKind.TEXT, BlockKind.TABLE]


def test_an_empty_table_is_named():
    assert parse_chandra(div("Table", "") + div("Text", "a")).lost == ("Table: no text",)


def test_unreadable_box_loses_the_box_and_not_the_text():
    for box in ("1 2 3", "", "a b c d", "5 5 5 5", "1 2 3 4 5", "1" * 9000):
        parsed = parse_chandra(div("Text", "All is kept.", box) + div("Text", "Next."))
        assert [(block.text, block.box == WHOLE) for block in parsed.blocks] == [
            ("All is kept.", True),
            ("Next.", False),
        ]
        assert parsed.lost == ("Text: a box that cannot be read",)


def test_a_table_without_a_place_takes_no_captions():
    figure, table = div("Figure", "", "1 1 500 400"), div("Table", "<table><tr><td>a</td></tr></table>", "")
    assert parse_chandra(figure + div("Caption", "Fig. 1", "1 410 500 420") + table).blocks[0].caption == "Fig. 1"


def test_text_outside_of_blocks_is_kept_in_order_and_named():
    parsed = parse_chandra(f"Before {div('Text', 'Within')} between {div('Text', 'Last')} after")
    assert [block.text for block in parsed.blocks] == ["Before", "Within", "between", "Last", "after"]
    assert len(parsed.lost) == 1


@pytest.mark.parametrize("text", ["# A\n\nwords", "<h1>A</h1><p>words</p>"])
def test_an_answer_without_blocks_is_read_all_the_same(text: str):
    parsed = parse_chandra(text)
    assert blocks_to_markdown(parsed.blocks) == "# A\n\nwords"
    assert len(parsed.lost) == 1


def test_blocks_whose_ends_were_forgotten_are_told_apart():
    text = div("Text", "One")[: -len("</div>")] + div("Text", "<p>Two")[: -len("</div>")] + div("Text", "Three")
    assert [block.text for block in parse_chandra(text).blocks] == ["One", "Two", "Three"]


def test_a_block_within_a_block_is_one_of_its_own():
    text = div("Complex-Block", f"<div>a</div>{div('Text', 'b', '2 2 9 9')}<p>c</p>") + div("Text", "d")
    assert [block.text for block in parse_chandra(text).blocks] == ["a\n\nc", "b", "d"]


# --- Qwen-VL

QWEN = """<html><body>
<h1 data-bbox="100 50 900 90">Tides</h1>
<p data-bbox="100 100 900 150">The <b>gauge</b> stood here.</p>
<div class="image caption" data-bbox="120 200 880 560"><img data-bbox="120 200 880 560" alt="A gauge"/>
<p data-bbox="120 565 880 580">Figure 1: the gauge</p></div>
<div class="chart" data-bbox="120 600 880 700"><table><tr><td>1</td></tr></table></div>
<div class="formula" data-bbox="120 710 880 740"><img data-bbox="120 710 880 740"/><div>h = a \\cos t</div></div>
<ol data-bbox="120 750 880 780"><li data-bbox="120 750 880 760">one</li><li>two</li></ol>
<table data-bbox="120 790 880 850" class="table"><tr><td>a</td></tr></table>
<img data-bbox="120 860 880 900" alt="A stamp">
</body></html>"""


def test_qwens_html_has_kinds_boxes_descriptions_and_captions():
    parsed = parse_qwen_html(f"```html\n{QWEN}\n```")
    assert [(block.kind.value, block.text, block.described, block.caption) for block in parsed.blocks] == [
        ("title", "Tides", "", ""),
        ("text", "The **gauge** stood here.", "", ""),
        ("figure", "", "A gauge", "Figure 1: the gauge"),
        ("caption", "Figure 1: the gauge", "", ""),
        ("figure", "", "<table><tr><td>1</td></tr></table>", ""),
        ("formula", "$$\nh = a \\cos t\n$$", "", ""),
        ("list_item", "1. one", "", ""),
        ("list_item", "2. two", "", ""),
        ("table", "<table><tr><td>a</td></tr></table>", "", ""),
        ("figure", "", "A stamp", ""),
    ]
    assert parsed.lost == ()
    assert parsed.blocks[1].box == Box(0.1, 0.1, 0.9, 0.15)


@pytest.mark.parametrize("text", [QWEN, div("Image", '<img alt="A gauge"/>') + div("Text", "Words")])
def test_the_parser_of_any_html_with_boxes_keeps_them(text: str):
    parsed = parser_named("html-blocks")(text, NO_FRAME)
    assert any(block.kind is BlockKind.FIGURE and block.box != WHOLE for block in parsed.blocks)
    assert all(block.box != WHOLE for block in parsed.blocks)


# --- cut answers and anything else

PARSERS = (parse_chandra, parse_chandra1, parse_surya, parse_qwen_html)


#: The blocks of the page in short answers: a cut at each place of a long one takes long.
BLOCKS = re.split(r"\n(?=<div )", PAGE)
GROUPS = [(parse_chandra, "\n".join(BLOCKS[at : at + 4])) for at in range(0, len(BLOCKS), 4)]


@pytest.mark.parametrize(("parse", "page"), [*GROUPS, (parse_qwen_html, QWEN)])
def test_a_cut_answer_keeps_its_blocks_and_shows_no_tag(parse: Parser, page: str):
    whole, complete = parse(page, NO_FRAME).blocks, ()
    for end in range(len(page)):
        blocks = parse(page[:end], NO_FRAME).blocks
        if page[:end].endswith("</div>"):
            complete = blocks
        for block, expected in zip(blocks, complete, strict=False):
            assert (block.kind, block.box, block.text, block.described) == (
                *(expected.kind, expected.box, expected.text, expected.described),
            ), end
        assert len(complete) <= len(blocks) <= len(whole)
        shown = blocks_to_markdown(blocks)
        assert not any(part in shown for part in ("data-", "<div", "</di", "<math", "<im", "<h1", "class=")), end


TAGS = (
    "<div>", "</div>", '<div data-bbox="1 2 30 40" data-label="Text">', '<div data-label="Image">', "<p>", "</p>",
    "<td>", "<table>", "</table>", "<tr>", "<ul>", "<li>", "</ul>", "<b>", "</b>", "<pre>", "</pre>", "<h1>", "<br>",
    '<img alt="a heron">', "<input type=checkbox>", "<code>", "</code>", '<p data-bbox="1 2 30 40" class="image">',
    "<sup>", "<caption>", "<ol>", "<chem>",
)  # fmt: skip
words = st.text(alphabet=st.characters(whitelist_categories=["L", "N"]), min_size=1, max_size=30)
tags = st.sampled_from(TAGS)


@given(
    st.lists(tags, max_size=12),
    words,
    st.lists(tags, max_size=12),
    st.sampled_from(["Text", "Table", "Image", "Caption"]),
)
def test_words_are_never_lost_among_tags(before: list[str], said: str, behind: list[str], label: str):
    for text in (f"{''.join(before)}{said}{''.join(behind)}", div(label, f"{''.join(before)}{said}{''.join(behind)}")):
        for parse in PARSERS:
            shown = "\n".join(block.text + block.described for block in parse(text).blocks)
            assert said in shown


def test_a_label_over_two_lines_is_one_line():
    parsed = parse_chandra('<div data-bbox="1 2 3" data-label="Te\r\nxt">words</div>')
    assert parsed.lost == ("Te xt: a box that cannot be read",)


def test_copy_of_a_block_is_left_out_but_equal_items_stay():
    block = '<div data-bbox="90 130 910 520" data-label="List-Group"><ul><li>none</li><li>none</li></ul></div>'
    parsed = parse_chandra(block * 2)
    assert [block.text for block in parsed.blocks] == ["- none", "- none"]
    assert parsed.lost == ("1 blocks that repeat another were left out",)


def test_formulas_with_numbers_and_prose_are_apart():
    block = '<div data-bbox="100 100 900 200" data-label="Equation-Block">{}</div>'
    math = '<math display="block">{}</math>'
    two = block.format(f"{math.format('a = b')} (2.1)<br>{math.format('c = d')} (2.2)")
    assert [one.text for one in parse_chandra(two).blocks] == ["$$\na = b\n$$", "(2.1)", "$$\nc = d\n$$", "(2.2)"]
    prose = block.format(f"{math.format('p = q')} (6) where <math>q</math> is the flow")
    assert [one.kind.value for one in parse_chandra(prose).blocks] == ["formula", "text"]
    numbered = block.format(f"{math.format('a = b')} (3)")
    assert [one.kind.value for one in parse_chandra(numbered).blocks] == ["formula"]


def test_layout_in_json_instead_of_html_is_read():
    answer = '```json\n[{"bbox_2d": [100, 50, 900, 90], "label": "title", "text_content": "Mill rules"}]\n```'
    [block] = parse_qwen_html(answer).blocks
    assert (block.text, block.box) == ("Mill rules", Box(0.1, 0.05, 0.9, 0.09))
