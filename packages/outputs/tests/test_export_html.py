"""`export --format html`: self-contained files that show what the row has, do nothing, and ask for nothing."""

import base64
import re
import shutil
import sys
import unicodedata
from dataclasses import replace
from pathlib import Path

import html5lib
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_viewer_markdown import FRAGMENTS
from view_workspaces import FORMULA, TABLE, Wanted, drawn, make, text

import llm_ocr
from llm_ocr.errors import MissingExtra, StorageError
from llm_ocr.results.dataset import DatasetRow
from llm_ocr.types import BlockKind, DocumentPart, Ledger, PageRecord, Reason, Span, Status
from llm_ocr_outputs.exports.formulas import mathml
from llm_ocr_outputs.exports.html import document_html
from llm_ocr_outputs.source import Document

LINES = ("The gauge stood at 187 cm.", "It gave 31 kg of gold & silver.")
EVIL = "see <script>document.title='hit'</script> and ![x](http://127.0.0.1:9/x.png) [y](javascript:alert(1))"


#: Returns the pixels between an element's text and its right side.
MARGIN = """(one) => {
  const range = document.createRange();
  range.selectNodeContents(one);
  return one.getBoundingClientRect().right - range.getBoundingClientRect().right;
}"""


def page(name: str, number: int) -> Wanted:
    match number:
        case 1:
            kinds = ((BlockKind.TITLE, "# Levels of <the> *Arlen*"), (BlockKind.TABLE, TABLE))
            return Wanted((*kinds, (BlockKind.FORMULA, f"$$\n{FORMULA}\n$$")), figure="a chart of <levels>")
        case 2:
            spans = (Span(1, 8, 13),)
            return text(*LINES, ledger=Ledger(0.1, 0.0, 0.2, 0.0, (), spans))
        case 3:
            return Wanted(status=Status.FAILED, reason=Reason.ENGINE_TIMEOUT, detail="too <slow>")
    return text(EVIL, "מים רבים", status=Status.DEGRADED, reason=Reason.TRUNCATED)


@pytest.fixture(scope="module")
def workspace(golden) -> str:
    return str(golden("html", lambda folder: make(str(folder / "w"), {"sub/a.pdf": 4, "b.pdf": 1}, page)) / "w")


