"""Plain Markdown, with the habits of several models, becomes blocks that give the same Markdown again."""

import pytest

from llm_ocr.models.parsers.markdown import parse_hunyuan, parse_nanonets
from llm_ocr.models.parsers.plain import legible, parse_plain
from llm_ocr.models.parsers.talk import describes_image, is_refusal, omits_text, says_nothing, without_echo
from llm_ocr.models.profile import Parsed
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.types import BlockKind, Box

PAGE = """# Title

A paragraph
on two lines.

## Data #1

| a | b |
|---|:-:|
| 1 | 2 |

Before the table

<table><tr><td>x</td></tr></table>

behind it.

- one
- two
  - deep
- three

1. first
2. second

```python
# no heading
print("|")
```

$$
a = b
$$

\\begin{align}
c &= d
\\end{align}

The end."""


def kinds(text: str) -> list[str]:
    return [block.kind.value for block in parse_plain(text).blocks]


def test_every_construct_is_a_block_of_its_kind():
    lists = ["list_item"] * 6
    head = ["title", "text", "heading", "table", "text", "table", "text"]
    assert kinds(PAGE) == [*head, *lists, "code", "formula", "formula", "text"]


def test_the_markdown_comes_out_again():
    again = blocks_to_markdown(parse_plain(PAGE).blocks)
    assert again == PAGE.replace("- three\n\n1.", "- three\n1.")
    assert blocks_to_markdown(parse_plain(again).blocks) == again


@pytest.mark.parametrize(
    "wrap", ["```markdown\n{}\n```", "```md\n{}\n```\n", "```markdown\n{}", "{}<|im_end|>", "\n{}\n\n"]
)
def test_what_chat_models_put_around_an_answer_is_taken_off(wrap: str):
    assert parse_plain(wrap.format("# T\n\nwords")) == parse_plain("# T\n\nwords")


def test_a_fence_around_a_program_stays():
    assert kinds("```\nx = 1\n```") == ["code"]
    assert kinds("```markdown\n# T\n```\n\nwords\n\n```py\nx\n```") == ["code", "text", "code"]


def test_code_within_a_wrapped_answer_stays_code():
    assert kinds("```markdown\n# T\n\n```py\nx\n```\n\nwords\n```") == ["title", "code", "text"]
    # Most printed code has no language.
    wrapped = "```markdown\n# T\n\n```\nx\n```\n\nmore words\n\n```\ny\n```\n```"
    assert kinds(wrapped) == ["title", "code", "text", "code"]


@pytest.mark.parametrize("mark", ["```html", "```markdown"])
def test_page_whose_first_code_has_a_language_keeps_all_text(mark):
    """The fences are those of the page, not one around the answer."""
    code = "\n".join(f"<p>line {number} of the code</p>" for number in range(6))
    page = f"Create the file:\n\n{mark}\n{code}\n```\n\nThen start it:\n\n```\nnpm start\n```\n\nOpen the page."
    blocks = parse_plain(page).blocks
    assert [block.text for block in blocks if block.kind is BlockKind.TEXT] == [
        "Create the file:",
        "Then start it:",
        "Open the page.",
    ]


def test_a_fence_for_each_of_two_pages_is_none_of_theirs():
    assert kinds("```markdown\n# One\n\nwords\n```\n\n```markdown\n# Two\n\nwords\n```") == ["title", "text"] * 2


def test_a_table_in_the_middle_of_a_line_is_a_table():
    blocks = parse_plain("So: <TABLE><tr><td>1</td></tr></TABLE> as said").blocks
    assert [block.text for block in blocks] == ["So:", "<TABLE><tr><td>1</td></tr></TABLE>", "as said"]


def test_a_caption_in_angle_brackets_begins_no_table():
    text = "As <Table 1> shows:\n\n<Table 1> Sales\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nMore of it."
    assert kinds(text) == ["text", "text", "table", "text"]
    assert blocks_to_markdown(parse_plain(text).blocks) == text


def test_nested_tables_stay_whole():
    text = "<table><tr><td><table><tr><td>1</td></tr></table></td></tr></table>"
    assert [block.text for block in parse_plain(text).blocks] == [text]


