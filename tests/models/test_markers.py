"""Answers with markers become the blocks that the page shows."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from llm_ocr.models.parsers.markdown import parse_lighton2, parse_ovis, parse_qwen_markdown
from llm_ocr.models.parsers.markers import (
    mineru_regions,
    parse_lighton3,
    parse_mineru_layout,
    parse_nemotron,
    parse_unlimited,
    region_turn,
    with_dollars,
)
from llm_ocr.models.profile import NO_FRAME, Frame, Parsed
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.types import Block, BlockKind, Box

WHOLE = Box(0, 0, 1, 1)
CANVAS = Frame(1664, 2048)

LIGHTON3 = """![title](112,64,880,101) Soil Moisture in Upland Plots
![text](112,130,486,420) We sampled twelve plots between April and
![image](520,132,884,402) Map of the valley with twelve numbered dots
![caption](520,410,884,436) Figure 1: plot locations
![table](112,470,884,640) <table><tr><th>Plot</th><th>pH</th></tr><tr><td>A</td><td>6.1</td></tr></table>
![text+](112,660,884,720) October, and dried all samples.
![formula](112,730,884,760) w = m_1 - m_2
![list](112,770,884,820)
- weighed
- sieved
![page_number](490,960,510,972) 7
"""
MARKDOWN = """# Soil Moisture in Upland Plots

We sampled twelve plots between April and October, and dried all samples.

Figure 1: plot locations

<table><tr><th>Plot</th><th>pH</th></tr><tr><td>A</td><td>6.1</td></tr></table>

$$
w = m_1 - m_2
$$

- weighed
- sieved"""

UNLIMITED = """<|det|>title [80, 60, 700, 95]<|/det|># Notice
<|det|>text [80, 100, 900, 115]<|/det|>The gate closes at dusk.
<|det|>image [80, 120, 900, 500]<|/det|>
<|det|>image_caption [80, 510, 900, 530]<|/det|>Fig. 1 The gate
"""
MINERU = """<|box_start|>100 080 900 120<|box_end|><|ref_start|>title<|ref_end|><|rotate_up|>
<|box_start|>100 150 480 560<|box_end|><|ref_start|>text<|ref_end|><|rotate_up|>
<|box_start|>100 600 480 900<|box_end|><|ref_start|>image<|ref_end|><|rotate_up|>
<|box_start|>520 150 900 560<|box_end|><|ref_start|>text<|ref_end|><|rotate_up|>txt_contd_tgt
"""
NEMOTRON = (
    "<x_0.1><y_0.05>## Heights<x_0.9><y_0.1><class_Section-header>\n"
    "<x_0.1><y_0.12>Two gauges stood there.<x_0.9><y_0.2><class_Text>\n"
    "<x_0.1><y_0.25><x_0.9><y_0.5><class_Picture>\n"
    "<x_0.1><y_0.51>Fig. 2 Gauges<x_0.9><y_0.55><class_Caption>\n"
    "<x_0.1><y_0.6>\\begin{tabular}{lr}\\hline Place & m \\\\ Quay & 1.2 \\\\ \\end{tabular}"
    "<x_0.9><y_0.8><class_Table>\n"
)
QWEN = """# Tides

<!-- Image (120, 200, 880, 560) -->

The gauge stood at the quay.