@pytest.fixture(scope="module")
def exported(workspace, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("html") / "o"
    done = llm_ocr.export(workspace=workspace, output=folder, format="html")
    assert (done.rows, done.files, done.unit) == (2, 2, "documents")
    return folder


def document(*markdown: str, **notes) -> Document:
    rows = []
    for number, words in enumerate(markdown, 1):
        record = PageRecord(f"p{number}", "d", "/in/my a.pdf", number, 0, Status.OK, markdown=words, notes=notes)
        rows.append(DatasetRow(record, words))
    part = DocumentPart("d", "/in/my a.pdf", "my a.pdf", "", tuple(range(1, len(rows) + 1)), len(rows), 0)
    return Document("d", "/in/my a.pdf", ("a.pdf",), len(rows), tuple(rows), part)


def test_file_shows_figures_and_anchors_and_requests_nothing(exported, browser):
    url = (exported / "documents/sub/a.pdf.html").as_uri()
    browser.log.clear()
    browser.requests.clear()
    browser.call("Page.navigate", url=f"{url}#page-3")
    browser.wait("document.readyState === 'complete' && document.querySelector('#page-4')")
    assert browser.run("document.querySelector(':target').id") == "page-3"
    browser.run("document.querySelector('#page-2 > a').click()")
    browser.wait("document.querySelector(':target').id === 'page-2'")
    shown = "[...document.images].map((one) => [one.complete, one.naturalWidth, one.alt])"
    assert browser.run(shown) == [[True, 120, "a chart of <levels>"]]
    assert browser.run("document.title") == "Levels of <the> Arlen"
    assert browser.run("document.querySelector('math munderover').getBoundingClientRect().height") > 20
    assert browser.run("[...document.querySelectorAll('td')].map((one) => one.innerText)")[:2] == ["Mill Weir", "187"]
    assert browser.run("getComputedStyle(document.querySelectorAll('td')[1]).textAlign") == "right"
    assert browser.run(f"({MARGIN})(document.querySelectorAll('#page-4 p')[2])") < 2  # right to left
    assert browser.run(f"({MARGIN})(document.querySelectorAll('#page-2 p')[0])") > 100
    assert browser.texts("u.unsupported") == ["Underlined text", "31 kg"]
    assert browser.texts(".notice") == [
        "This page could not be read: engine timeout (too <slow>)",
        "This page may be wrong or incomplete: truncated",
    ]
    assert [one for one in browser.requests if not one.startswith("data:")] == [url]
    assert browser.log == []


def test_policy_of_a_file_stops_scripts_and_requests(tmp_path, browser):
    made = document_html(document("words"), {})
    hostile = "<img src='http://127.0.0.1:9/a.png'><script>document.title='hit'</script><p id='end'>"
    (tmp_path / "a.html").write_text(made.replace("</main>", f"{hostile}</main>"))
    browser.log.clear()
    browser.call("Page.navigate", url=(tmp_path / "a.html").as_uri())
    browser.wait("document.readyState === 'complete' && document.querySelector('#end')")
    browser.hear("image 'http://127.0.0.1:9/a.png' violates")
    browser.hear("inline script violates")
    assert browser.run("document.title") == "my a.pdf"


def test_figures_are_the_bytes_of_the_workspace(exported):
    made = (exported / "documents/sub/a.pdf.html").read_text()
    (data,) = re.findall(r'<img src="data:image/png;base64,([^"]+)"', made)
    assert base64.b64decode(data) == drawn(120, 60).data


def test_files_are_valid_html(exported):
    for path in (exported / "documents").rglob("*.html"):
        tree = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(path.read_bytes())
        ids = [one.get("id") for one in tree.iter() if one.get("id")]
        assert len(ids) == len(set(ids)) > 0


@given(st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=8)), max_size=30).map("".join))
def test_any_text_gives_inert_html(markdown):
    made = document_html(document(markdown), {})
    tree = html5lib.HTMLParser(namespaceHTMLElements=False).parse(made)
    names = [one.tag for one in tree.iter() if isinstance(one.tag, str)]
    assert not {"script", "img", "iframe", "object", "embed", "form", "link", "base"} & set(names)
    assert names.count("style") == 1 and names.count("meta") == 4
    for one in tree.iter():
        assert not [name for name in one.attrib if name.startswith("on") or name in ("src", "srcset", "srcdoc")]
        assert re.match(r"https?://|mailto:|#page-\d+$|$", one.get("href", ""))
    assert "".join(tree.itertext()).count("</main>") == markdown.count("</main>")


@pytest.mark.parametrize(
    "words",
    [
        *('a <span class="figure" data-f="7"></span>', '<table><tr><td><span x="a>b" class=figure data-f=0></table>'),
        *('<div class="math">x</div>', "<span class=math x<y>x</span>", '<SPAN\nclass="figure" data-f="0"'),
    ],
)
def test_text_of_a_page_names_no_figures_and_no_formulas(words):
    made = document_html(document(words), {})
    assert not re.search("<[^>]*(?:data-f|figure|math)", made[made.index("<main>") :])


def test_language_and_title_are_those_of_the_document():
    two = document("one", "two", "## Three *words*")
    rows = [
        replace(row, record=replace(row.record, notes={"primary_language": language}))
        for row, language in zip(two.rows, ("de", "de", "fr"), strict=True)
    ]
    made = document_html(replace(two, rows=tuple(rows)), {})
    assert '<html lang="de">' in made and "<title>Three words</title>" in made
    assert re.findall(r'<section .*? lang="(\w+)"', made) == ["fr"]
    hostile = document_html(document("one", primary_language='x" onload="a()'), {})
    assert "<html>" in hostile and "onload" not in hostile
    assert "<title>my a.pdf</title>" in hostile