def test_what_a_cut_answer_leaves_open_does_not_swallow_the_rest():
    assert parse_plain("<table><tr><td>1</td><t").blocks[0].text.endswith("<td>1</td></td></tr></table>")
    assert blocks_to_markdown(parse_plain("```py\nx = 1").blocks) == "```\nx = 1\n```"


def test_marks_without_an_end_are_text():
    assert kinds("\\[ a\n\nb") == ["text", "text"]
    assert kinds("It costs $$ and more") == ["text"]


def test_bullets_of_any_kind_are_items():
    assert blocks_to_markdown(parse_plain("• a\n• b\n\t◦ c").blocks) == "- a\n- b\n  - c"


def test_lines_of_an_item_belong_to_it():
    assert blocks_to_markdown(parse_plain("- a\n  goes on\n- b").blocks) == "- a\n  goes on\n- b"


def test_a_rule_and_a_bold_line_are_no_items():
    assert kinds("***\n\n* * *\n\n**bold** words") == ["text"] * 3


WHOLE = Box(0, 0, 1, 1)


INVOICE = """Invoice 88

<img>Company logo, a blue heron</img>

<watermark>OFFICIAL COPY</watermark>

☐ paid ☑ due

<table><tr><td><img>Stamp</img></td><td>7</td></tr></table>

<page_number>1/2</page_number>"""


def told(parsed: Parsed) -> list[tuple[str, str, str]]:
    return [(block.kind.value, block.label, block.text) for block in parsed.blocks]


def test_tags_of_nanonets_become_figures_words_and_furniture():
    parsed = parse_nanonets(INVOICE)
    assert told(parsed) == [
        ("text", "", "Invoice 88"),
        ("text", "image", "Company logo, a blue heron"),
        ("header", "watermark", "OFFICIAL COPY"),
        ("text", "", "☐ paid ☑ due"),
        ("table", "", "<table><tr><td>Stamp</td><td>7</td></tr></table>"),
        ("page_number", "page_number", "1/2"),
    ]
    assert {block.box for block in parsed.blocks} == {WHOLE}
    assert parsed.lost == ()


def test_furniture_within_a_paragraph_does_not_part_it():
    parsed = parse_nanonets("All rights <watermark>COPY</watermark> reserved <page_number>9/22</page_number>")
    assert blocks_to_markdown(parsed.blocks).split() == ["All", "rights", "reserved"]
    assert told(parsed)[1:] == [("header", "watermark", "COPY"), ("page_number", "page_number", "9/22")]


def test_words_of_a_figure_may_have_paragraphs():
    assert ("text", "image", "Two boats, at anchor") in told(
        parse_nanonets("a\n\n<img>Two boats,\n\nat anchor</img>\n\nb")
    )


def test_a_page_that_is_nothing_but_a_figure_is_this_figure():
    figure, number = parse_nanonets("<img>A map of the valley</img>\n\n<page_number>4</page_number>").blocks
    assert (figure.kind, figure.label, figure.described) == (BlockKind.FIGURE, "image", "A map of the valley")
    assert number.kind is BlockKind.PAGE_NUMBER


@pytest.mark.parametrize(
    "text",
    ["words <img>logo\n\nmore", "words <img>logo", "words <img>logo<img>\n\nmore", "words </img>logo</img>\n\nmore"],
)
def test_tags_without_a_pair_swallow_nothing(text: str):
    markdown = blocks_to_markdown(parse_nanonets(text).blocks)
    assert "img" not in markdown
    assert markdown.split() == ["words", "logo", "more"][: 2 + ("more" in text)]


def test_empty_tags_leave_nothing():
    assert told(parse_nanonets("words\n\n<img></img>\n\n<watermark> </watermark>")) == [("text", "", "words")]


def test_a_cut_answer_shows_no_part_of_a_tag():
    for end in range(len(INVOICE)):
        markdown = blocks_to_markdown(parse_nanonets(INVOICE[:end]).blocks)
        assert not any(name in markdown for name in ("img", "water", "page_", "<i", "<w", "<p")), end


@pytest.mark.parametrize("parse", [parse_hunyuan, parse_nanonets])
def test_sound_answers_are_read_as_plain_markdown(parse):
    text = "# Rules\n\n1. Members shall pay.\n2. So shall guests.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n$$\nx\n$$"
    assert parse(text) == parse_plain(text)