<!-- Table (100, 600, 900, 800) -->
\\begin{tabular}{lr}
Place & m \\\\
Quay & 1.2 \\\\
\\end{tabular}
"""
LIGHTON2 = "Results were stable.\n\n![image](image_0.png)105,233,871,540\n\n*Fig. 2* Flow over time."


def marker(label: str, text: str, box: str = "1,1,9,9") -> str:
    return f"![{label}]({box}) {text}\n"


def numbers(block: Block) -> tuple[float, ...]:
    box = block.box
    return tuple(round(number, 4) for number in (box.x0, box.y0, box.x1, box.y1))


def kinds(parsed: Parsed) -> list[str]:
    return [block.kind.value for block in parsed.blocks]


# LightOnOCR-3


def test_a_page_of_lighton3_becomes_its_markdown():
    parsed = parse_lighton3(LIGHTON3)
    assert blocks_to_markdown(parsed.blocks) == MARKDOWN
    assert parsed.lost == ()
    assert parse_lighton3(LIGHTON3.replace("\n", "\r\n") + "<|im_end|>") == parsed


def test_boxes_of_lighton3_are_relative_to_1000():
    assert numbers(parse_lighton3(marker("text", "x", " 100, 250,500,1000 ")).blocks[0]) == (0.1, 0.25, 0.5, 1)


def test_text_that_goes_on_is_one_block_with_both_boxes():
    text = next(block for block in parse_lighton3(LIGHTON3).blocks if block.kind is BlockKind.TEXT)
    assert [box.y0 for box in (text.box, *text.continued)] == [0.13, 0.66]


@pytest.mark.parametrize(
    ("first", "second", "whole"),
    [
        ("two", "words", "two words"),
        ("a hy-", "phen", "a hyphen"),
        ("a hy\u00ad", "phen", "a hyphen"),
        ("Baden-", "Baden", "Baden- Baden"),
        ("1990-", "2000", "1990- 2000"),
        ("合同", "双方", "合同双方"),
        ("계약", "당사자", "계약 당사자"),
        ("words", "- item", "words\n\n- item"),
    ],
)
def test_words_meet_at_the_seam_as_they_would_in_a_line(first: str, second: str, whole: str):
    assert blocks_to_markdown(parse_lighton3(marker("text", first) + marker("text+", second)).blocks) == whole


def test_a_table_that_goes_on_is_one_table():
    rows = [f"<tr><td>{number}</td></tr>" for number in range(3)]
    answer = "".join(marker("table+" if at else "table", f"<table>{row}</table>") for at, row in enumerate(rows))
    (table,) = parse_lighton3(answer).blocks
    assert table.text == f"<table>{''.join(rows)}</table>"
    assert len(table.continued) == 2


def test_nothing_goes_on_behind_a_heading_or_from_nowhere():
    answer = marker("text+", "from the page before") + marker("section", "New") + marker("text+", "words")
    assert kinds(parse_lighton3(answer)) == ["text", "heading", "text"]


def test_figure_has_model_description_and_document_caption():
    figure = next(block for block in parse_lighton3(LIGHTON3).blocks if block.kind is BlockKind.FIGURE)
    assert (figure.label, figure.text) == ("image", "")
    assert figure.described == "Map of the valley with twelve numbered dots"
    assert figure.caption == "Figure 1: plot locations"


def test_chart_is_a_figure_and_its_points_no_document_table():
    table = "<table><tr><th>Year</th><th>t</th></tr><tr><td>2001</td><td>4|5</td></tr></table>"
    parsed = parse_lighton3(marker("chart", f"Yield\n{table}"))
    (chart,) = parsed.blocks
    assert (chart.kind, chart.label, chart.text) == (BlockKind.FIGURE, "chart", "")
    rows = "| Year | t |\n| --- | --- |\n| 2001 | 4\\|5 |"
    assert chart.described == f"Yield\n\n{rows}\n\nThe values are estimates by the model."


def test_a_chart_without_points_is_not_called_an_estimate():
    assert parse_lighton3(marker("chart", "A pie.")).blocks[0].described == "A pie."


def test_furniture_stays_in_the_layout_and_out_of_the_text():
    parsed = parse_lighton3(marker("header", "Soil") + marker("text", "x") + marker("footer", "Vol. 3"))
    assert kinds(parsed) == ["header", "text", "footer"]
    assert blocks_to_markdown(parsed.blocks) == "x"


def test_links_of_the_page_are_no_markers():
    text = "See ![photo](a.png) and ![Plan](2) there."
    (block,) = parse_lighton3(marker("text", text)).blocks
    assert block.text == text


@pytest.mark.parametrize("box", ["1,2,3", "5,5,5,5", "1,2,3,4,5", "", "1,,2,3", "9999999999,1,2,3"])
def test_unreadable_box_loses_the_box_and_not_the_text(box: str):
    parsed = parse_lighton3(marker("text", "All is kept.", box) + marker("text", "Next."))
    assert [block.text for block in parsed.blocks] == ["All is kept.", "Next."]
    assert parsed.blocks[0].box == WHOLE
    assert parsed.lost == ("text: a box that cannot be read",)


def test_a_figure_without_a_box_keeps_its_words():
    parsed = parse_lighton3(marker("image", "A heron", "1,2,3") + marker("text", "x"))
    assert [(block.kind, block.label, block.text) for block in parsed.blocks] == [
        (BlockKind.TEXT, "image", "A heron"),
        (BlockKind.TEXT, "text", "x"),
    ]
    assert "image: cannot be cut out without a box" in parsed.lost


def test_text_before_the_first_marker_is_kept_and_named():
    parsed = parse_lighton3("# Head\n" + marker("text", "x"))
    assert blocks_to_markdown(parsed.blocks) == "# Head\n\nx"
    assert parsed.lost == ("text without a marker: its place on the page is not known",)


def test_an_answer_without_markers_is_markdown():
    parsed = parse_lighton3("# Head\n\nIt is \\$x\\$.\n\n| a | b |\n|---|---|\n| 1 | 2 |")
    assert kinds(parsed) == ["title", "text", "table"]
    assert parsed.blocks[1].text == "It is $x$."
    assert parsed.lost == ()


@pytest.mark.parametrize(
    ("escaped", "plain"),
    [
        (r"so \$x\$ is", "so $x$ is"),
        (r"\$a + b\$, \$c\$", "$a + b$, $c$"),
        (r"\$ \alpha \$", r"$ \alpha $"),
        (r"\$\$x\$\$", "$$x$$"),
        (r"between \$5 and \$6", r"between \$5 and \$6"),
        (r"\$5/\$6", r"\$5/\$6"),
        (r"it costs \$5", r"it costs \$5"),
        ("\\$a\nb\\$", "\\$a\nb\\$"),
        (r"\$5 or \$x\$", r"\$5 or $x$"),
    ],
)
def test_formulas_get_their_dollars_back_and_money_keeps_its_own(escaped: str, plain: str):
    assert with_dollars(escaped) == plain


def test_formulas_get_them_in_any_text_but_a_program():
    assert parse_lighton3(marker("text", "It is \\$x\\$.")).blocks[0].text == "It is $x$."
    assert parse_lighton3(marker("code", "echo \\$x\\$")).blocks[0].text == "echo \\$x\\$"


# LightOnOCR-2


def test_figures_of_lighton2_stand_between_the_text():
    parsed = parse_lighton2(LIGHTON2)
    assert kinds(parsed) == ["text", "figure", "text"]
    assert numbers(parsed.blocks[1]) == (0.105, 0.233, 0.871, 0.54)
    assert parsed.blocks[1].label == "image"
    assert parsed.lost == ()
    assert parse_lighton2(LIGHTON2.replace(".png)105", ".png) 105")) == parsed


def test_a_figure_within_a_table_or_a_list_breaks_neither():
    parsed = parse_lighton2("| a ![image](image_0.png)1,2,30,40 |\n|---|\n| b |\n\n- c ![image](i.png)1,2,30,40\n- d")
    assert kinds(parsed) == ["table", "figure", "list_item", "figure", "list_item"]
    assert parsed.blocks[0].text == "| a  |\n|---|\n| b |"


def test_weights_without_boxes_leave_no_broken_links():
    parsed = parse_lighton2("Before\n\n![image](image_0.png)\n\nafter, with ![Plan](plan.png)")
    assert blocks_to_markdown(parsed.blocks) == "Before\n\nafter, with\n\nPlan"
    assert parsed.lost == ()


def test_a_page_that_is_nothing_but_a_figure_is_this_figure():
    (block,) = parse_lighton2("![image](image_0.png)").blocks
    assert (block.kind, block.box) == (BlockKind.FIGURE, WHOLE)


@pytest.mark.parametrize("numbers", ["105,233", "105,233,871,540,7", "5,5,5,5", "105,"])
def test_numbers_that_are_no_box_are_no_text_either(numbers: str):
    parsed = parse_lighton2(f"Before ![image](image_0.png){numbers} after")
    assert blocks_to_markdown(parsed.blocks).split() == ["Before", "after"]
    assert parsed.lost == ("image: a box that cannot be read",)


def test_numbers_of_the_page_behind_a_figure_stay():
    parsed = parse_lighton2("![image](image_0.png) 2024 was dry, with 1,200 fires")
    assert blocks_to_markdown(parsed.blocks) == "2024 was dry, with 1,200 fires"


def test_programs_are_shown_as_they_were_written():
    text = "```md\nx\n![image](a.png)1,2,30,40\n```\n\nend"
    assert parse_lighton2(f"words\n\n{text}").blocks[1].text == text.removesuffix("\n\nend")


# Qwen-VL


def test_comments_of_qwen_place_figures_and_tables():
    parsed = parse_qwen_markdown(QWEN)
    assert kinds(parsed) == ["title", "figure", "text", "table"]
    assert numbers(parsed.blocks[1]) == (0.12, 0.2, 0.88, 0.56)
    assert numbers(parsed.blocks[3]) == (0.1, 0.6, 0.9, 0.8)
    assert parsed.blocks[3].text == "<table><tr><td>Place</td><td>m</td></tr><tr><td>Quay</td><td>1.2</td></tr></table>"
    assert parsed.lost == ()


@pytest.mark.parametrize("table", ["<table><tr><td>1</td></tr></table>", "| a |\n|---|\n| 1 |"])
def test_tables_in_other_notations_get_their_place_too(table: str):
    parsed = parse_qwen_markdown(f"<!-- Table (100, 600, 900, 800) -->\nTable 1: Heights\n\n{table}\n\nwords")
    assert [(block.kind.value, block.box.y0) for block in parsed.blocks] == [("text", 0), ("table", 0.6), ("text", 0)]


def test_a_comment_without_its_table_or_box_is_named():
    parsed = parse_qwen_markdown("<!-- Table (1, 2, 3, 4) -->\n\n<!-- Image (1, 2) -->\n\nwords")
    assert [block.text for block in parsed.blocks] == ["words"]
    assert set(parsed.lost) == {"Table: no text", "Image: a box that cannot be read"}


# Unlimited-OCR


@pytest.mark.parametrize("answer", [UNLIMITED, UNLIMITED.replace("<|det|>", "").replace("<|/det|>", "")])
def test_a_page_of_unlimited_with_or_without_special_tokens(answer: str):
    parsed = parse_unlimited(answer)
    assert kinds(parsed) == ["title", "text", "figure", "caption"]
    assert blocks_to_markdown(parsed.blocks) == "# Notice\n\nThe gate closes at dusk.\n\nFig. 1 The gate"
    assert numbers(parsed.blocks[2]) == (0.08, 0.12, 0.9, 0.5)
    assert parsed.blocks[2].caption == "Fig. 1 The gate"
    assert parsed.lost == ()


def test_no_token_of_unlimited_comes_to_the_text():
    parsed = parse_unlimited("<|det|>text [1, 2]<|/det|>All\n<|det|> is kept <|/det|>\n<|det|>text [1, 2, 30, 40] here")
    assert blocks_to_markdown(parsed.blocks).split() == ["All", "is", "kept", "here"]
    assert parsed.lost == ("text: a box that cannot be read",)


def test_lines_of_the_page_that_look_like_bare_markers_stay():
    text = "smith [1, 2, 3, 4] and others\ntext [12] says so"
    assert blocks_to_markdown(parse_unlimited(text).blocks) == text


# MinerU


def test_the_layout_of_mineru_has_kinds_boxes_and_no_text():
    parsed = parse_mineru_layout(MINERU)
    assert kinds(parsed) == ["title", "text", "figure"]
    assert [block.text for block in parsed.blocks] == ["", "", ""]
    assert numbers(parsed.blocks[0]) == (0.1, 0.08, 0.9, 0.12)
    assert [box.x0 for box in parsed.blocks[1].continued] == [0.52]
    assert parsed.lost == ()


@pytest.mark.parametrize(("token", "turn"), [("up", 0), ("right", 270), ("down", 180), ("left", 90)])
def test_a_region_tells_how_it_must_be_turned_to_be_upright(token: str, turn: int):
    answer = MINERU.replace("rotate_up", f"rotate_{token}")
    regions, _ = mineru_regions(answer)
    assert [region_turn(region) for region in regions] == [turn] * 4
    notes = parse_mineru_layout(answer).notes
    assert notes is not None
    assert (notes.is_rotation_valid, notes.rotation_correction) == (turn == 0, turn)


def test_one_turned_table_does_not_turn_the_page():
    answer = MINERU + "<|box_start|>1 2 3 4<|box_end|><|ref_start|>table<|ref_end|><|rotate_left|>\n"
    assert parse_mineru_layout(answer).notes is None


def test_regions_that_repeat_are_left_out_and_named():
    parsed = parse_mineru_layout(MINERU + MINERU)
    assert len(parsed.blocks) == 3
    assert parsed.lost == ("4 regions that repeat another were left out",)


def test_what_mineru_does_not_know_is_a_figure():
    (block,) = parse_mineru_layout("<|box_start|>1 2 3 4<|box_end|><|ref_start|>unknown<|ref_end|>").blocks
    assert (block.kind, block.label) == (BlockKind.FIGURE, "image")


def test_an_answer_without_a_layout_is_named():
    assert parse_mineru_layout("Just words.").lost == ("no layout in the answer",)


# Nemotron Parse


def test_a_page_of_nemotron_becomes_its_markdown():
    parsed = parse_nemotron(NEMOTRON, CANVAS)
    assert kinds(parsed) == ["heading", "text", "figure", "caption", "table"]
    table = "<table><tr><td>Place</td><td>m</td></tr><tr><td>Quay</td><td>1.2</td></tr></table>"
    expected = f"## Heights\n\nTwo gauges stood there.\n\nFig. 2 Gauges\n\n{table}"
    assert blocks_to_markdown(parsed.blocks) == expected
    assert parsed.blocks[2].caption == "Fig. 2 Gauges"
    assert parsed.lost == ()


def test_the_margins_of_the_canvas_are_taken_off():
    answer = "<x_0.25><y_0.0>a<x_0.75><y_1.0><class_Text>"
    assert numbers(parse_nemotron(answer, CANVAS).blocks[0]) == (0.25, 0, 0.75, 1)
    assert numbers(parse_nemotron(answer, Frame(832, 2048)).blocks[0]) == (0, 0, 1, 1)


def test_without_the_size_of_the_image_the_text_stays():
    parsed = parse_nemotron(NEMOTRON, NO_FRAME)
    assert "Two gauges stood there." in blocks_to_markdown(parsed.blocks)
    assert len(parsed.lost) > 3


def test_a_table_that_is_not_simple_is_shown_as_code():
    source = "\\begin{tabular}{l}\\begin{tikzpicture}\\end{tikzpicture} & b \\\\ \\end{tabular}"
    (block,) = parse_nemotron(f"<x_0.1><y_0.1>{source}<x_0.9><y_0.2><class_Table>", CANVAS).blocks
    assert (block.kind, block.label) == (BlockKind.CODE, "Table")
    assert blocks_to_markdown([block]) == f"```latex\n{source}\n```"


def test_broken_corners_lose_the_place_and_not_the_text():
    no_end = "<x_0.1><y_0.1>one <x_0.1><y_0.2>two<x_0.9><y_0.3><class_Text>"
    no_start = "three<x_0.9><y_0.3><class_Text>four"
    no_class = "<x_0.1><y_0.1>five<x_0.9><y_0.2>\n<x_0.1><y_0.3>six<x_0.9><y_0.4><class_Text>"
    assert blocks_to_markdown(parse_nemotron(no_end, CANVAS).blocks).split() == ["one", "two"]
    assert blocks_to_markdown(parse_nemotron(no_start, CANVAS).blocks).split() == ["three", "four"]
    assert [numbers(block)[1] for block in parse_nemotron(no_class, CANVAS).blocks] == [0.1, 0.3]


# OvisOCR2

OVIS = """# Tides