def test_a_notice_does_not_change_the_direction_of_a_page(browser, tmp_path):
    hebrew = document("| מים | רבים |\n|---|---|\n| א | ב |")
    row = replace(hebrew.rows[0], record=replace(hebrew.rows[0].record, status=Status.DEGRADED))
    (tmp_path / "a.html").write_text(document_html(replace(hebrew, rows=(row,)), {}), "utf-8")
    browser.call("Page.navigate", url=(tmp_path / "a.html").as_uri())
    browser.wait("document.readyState === 'complete' && document.querySelector('td')?.innerText === 'א'")
    assert browser.run("getComputedStyle(document.querySelector('table')).direction") == "rtl"


@pytest.mark.parametrize(
    ("latex", "shown"),
    [
        ("\\frac{a}{b}", "<mfrac><mi>a</mi><mi>b</mi></mfrac>"),
        ("a < b", "<mi>a</mi><mo>&lt;</mo><mi>b</mi>"),
        ("x \\tag{3}", "<mtext>(3)</mtext>"),
        ("\\begin{align} a &= b \\tag{7} \\end{align}", "<mtext>(7)</mtext>"),
        ("\\begin{split} a &= b \\end{split}", "<mtable"),
        ("\\begin{eqnarray} a &=& b \\end{eqnarray}", "<mtable"),
        ("\\begin{alignat}{2} a &= b \\end{alignat}", "<mtable"),
        ("E \\label{eq:e}", "<mi>E</mi>"),
    ],
)
def test_formulas_of_models_become_mathml(latex, shown):
    made = mathml(latex, display=True)
    assert shown in made and '<math display="block">' in made


def test_formulas_get_no_number_that_the_page_lacks():
    made = mathml("\\begin{align} a &= b \\\\ c &= d \\end{align}", display=True)
    assert "(1)" not in made and "(2)" not in made


@pytest.mark.parametrize(
    "latex",
    [
        *("\\unknown{x}", "\\frac{a", "{" * 100_000, "\\sqrt" * 100_000, "\\left(" * 50_000, "\\frac{1}{" * 50_000),
        *("\\def\\a{\\a\\a}\\a", "\\newcommand{\\a}{\\sqrt}\\a", "\\href{javascript:alert(1)}{x}", "a & b"),
    ],
)
def test_formula_that_cannot_be_converted_stays_latex(latex):
    assert mathml(latex, display=False) == ""
    made = document_html(document(f"so $x{latex}$ is"), {})
    assert latex[:20].replace("&", "&amp;") in made and "<math" not in made


@given(st.text(max_size=40))
def test_no_formula_makes_active_mathml(words):
    for latex in (words, f"\\text{{{words}}}", f"\\color{{{words}}} x", f"\\hspace{{{words}}}"):
        made = mathml(latex, display=False)
        tree = html5lib.HTMLParser(namespaceHTMLElements=False).parseFragment(made)
        for one in tree.iter():
            assert one.tag not in ("script", "img", "a", "style")
            assert not [name for name in one.attrib if name.startswith("on") or "href" in name]
            assert "(" not in one.get("style", "")


def test_texts_of_other_scripts_are_kept(tmp_path):
    words = "水位は187 cm。 गेज مقياس 𠮷"
    made = document_html(document(words), {})
    assert unicodedata.normalize("NFC", words) in made
    assert "\udce9" not in document_html(document("caf\udce9"), {})


def test_lost_figure_is_named_with_a_remedy(workspace, tmp_path):
    copy = Path(shutil.copytree(workspace, tmp_path / "w"))
    next((copy / "documents/sub").rglob("*.png")).unlink()
    with pytest.raises(StorageError, match=r"documents/sub/.*\.png is missing") as told:
        llm_ocr.export(workspace=copy, output=tmp_path / "o", format="html")
    assert "Run Assemble again" in told.value.hint


def test_without_the_converter_the_package_is_named(workspace, tmp_path, monkeypatch):
    from llm_ocr_outputs.exports import formulas

    formulas.converter.cache_clear()
    monkeypatch.setitem(sys.modules, "math_core", None)
    with pytest.raises(MissingExtra, match=r'pip install "math-core'):
        llm_ocr.export(workspace=workspace, output=tmp_path / "o", format="html")
