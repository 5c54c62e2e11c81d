"""Answers with a structure are read in a time linear in their length, whatever they hold."""

from collections.abc import Callable

import pytest

from llm_ocr.models.doctags import parse_doctags
from llm_ocr.models.html_blocks import parse_chandra, parse_qwen_html
from llm_ocr.models.html_markdown import html_to_markdown
from llm_ocr.models.layout_json import parse_dots, parse_surya_layout
from llm_ocr.models.otsl import otsl_to_html, parse_formula, parse_paddle_chart, parse_paddle_table
from llm_ocr.models.profile import Frame

LENGTH = 1 << 17
FRAME = Frame(1654, 2339)
DIV = '<div data-bbox="1 2 3 4" data-label="Text">'
JSON = [
    *(
        "[",
        "{",
        "}",
        '"',
        "\\",
        ":",
        ",",
        '{"a":',
        '[{"a":"b"',
        '{"bbox":[1,2,3,4],"text":"x"},',
        '"a":',
        '{"',
        '"}, {"',
    ),
    *(
        '{"a":"x" y" {"b":[',
        '{"bbox":[1,2,3,4],"category":"Picture"},',
        '"    ,   ',
        '"x"} ',
        "[1] ",
        '{"text":"\\t',
        " \n",
    ),
]
HTML = [
    *(
        "<",
        ">",
        "&",
        "&#9",
        "<!--",
        "<!d ",
        '<a "',
        '<a "<a "',
        "<a '\"",
        '<a ""<a "',
        '<p x="">',
        '<img alt="x',
        "</",
        "</p>",
    ),
    *(
        "<div>",
        "</div>",
        DIV,
        f"{DIV}x</div>y",
        f"{DIV}<table>",
        "<ul><li>a",
        "<li>",
        "<table><tr><td>a",
        "<td>",
        "<tr>",
    ),
    *(
        "<b>",
        "<b> ",
        "<p><b>a",
        "<math>",
        "<math",
        "</math>",
        "<chem>x",
        "<code>a\n",
        "<pre>",
        "<h1>a",
        "<br>",
        "#\n",
        "`",
    ),
    *(
        "a ",
        "  ",
        "\n",
        "<sup>",
        '<a href="http://a">x',
        '<p data-bbox="1 2 3 4">x',
        '<img data-bbox="1 2 3 4">',
        "<hr>",
    ),
]
TAGS = [
    *("<fcel>", "<lcel>", "<ucel><nl>", "<fcel>a<nl>", "<fcel><lcel><nl><ucel><xcel><nl>", "<nl>", "<fcel>a<ucel><nl>"),
    *("<text>", "</text>", "<caption>", "<picture><caption>", "<otsl>", "<unordered_list>", "<list_item>a", "<loc_1>"),
    *("<inline>", "<formula>", "<_a_>", "<picture><otsl><fcel>a", "| a ", "|a\n", "$", "$$ a ", "<", "<a"),
]
READERS: dict[str, tuple[Callable[[str], object], list[str]]] = {
    "dots": (lambda text: parse_dots(text, FRAME), JSON),
    "surya": (parse_surya_layout, JSON),
    "chandra": (parse_chandra, HTML),
    "qwen": (parse_qwen_html, HTML),
    "markdown": (html_to_markdown, HTML),
    "doctags": (parse_doctags, TAGS),
    "table": (parse_paddle_table, TAGS),
    "chart": (parse_paddle_chart, TAGS),
    "formula": (parse_formula, TAGS),
    "otsl": (lambda text: otsl_to_html("<fcel>" * 10_000 + "<nl>" + text), TAGS),
}


@pytest.mark.slow
@pytest.mark.timeout(600)  # on a busy machine; a quadratic one takes hours
@pytest.mark.parametrize("reader", READERS)
def test_much_of_anything_is_read_in_linear_time(reader: str):
    read, units = READERS[reader]
    for unit in units:
        read(unit * (LENGTH // len(unit)))
        read(f'[{{"text":"{DIV}<text>' + unit * (LENGTH // len(unit)))