The gauge rose.

<img src="images/bbox_105_233_480_560.jpg" />

Figure 1: The quay

<table><tr><td>North</td></tr></table>"""


def test_image_tags_of_ovis_become_figures_with_boxes():
    blocks = parse_ovis(OVIS).blocks
    assert [block.kind.value for block in blocks] == ["title", "text", "figure", "text", "table"]
    assert blocks[2].box == Box(0.105, 0.233, 0.48, 0.56)


@pytest.mark.parametrize("numbers", ["1_2_3", "5_5_5_5", "", "1_2_3_4_5", "---_"])
def test_an_image_tag_of_ovis_without_a_box_is_lost_and_said(numbers: str):
    parsed = parse_ovis(f'Before <img src="images/bbox_{numbers}.jpg" /> after')
    assert blocks_to_markdown(parsed.blocks).split() == ["Before", "after"]
    assert parsed.lost == ("image: a box that cannot be read",)


# All of them

ANSWERS = [
    (parse_lighton3, LIGHTON3),
    (parse_lighton2, LIGHTON2),
    (parse_ovis, OVIS),
    (parse_qwen_markdown, QWEN),
    (parse_unlimited, UNLIMITED),
    (parse_nemotron, NEMOTRON),
]
MARKS = ("<|", "|>", "![", "<!", "<x_", "<y_", "<class", "det|", "](", "box_", "<im")


@pytest.mark.parametrize(("parse", "answer"), ANSWERS)
def test_a_cut_answer_shows_no_part_of_a_marker(parse: Callable[[str, Frame], Parsed], answer: str):
    for end in range(len(answer)):
        blocks = parse(answer[:end], CANVAS).blocks
        markdown = blocks_to_markdown(blocks) + "".join(block.described for block in blocks)
        assert not any(mark in markdown for mark in MARKS), end


def test_a_cut_answer_of_qwen_keeps_all_text_before_the_cut():
    shown = [blocks_to_markdown(parse_qwen_markdown(QWEN[:end]).blocks) for end in range(len(QWEN))]
    letters = [sum(map(str.isalnum, text)) for text in shown]
    slack = len("tdtrtable" * 2 + "begintabular") + 4  # commands that were cut within may vanish
    assert all(after >= before - slack for before, after in pairwise(letters))


@pytest.mark.parametrize(
    "answer",
    [
        "<|ref|>title<|/ref|><|det|>[[80, 60, 900, 100]]<|/det|>\n# Buoys\n\n"
        "<|ref|>text<|/ref|><|det|>[[80, 130, 900, 220]]<|/det|>\nOne was moved.",
        "title [80, 60, 900, 100]<|/det|># Buoys\n<|det|>text [80, 130, 900, 220]<|/det|>One was moved.",
    ],
)
def test_all_forms_of_unlimited_markers_are_read(answer: str):
    blocks = parse_unlimited(answer).blocks
    assert [(block.kind.value, block.text, block.box.y0) for block in blocks] == [
        ("title", "Buoys", 0.06),
        ("text", "One was moved.", 0.13),
    ]


def test_words_in_the_place_of_a_label_are_text():
    (block,) = parse_unlimited("<|ref|>Two cockles<|/ref|><|det|>[[300, 620, 700, 650]]<|/det|>").blocks
    assert (block.text, block.box.x0) == ("Two cockles", 0.3)


def test_escaped_marks_of_list_items_become_list_items():
    answer = "<x_0.1><y_0.1>\\- Trim the lamps<x_0.6><y_0.12><class_List-item>"
    assert blocks_to_markdown(parse_nemotron(answer).blocks) == "- Trim the lamps"


def test_wrappers_and_dead_links_of_lighton_are_not_text():
    answer = '<div style="gap: 8px">\n  ![image](image_1.png)\n    <div>\n      LAMPS\n    </div>\n</div>\n\n# Oil'
    assert blocks_to_markdown(parse_lighton2(answer).blocks) == "LAMPS\n\n# Oil"
    page = "# Code\n\n```html\n<div>\n  ![image](image_1.png)\n</div>\n```"
    assert blocks_to_markdown(parse_lighton2(page).blocks) == page


def test_sections_in_latex_become_headings():
    answer = "## 2 Method\n\n\\subsubsection*{2.1.4 Soundings}\n\nDepths."
    assert blocks_to_markdown(parse_qwen_markdown(answer).blocks) == "## 2 Method\n\n#### 2.1.4 Soundings\n\nDepths."
