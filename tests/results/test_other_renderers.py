"""Markdown of documents does nothing by itself in six renderers. Some read other tags than CommonMark."""

import json
import re
import shutil
import string
import subprocess
from collections.abc import Callable

import nh3
import pytest
from hostile import HOSTILE, Findings
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from test_inert_markdown import ELSEWHERE, PARTS

from llm_ocr.results.sanitizing import inert_markdown

TEXTS = [*HOSTILE, *ELSEWHERE]
_ACTIVE = re.compile(
    "a|applet|audio|base|body|button|details|embed|form|frame|head|html|iframe|img|input|link|math|meta|object|plaintext"
    "|script|select|source|style|svg|template|textarea|title|video|xmp"
)
_RUNS = re.compile(r"on[a-z]+|style|background|srcdoc|formaction")
_ADDRESS = re.compile(r"\s*(?:java\s*script|vbscript|data):", re.IGNORECASE)

#: Reads a list of texts, and writes each renderer's HTML. Node finds the packages in NODE_PATH.
_NODE = """
const { Converter } = require("showdown"), { parse } = require("marked");
const { Parser, HtmlRenderer } = require("commonmark");
const texts = JSON.parse(require("fs").readFileSync(0, "utf8"));
const each = (render) => texts.map((text) => render(text));
console.log(JSON.stringify({
  marked: each((text) => parse(text)),
  showdown: each((text) => new Converter({ tables: true }).makeHtml(text)),
  commonmark: each((text) => new HtmlRenderer().render(new Parser().parse(text))),
}));
"""
#: Returns what is active in each page of HTML, as Chromium reads it.
_READ = """
(pages) => pages.map((page) => {
  const all = [...new DOMParser().parseFromString(page, "text/html").querySelectorAll("*")];
  const attributes = (one) => [...one.attributes].map((at) => `${one.localName} ${at.name}=${at.value}`);
  return all.flatMap((one) => [one.localName, ...attributes(one)]);
})
"""


def is_active(found: str) -> bool:
    """Return whether an element, or `ELEMENT ATTRIBUTE=VALUE`, does something by itself or for a click."""
    name, _, value = found.partition("=")
    element, _, attribute = name.partition(" ")
    if attribute in ("href", "src"):
        return bool(_ADDRESS.match(value)) or (element == "img" and bool(re.match("(?:https?:)?//|.*[.][.]/", value)))
    if attribute:
        return bool(_RUNS.fullmatch(attribute)) and not (attribute == "style" and value.startswith("text-align:"))
    return element not in ("a", "img", "body", "head", "html") and bool(_ACTIVE.fullmatch(element))


def active(page: str) -> list[str]:
    """Return what is active in HTML, read as browsers do."""
    tags = {tag.lower() for tag in re.findall(r"<([A-Za-z][A-Za-z0-9:.-]*)", page)}
    whole = nh3.clean(
        page,
        tags=tags,
        clean_content_tags=set(),
        attributes={},
        generic_attribute_prefixes=set(string.ascii_lowercase),
        link_rel=None,
        url_schemes={"http", "https", "javascript", "data", "vbscript"},
    )
    return [found for found in _Everything(whole).bad if is_active(found)]


class _Everything(Findings):
    def handle_starttag(self, tag, attrs):
        self.bad += [tag, *(f"{tag} {name}={value or ''}" for name, value in attrs)]


def renderers() -> dict[str, Callable[[str], str]]:
    """Return the renderers in Python. They trust their input, and know fences and tables."""
    import markdown
    import mistune

    trusting = MarkdownIt("commonmark", {"html": True}).enable("table")
    trusting.validateLink = lambda url: True
    html = mistune.HTMLRenderer(escape=False, allow_harmful_protocols=True)
    return {
        "markdown-it": trusting.render,
        "mistune": mistune.create_markdown(renderer=html, plugins=["table", "strikethrough"]),
        "Python-Markdown": lambda text: markdown.markdown(text, extensions=["fenced_code", "tables"]),
        "Python-Markdown with attributes": lambda text: markdown.markdown(text, extensions=["extra"]),
    }


@pytest.fixture(scope="module")
def pages() -> dict[str, list[str]]:
    """Return each text of TEXTS, as HTML of the renderers in Python."""
    pytest.importorskip("markdown")
    pytest.importorskip("mistune")
    return {name: [render(inert_markdown(text)) for text in TEXTS] for name, render in renderers().items()}


@pytest.fixture(scope="module")
def node_pages() -> dict[str, list[str]]:
    """Return each text of TEXTS, as HTML of the renderers in JavaScript."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed")
    texts = json.dumps([inert_markdown(text) for text in TEXTS])
    done = subprocess.run([node, "-e", _NODE], input=texts, capture_output=True, text=True, timeout=240)
    if "MODULE_NOT_FOUND" in done.stderr:
        pytest.skip("no npm packages marked, showdown, and commonmark in NODE_PATH")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_check_finds_active_content():
    trusting = renderers()["markdown-it"]
    assert all(active(trusting(text)) for text in ("<img src=x onerror=y>", "[x](javascript:y)", "<p onmouseover=y>"))
    assert active(trusting("<script>x</script>")) == ["script"]
    assert active('<p/tabindex="1"/autofocus/onfocus=x>') == ["p onfocus=x"]
    assert active("<h1 style='text-align:left'><a href=https://a.example>b</a></h1><img src=a.png>") == []


@pytest.mark.parametrize("made", ["pages", "node_pages"])
def test_other_renderers_show_nothing_active(made, request):
    given = request.getfixturevalue(made)
    found = {(name, TEXTS[at]): active(page) for name, pages in given.items() for at, page in enumerate(pages)}
    assert {where: bad for where, bad in found.items() if bad} == {}


@pytest.mark.parametrize("name", ["mistune", "Python-Markdown", "Python-Markdown with attributes"])
def test_python_renderers_show_no_combination(name: str):
    pytest.importorskip("markdown")
    render = renderers()[name]

    @given(st.lists(st.sampled_from(PARTS), max_size=8))
    def check(parts: list[str]) -> None:
        assert active(render(inert_markdown("".join(parts)))) == []

    check()


@pytest.mark.parametrize("made", ["pages", "node_pages"])
def test_chromium_finds_nothing_active(made, browser, request):
    assert any(map(is_active, browser.run(f"({_READ})(['<p/onfocus=x>'])")[0]))
    for name, given_pages in request.getfixturevalue(made).items():
        found = browser.run(f"({_READ})({json.dumps(given_pages)})")
        assert [(name, TEXTS[at], one) for at, page in enumerate(found) for one in page if is_active(one)] == []