def test_hunyuan_places_of_figures_are_figures_and_not_text():
    blocks = parse_hunyuan("# Market\n\nWeekly visitors(118,402),(870,761)\n\n(120, 10),(884, 99)\n\nClosed.").blocks
    assert [(block.kind.value, block.text) for block in blocks] == [
        ("title", "Market"),
        ("text", "Weekly visitors"),
        ("figure", ""),
        ("figure", ""),
        ("text", "Closed."),
    ]
    assert blocks[2].box == Box(0.118, 0.402, 0.87, 0.761)


def test_points_that_the_page_prints_stay():
    text = "The points (120,5),(400,2) lie on a line.\n\nDraw (2,3),(6,8)"
    assert parse_hunyuan(text) == parse_plain(text)


def test_head_foot_and_signature_are_told_from_the_text():
    text = "<header>Port</header>\n\nAll present.\n\n<signature>E. Harrow</signature>\n\n<footer>Copy 2</footer>"
    assert told(parse_nanonets(text)) == [
        ("header", "header", "Port"),
        ("text", "", "All present."),
        ("text", "signature", "E. Harrow"),
        ("footer", "footer", "Copy 2"),
    ]
    page = "A `<signature>` ends it:\n\n```xml\n<entry><signature>EH</signature></entry>\n```"
    assert blocks_to_markdown(parse_nanonets(page).blocks) == page


@pytest.mark.parametrize(
    "answer",
    [
        "<think>One column.</think>\n{}",
        "The page has one column.\n</think>\n\n{}",
        "<thinking>\nOne column.\n</thinking>\n\n{}",
        "<seed:think>One column.</seed:think>{}",
        "◁think▷One column.◁/think▷{}",
        "<reasoning>One column.</reasoning>\n{}",
        "<think>One column.</think>\n```markdown\n{}\n```",
        "# Market rules\n\n<think>\n\n</think>\n\nStalls open at seven.",
        "<|im_start|>assistant\n{}<|im_end|>\n<|im_start|>assistant\n{}",
        "{}\n<|user|>\nThanks",
        "<start_of_turn>model\n{}<end_of_turn>",
        "<|start_of_role|>assistant<|end_of_role|>{}<|end_of_text|>",
        "<|channel|>analysis<|message|>One column.<|end|><|start|>assistant<|channel|>final<|message|>{}<|return|>",
        "[/INST] {}</s>",
        "{}<end_of_turn>\n<eos>",
        "{}<pad><pad><unk>",
        "<|vision_start|><|image_pad|><|vision_end|>{}",
        "<|begin_of_box|>{}<|end_of_box|>",
        "Here is the text of the page:\n\n```markdown\n{}\n```\n\nLet me know if you need more.",
        "Here is the transcription of the page in Markdown:\n\n{}\n\nLet me know if you need anything else!",
        "Sure! Here is the transcribed text:\n```\n{}\n```",
        'Sure! Here is the extracted text:\n\n"""\n{}\n"""',
        "The text in the image is as follows:\n\n---\n\n{}\n\n---\n\nI hope this helps!",
        "以下是图片中的文字内容：\n\n{}",
        "Hier ist der transkribierte Text aus dem Bild:\n\n{}",
        "Voici le texte extrait de l'image :\n\n{}",
        "{}\n\n---\n\n**Note:** The transcription above preserves the original formatting.",
        "``` markdown\n{}\n```",
        "```\n{}\n```",
        "{}\n```\n{}\n```\n{}\n```",
        '<div style="text-align: center;">\n  {}\n</div>',
        "<h1>Market rules</h1>\n<p>Stalls open at seven.</p>",
        "<answer>\n{}\n</answer>",
        '<document>\n<page number="1">\n{}\n</page>\n</document>',
        '{"markdown": "# Market rules\\n\\nStalls open at seven."}',
        '"# Market rules\\n\\nStalls open at seven."',
        "# Market rules\\n\\nStalls open at seven.",
    ],
)
def test_thoughts_chat_turns_wrappers_and_talk_are_not_the_page(answer: str):
    page = "# Market rules\n\nStalls open at seven."
    assert blocks_to_markdown(parse_plain(answer.replace("{}", page)).blocks) == page


def test_a_thought_without_an_end_is_no_page():
    assert parse_plain("<think>The sheet has a heading, maybe a box [[120, 240],").blocks == ()


