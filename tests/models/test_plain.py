"""Plain Markdown becomes blocks that give the same Markdown again."""

import pytest

from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.results.markdown import blocks_to_markdown

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


def test_every_block_has_the_whole_page_as_its_box():
    boxes = {(block.box.x0, block.box.y0, block.box.x1, block.box.y1) for block in parse_plain(PAGE).blocks}
    assert boxes == {(0, 0, 1, 1)}


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


def test_a_table_in_the_middle_of_a_line_is_a_table():
    blocks = parse_plain("So: <TABLE><tr><td>1</td></tr></TABLE> as said").blocks
    assert [block.text for block in blocks] == ["So:", "<TABLE><tr><td>1</td></tr></TABLE>", "as said"]


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