@pytest.mark.parametrize(
    "page",
    [
        "The answer stands between `<think>` and `</think>`.\n\n```text\n<think>add the tides</think>\n```",
        "A turn ends with `<|im_end|>`.\n\n```text\n<|im_start|>user\nHello<|im_end|>\n```\n\nThe end.",
        "# Writing\n\nA picture is one line:\n\n```markdown\n![image](image_1.png)\n```\n\nIt is read aloud.",
        "Here is the text of the notice:\n\nAll boats must be out by Friday.",
        "Sure enough, the document below was found:\n\nPlease let me know if you need anything else.",
        "```\nstart = 7\nfor lamp in range(start):\n    light(lamp)\n```",
        "Type this twice:\n\n```\nlight\n```\n\n```\nlight\n```",
        "The set is $\\nabla f \\neq \\nu$ and C:\\new\\notes is a folder.",
        "**Note:** The sluice was rebuilt in 1912.",
        "Write `<|image_pad|>` for an image.",
        '{"text": "a", "size": 2}',
    ],
)
def test_a_page_that_resembles_what_surrounds_one_stays_whole(page: str):
    assert blocks_to_markdown(parse_plain(page).blocks) == page


@pytest.mark.parametrize(
    ("text", "refuses"),
    [
        ("I'm unable to view images.", True),
        ("I’m sorry, but I can’t read the text in this image.", True),
        ("As an AI language model, I cannot see the picture you provided.", True),
        ("Sorry, I can't assist with that.", True),
        ("I am sorry I cannot attend the meeting.", False),
        ("I am unable to provide the goods this week.", False),
        ("I cannot see the harbor from my window.", False),
        ("抱歉，我无法识别这张图片中的文字。", True),
        ("抱歉，我不能参加周五的会议。", False),
        ("I'm sorry, but the image is too blurry to read the text.", True),
        ("I'm sorry, but the picture of the brig was lost in the fire.", False),
        ("It looks like you haven't uploaded an image yet.", True),
        ("Please attach a photo of the boat.", False),
        ("Es tut mir leid, aber ich kann den Text in diesem Bild nicht lesen.", True),
        ("Leider kann ich das Bild heute nicht mehr schicken.", False),
        ("Je suis désolé, je ne peux pas lire le texte de cette image.", True),
        ("Je ne peux pas venir, mais la photo est jointe.", False),
        ("Lo siento, no puedo leer el texto de la imagen.", True),
        ("No puedo enviar la foto hoy.", False),
        ("申し訳ありませんが、この画像の文字を読み取ることはできません。", True),
        ("죄송합니다. 이 이미지의 텍스트를 읽을 수 없습니다.", True),
        ("I don't see any image attached to your message.", True),
        ("No image was provided.", True),
        ("No image of the bridge was included in the atlas.", False),
        ("I can't reproduce the text of this page because it may be protected by copyright.", True),
        ("I cannot provide a transcription of this document.", True),
        ("I cannot provide the boats that you asked for.", False),
    ],
)
def test_a_refusal_is_told_from_a_letter(text: str, refuses: bool):
    assert is_refusal(text) is refuses


@pytest.mark.parametrize(
    ("text", "nothing"),
    [
        ("No textual content detected", True),
        ("There is no visible text in this image.", True),
        ("The image is blank and contains no text.", True),
        ("[blank page]", True),
        ("The page is blank.", True),
        ("null", True),
        ("This page is intentionally left blank.", False),
        ("There is no text in this image of the harbor that names the ship.", False),
    ],
)
def test_statement_of_no_text_is_told_from_a_page(text: str, nothing: bool):
    assert says_nothing(text) is nothing


def test_prompt_in_the_answer_is_left_out():
    prompt = "<|grounding|>Convert the document to markdown."
    assert without_echo(f"<image>\n{prompt}\n# Log", prompt) == "\n# Log"
    assert without_echo("Convert the document to markdown.\n# Log", prompt) == "\n# Log"
    assert (
        without_echo("Describe the figure.\n\nA lamp.", "Describe the figure.\n\nIts caption: Fig. 2") == "\n\nA lamp."
    )
    assert without_echo("OCR: the name of a shop", "OCR:") == "OCR: the name of a shop"


def test_pictures_are_figures_without_data():
    text = f"# Pass\n\n![image](data:image/png;base64,{'iVBORw0KGgo' * 40})\n\nShow it.\n\n![A lamp](lamp.png)"
    parsed = parse_plain(text)
    assert told(parsed)[1:] == [("text", "", "Show it."), ("text", "image", "A lamp")]
    page = "Write `![image](image_1.png)` for a picture."
    assert blocks_to_markdown(parse_plain(page).blocks) == page
    assert told(parse_nanonets('a\n\n<img src="1.jpg" alt="A lamp">\n\nb'))[1] == ("text", "image", "A lamp")


def test_wide_rows_of_a_pipe_table_have_a_head_and_a_rule():
    [table] = parse_plain("| Lamp | Oil |\n|---|---|\n| Red | 2 l | 14.20 |").blocks
    assert table.text.split("\n")[:2] == ["| Lamp | Oil |  |", "|---|---| --- |"]
    even = "| a \\| b | c |\n|---|---|\n| 1 | 2 |"
    assert parse_plain(even).blocks[0].text == even


def test_hunyuan_points_in_tables_and_formulas_stay():
    cell = "<table>\n<tr><td>\n(120,310),(400,512)\n</td></tr>\n</table>"
    formula = "$$\nM = \\{(120,310),(400,512)\n\\}\n$$"
    assert blocks_to_markdown(parse_hunyuan(f"{cell}\n\n{formula}").blocks) == f"{cell}\n\n{formula}"
    blocks = parse_hunyuan("Own count (39,337),(512,900) (600,100),(910,400)\n\nIt fell.，(60,120),(300,420)").blocks
    assert [block.text for block in blocks] == ["Own count", "", "", "It fell.", ""]


@pytest.mark.parametrize("target", ["images/fig1.png", './plan.jpeg "Plan"', "<plan one.jpeg>", "figure:3"])
def test_links_to_files_and_figures_that_do_not_exist_are_words(target: str):
    assert (
        blocks_to_markdown(parse_plain(f"Eight hives.\n\n![Hive plan]({target})").blocks) == "Eight hives.\n\nHive plan"
    )


def test_unseen_characters_are_left_out():
    assert legible("\ufeff# Log\n\nSh\u00adut\u200b it\x00 \x1b[31mnow\u202e.\x0c") == "# Log\n\nShut it now.\n"
    assert legible("\uf0b7 rye\n\uf0fe paid") == "• rye\n☑ paid"
    assert legible("می\u200cرود \u200f(1921)") == "می\u200cرود \u200f(1921)"


@pytest.mark.parametrize(
    ("text", "omits"),
    [
        ("[... the rest of the page continues in the same manner ...]", True),
        ("(The remaining text is omitted for brevity.)", True),
        ("[The text in this image is illegible]", True),
        ("The rest of the page is in the same hand.", False),
        ("No grain is [illegible] on a holiday.", False),
        ("(the rest of the crew)", False),
        ("[Der Rest des Textes ist unleserlich]", True),
        ("(Der Rest des Tages war ruhig.)", False),
        ("(le reste du monde)", False),
        ("[Le reste du texte est illisible]", True),
        ("（其余内容省略）", True),
        ("<!-- rest of the page omitted -->", True),
        ("[Insert table here]", True),
        ("[Insert coin]", False),
    ],
)
def test_statement_of_omission_is_told_from_a_page(text: str, omits: bool):
    assert omits_text(text) is omits


@pytest.mark.parametrize(
    ("text", "describes"),
    [
        ("The image shows a notice with the rules of a mill.", True),
        ("This document appears to be a list of rules.", True),
        ("This document contains the rules of the mill.", False),
        ("L'image montre une page avec un texte sur les abeilles.", True),
        ("La imagen muestra una página.", True),
        ("Das Bild zeigt eine Seite.", True),
        ("Das Bild hing im Saal.", False),
        ("这张图片展示了一页文字。", True),
        ("The picture shows the mill of 1912.\n\nThe wheel was built by P. Race.", False),
    ],
)
def test_description_of_the_image_is_told_from_a_page(text: str, describes: bool):
    assert describes_image(text) is describes


def test_check_boxes_in_tags_stay_in_their_lines():
    text = "<checkbox>☑</checkbox> Rye\n<checkbox>☐</checkbox> Oats"
    assert blocks_to_markdown(parse_nanonets(text).blocks) == "☑ Rye\n☐ Oats"
