"""`view` on real workspaces, looked at in a real browser."""

import gzip
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from bad_documents import good_pages, text_pdf
from view_workspaces import FORMULA, TABLE, Wanted, make, text
from viewer_browser import Browser

import llm_ocr
import llm_ocr_outputs.viewer
from llm_ocr.cli import main
from llm_ocr.errors import StageMissing, UsageError
from llm_ocr.results.ledger import Verify
from llm_ocr.types import BlockKind, Box, Ledger, Reason, Span, Status
from llm_ocr_simulator import running

UNSUPPORTED = "nothing on the page supports this text"
HEADING, PARAGRAPH = (BlockKind.HEADING, "Levels in winter"), (BlockKind.TEXT, "The willow above the weir came down.")


NAMES = {"reports/river.pdf": 4, "fax.tiff": 12, "letter.pdf": 3}


HOSTILE = """\
<script>window.hacked = 1</script> <img src=x onerror="window.hacked = 2"> <svg onload="window.hacked = 3"></svg>

[one](javascript:window.hacked=4) [two](data:text/html,<script>window.hacked=5</script>)
<a href="javascript:hacked=6">x</a>

<table onmouseover="window.hacked = 7"><tr><td style="background:url(javascript:hacked=8)">
<iframe srcdoc="<script>parent.hacked=9</script>"></iframe>cell</td></tr></table>

</script><script>window.hacked = 10</script> \u2028 window.hacked = 11 // ]]> --> <!-- <body onload=hacked=12>

$\\href{javascript:window.hacked=13}{x} \\htmlData{x=<img src=x onerror=hacked=14>}{y}$ ![x](http://127.0.0.1:9/track.png)
"""


HOSTILE_NAME = "a<img src=x onerror=hacked=20>&\"'`${hacked=21}</script><script>hacked=22</script>\u2028.pdf"


def page(name: str, number: int) -> Wanted:
    if name == HOSTILE_NAME:
        return text(HOSTILE, quality=0.9, figure="<img src=x onerror=hacked=30> </script><script>hacked=31</script>")
    if name == "letter.pdf" and number == 2:
        return Wanted(status=Status.FAILED, reason=Reason.ENGINE_TIMEOUT, detail="no answer <b>within</b> 60 seconds")
    if name == "letter.pdf" and number == 3:
        return text("cut, cut, cut", status=Status.DEGRADED, reason=Reason.LOOP, quality=0.2)
    if name == "reports/river.pdf" and number == 2:
        blocks = (HEADING, PARAGRAPH, (BlockKind.TABLE, TABLE), (BlockKind.FORMULA, FORMULA))
        return Wanted(blocks, quality=0.95, figure="Three lines that rise in March.", engine="other-ocr")
    if name == "reports/river.pdf" and number == 3:
        lines = ("- Gauges", "The **Upper Tarn** rose 𝒳 on 31 May.", "$x = 31$")
        blocks = ((BlockKind.LIST_ITEM, lines[0]), *((BlockKind.TEXT, line) for line in lines[1:]))
        spans = (Span(0, 0, 8), Span(1, 8, 21), Span(1, lines[1].index("31"), lines[1].index(".")), Span(2, 5, 7))
        ledger = Ledger(0.06, 0.031, 0.25, 0.1, (Box(0.1, 0.8, 0.5, 0.82), Box(0.1, 0.9, 0.5, 0.92)), spans, "layer")
        return Wanted(
            blocks, Status.DEGRADED, Reason.UNREAD, "3.1 % of the ink", 0.97, ledger=ledger, invisible_chars=16
        )
    return text(f"Page {number} of {name}", "Café 文書管理 word" + str(number), quality=0.99 - 0.01 * number)


@pytest.fixture(scope="module")
def workspace(golden) -> str:
    return str(golden("viewed", lambda folder: make(str(folder / "run"), {**NAMES, HOSTILE_NAME: 1}, page)) / "run")


@pytest.fixture(scope="module")
def site(workspace, golden) -> Path:
    def make_it(folder: Path) -> None:
        done = llm_ocr.view(workspace=workspace, output=folder / "site")
        assert (done.index, done.pages) == (folder / "site/index.html", 20)

    return golden("view", make_it) / "site"


@pytest.fixture
def home(browser, site) -> Browser:
    browser.size(1300, 900)
    browser.open((site / "index.html").as_uri())
    return browser


def titles(browser: Browser) -> list[str]:
    return [" ".join(one.split()) for one in browser.texts("#rows .row .title")]


def found(browser: Browser) -> str:
    return browser.texts("#found")[0]


def opened(browser: Browser, place: str) -> None:
    browser.go(place)
    browser.wait("document.querySelector('#page-view .page-bar h1')")


def page_of(site: Path, name: str, number: int) -> str:
    """The link to a page."""
    rows = json.loads(re.search(r"\[.*\]", next(site.glob("site-*/data/rows/0.js")).read_text(), re.DOTALL)[0])
    return next(f"page={row[1]}" for row in rows if (row[3], row[4]) == (name, number))


def test_the_list_opens_from_disk_with_the_worst_pages_first(home):
    assert titles(home)[:3] == ["letter.pdf p. 2", "reports/river.pdf p. 3", "letter.pdf p. 3"]
    assert found(home) == "20 pages of 4 documents"
    assert home.texts(".chip[data-status]") == ["ok\n17", "degraded\n2", "failed\n1"]
    dots = "[...document.querySelectorAll('#rows .row .dot')].slice(0, 3).map((dot) => dot.title)"
    assert home.run(dots) == ["failed", "degraded", "degraded"]
    assert home.log == []
    assert all(url.startswith(("file:", "about:")) for url in home.requests)


def test_filters_leave_the_pages_that_are_meant(home):
    home.run("document.querySelector('[data-status=failed]').click()")
    home.wait("document.querySelector('#found').textContent.startsWith('1 of')")
    assert titles(home) == ["letter.pdf p. 2"]
    assert home.run("location.hash") == "#status=failed"
    for place, left in {
        "reason=repetition+loop": ["letter.pdf p. 3"],
        "engine=other-ocr": ["reports/river.pdf p. 2"],
        "has=tfm&name=river": ["reports/river.pdf p. 2"],
        "has=u": ["reports/river.pdf p. 3"],
        "has=x": ["reports/river.pdf p. 3"],
        "below=50": ["letter.pdf p. 3"],
        "name=LETTER&sort=order": ["letter.pdf p. 1", "letter.pdf p. 2", "letter.pdf p. 3"],
        "status=degraded,failed&sort=best": ["letter.pdf p. 3", "reports/river.pdf p. 3", "letter.pdf p. 2"],
        "q=rise+in+march": ["reports/river.pdf p. 2"],  # only in the alt text of a figure
        "q=nowhere+willow": [],
    }.items():
        home.go(place)
        home.wait(f"document.querySelector('#found').textContent.startsWith('{len(left)} of')")
        assert titles(home) == left, place


@pytest.mark.parametrize("query", ["willow", "WILL", "weir above", "文書", "mill weir 187"])
def test_search_finds_words_in_any_case_and_their_beginnings(home, query):
    home.press("/")
    home.type(query)
    home.wait("/^[1-9]\\d* of/.test(document.querySelector('#found').textContent)")
    names = titles(home)
    assert ("reports/river.pdf p. 2" in names) is (query != "文書")
    home.wait("document.querySelector('.excerpt mark')")


def test_both_sides_of_the_search_cut_texts_alike(home):
    from llm_ocr_outputs.viewer.index import terms

    samples = [
        "Don't naïve Straße ÅNGSTRÖM ﬁne x_1 3.14 ½ İstanbul",
        "文書管理 のテスト abc漢字def 한국어 문서 ภาษาไทย हिन्दी العربية עברית",
        "𠀀𠀁𝒳 e\u0301 ª²ⅷ a" + "b" * 60,
    ]
    for sample in samples:
        assert home.run(f"Search.terms({json.dumps(sample)})") == list(terms(sample)), sample


def test_page_shows_boxes_on_image_and_table_formula_figure(home, site):
    opened(home, page_of(site, "reports/river.pdf", 2))
    home.wait("document.querySelector('article .katex')")
    assert home.texts("article h2") == ["Levels in winter"]
    assert home.texts("article td") == ["Mill Weir", "187", "Upper Tarn", "112"]
    assert home.texts("article .figure .description") == ["Three lines that rise in March."]
    home.wait("[...document.images].every((image) => image.complete && image.naturalWidth > 0)")
    assert home.run("document.images.length") == 2
    assert home.run("document.querySelectorAll('.sheet .box').length") == 5
    assert home.run("document.fonts.ready.then(() => [...document.fonts].some((font) => font.status === 'loaded'))")
    assert home.log == []


def test_box_and_text_point_at_each_other(home, site):
    opened(home, page_of(site, "reports/river.pdf", 2))
    over = "new MouseEvent('mouseover', {bubbles: true})"
    home.run(f"document.querySelector('.box.k-table').dispatchEvent({over})")
    assert home.run("document.querySelector('article .pointed').tagName") == "TABLE"
    home.run(f"document.querySelector('article h2').dispatchEvent({over})")
    assert home.run("document.querySelector('.sheet .pointed').className") == "box k-heading pointed"


def test_markdown_as_it_is_written_and_details_are_a_key_away(home, site):
    opened(home, page_of(site, "reports/river.pdf", 2))
    home.press("m")
    assert TABLE in home.texts(".raw")[0]
    assert home.texts("article") == []
    home.press("m")
    home.press("i")
    assert "/in/reports/river.pdf" in home.texts(".details")[0]
    home.press("i")


def test_unread_ink_and_unsupported_text_are_shown(home, site):
    assert home.texts(".chip[data-has=u], .chip[data-has=x]") == ["unread ink\n1", "unsupported text\n1"]
    opened(home, page_of(site, "reports/river.pdf", 3))
    home.wait("document.querySelector('article .katex')")
    assert home.texts("article u.unsupported") == ["per Tarn", "ro", "31 May"]
    assert home.run("[...document.querySelectorAll('article li.unsupported')].map((one) => one.innerText)") == [
        "Gauges"
    ]
    assert home.run("document.querySelector('article .math.unsupported').title").startswith(UNSUPPORTED)
    marked = "[...document.querySelectorAll('article .unsupported, .box.unsupported')]"
    assert home.run(f"{marked}.every((one) => one.title.startsWith({json.dumps(UNSUPPORTED)}))")
    lines = "getComputedStyle(document.querySelector('article u.unsupported')).textDecorationLine"
    assert home.run(lines) == "underline"
    unread = "[...document.querySelectorAll('.box.k-unread')]"
    assert home.run(f"{unread}.map((one) => one.getAttribute('aria-label'))") == [
        "unread ink 1 of 2",
        "unread ink 2 of 2",
    ]
    assert home.run(f"getComputedStyle({unread}[0]).borderTopColor") == "rgb(214, 0, 28)"
    assert home.run(f"{unread}.map((one) => one.style.top)") == ["80%", "90%"]
    home.press("m")
    assert home.texts(".raw u.unsupported") == ["- Gauges", "per Tarn** ro", "31 May", "31"]
    home.press("m")
    home.press("i")
    details = " ".join(home.texts(".details")[0].split())
    assert "unread ink 3.1 % unsupported text 25.0 %" in details
    assert "invisible text 16 characters compared with the ink and the text layer" in details
    home.press("i")
    assert home.log == []


def test_unread_ink_is_hidden_with_the_boxes_or_alone(home, site):
    opened(home, page_of(site, "reports/river.pdf", 3))
    box = "document.querySelector('.box.k-unread')"
    assert "unread ink" in home.texts(".legend button")
    home.run("document.querySelector('.legend button.k-unread').click()")
    assert home.run(f"{box}.checkVisibility()") is False
    home.run("document.querySelector('.legend button.k-unread').click()")
    home.press("b")
    assert home.run(f"getComputedStyle({box}).opacity") == "0"
    home.press("u")  # the next place of the ledger is shown without the boxes, too
    assert home.run(f"getComputedStyle({box}).opacity") == "1"
    assert home.run(f"{box}.classList.contains('here')")
    home.press("u")
    home.press("u")
    assert home.run("document.querySelector('article .here').className") == "unsupported here"
    home.press("b")


def test_a_failed_page_says_why_and_what_to_do(home, site, workspace):
    opened(home, page_of(site, "letter.pdf", 2))
    told = home.texts(".callout")[0]
    assert "This page failed: engine timeout" in told
    assert "no answer <b>within</b> 60 seconds" in told
    assert f"llm-ocr retry-failed -w {workspace}" in told


def test_keys_lead_through_list_and_pages_and_back(home):
    home.press("j")
    home.press("ArrowDown")
    home.press("k")
    home.press("Enter")
    home.wait("document.querySelector('.page-bar h1')?.textContent.includes('page 3')")
    assert home.texts(".position") == ["2 / 20"]
    home.press("j")
    home.wait("document.querySelector('.position')?.textContent === '3 / 20'")
    home.press("ArrowLeft")
    home.wait("document.querySelector('.position')?.textContent === '2 / 20'")
    home.press("Escape")
    home.wait("!document.getElementById('list-view').hidden")
    assert home.run("document.querySelector('.row.selected .title').innerText").split() == [
        "reports/river.pdf",
        "p.",
        "3",
    ]
    home.press("?")
    assert home.run("document.getElementById('help').open")


def test_page_link_works_in_a_new_tab_and_names_a_missing_page(browser, site):
    place = page_of(site, "reports/river.pdf", 2)
    browser.open(f"{(site / 'index.html').as_uri()}#{place}")
    browser.wait("document.querySelector('.page-bar h1')?.textContent === 'river.pdfpage 2 of 4'")
    browser.open(f"{(site / 'index.html').as_uri()}#page=%3Cimg%3E")
    assert browser.texts(".message") == ["The page <img> does not exist."]


def test_documents_lead_to_their_pages(home):
    home.run("document.getElementById('tab-documents').click()")
    home.wait("document.querySelector('#found').textContent === '4 documents'")
    assert titles(home)[0] == "letter.pdf"
    home.press("Enter")
    home.wait("document.querySelector('#found').textContent.startsWith('3 of 20 pages: letter.pdf')")


def test_a_narrow_screen_and_the_dark_show_the_same(browser, site):
    browser.size(390, 800)
    browser.scheme("dark")
    try:
        browser.open((site / "index.html").as_uri())
        assert browser.run("document.documentElement.scrollWidth") <= 390
        assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(20, 21, 25)"
        opened(browser, page_of(site, "reports/river.pdf", 2))
        assert browser.run("document.documentElement.scrollWidth") <= 390
    finally:
        browser.size(1300, 900)
        browser.scheme("light")


def test_text_of_models_and_names_runs_and_fetches_nothing(home, site):
    home.wait("document.querySelector('.row')")
    opened(home, page_of(site, HOSTILE_NAME, 1))
    home.wait("document.querySelector('article .math')")
    every = "[...document.querySelectorAll('article, article *')]"
    home.run(f"{every}.forEach((one) => one.dispatchEvent(new MouseEvent('mouseover', {{bubbles: true}})))")
    assert home.run(f"{every}.filter((one) => one.hasAttribute('href')).length") == 0
    for key in ("m", "i", "m", "i"):
        home.press(key)
    home.go("view=documents")
    home.wait("document.querySelector('#found').textContent.endsWith('documents')")
    home.go("q=cell")
    home.wait("document.querySelector('.excerpt mark')")
    assert home.run("window.hacked") is None
    assert home.run("document.querySelectorAll('iframe, article svg, [onerror], [onload], [onmouseover]').length") == 0
    assert all(url.startswith(("file:", "about:")) for url in home.requests)
    assert [line for line in home.log if "katex" not in line] == []


def test_the_words_of_hostile_pages_are_shown_as_they_are(home, site):
    opened(home, page_of(site, HOSTILE_NAME, 1))
    shown = home.texts("article")[0]
    assert "<script>window.hacked = 1</script>" in shown
    assert "![x](http://127.0.0.1:9/track.png)" in shown
    assert home.run("document.querySelector('.page-bar h1').title") == HOSTILE_NAME


@pytest.mark.parametrize("format", ["documents", "markdown", "json", "jsonl", "dolma", "chunks", "olmocr-bench"])
def test_documents_and_exports_hold_no_active_content(workspace, tmp_path, format):
    folder = Path(workspace) / "documents" if format == "documents" else tmp_path
    if format != "documents":
        llm_ocr.export(workspace=workspace, format=format, output=str(tmp_path))
    files = [path for path in folder.rglob("*") if path.suffix in (".md", ".json", ".jsonl", ".gz", ".parquet")]
    texts = [gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data for data in map(Path.read_bytes, files)]
    said = b"\n".join(texts).decode("utf-8", "replace").replace("\\/", "/")
    assert "window.hacked = 1" in said
    for active in (
        *("<script>w", '<img src=x onerror="', "<svg", "<iframe", "<a href", "<body", "](javas", "](data"),
        "![x](http",
    ):
        assert active not in said.replace('\\"', '"'), active  # names of documents are data, and stay
    assert "<table><tr><td>" in said


def test_no_file_of_the_site_is_named_by_a_document_or_a_model(site):
    names = {path.name for path in site.rglob("*") if "katex" not in path.parts}
    assert all(re.fullmatch(r"[\w.-]+", name) for name in names)


def test_the_policy_forbids_scripts_that_are_not_the_sites(home):
    home.run("document.body.insertAdjacentHTML('beforeend', '<img src=x: onerror=hacked=40>')")
    home.run("void document.body.append(Object.assign(document.createElement('script'), {text: 'hacked = 41'}))")
    for refused in ("inline event handler", "inline script"):
        home.hear(refused)
    assert home.run("window.hacked") is None


def test_new_view_replaces_the_old_and_refuses_other_folders(workspace, tmp_path):
    output = tmp_path / "site"
    assert main(["view", "-w", workspace, "--output", str(output), "--quiet"]) == 0
    before = {path.name for path in output.iterdir()}
    llm_ocr.view(workspace=workspace, output=output)
    after = {path.name for path in output.iterdir()}
    assert len(after) == len(before) == 3
    assert len(before & after) == 2
    assert next(iter(after - before)) in (output / "index.html").read_text()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="has other content"):
        llm_ocr.view(workspace=workspace, output=tmp_path / "other")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["thesis.txt"]
    with pytest.raises(UsageError, match="is a file"):
        llm_ocr.view(workspace=workspace, output=tmp_path / "other" / "thesis.txt")


def test_a_writing_that_breaks_off_leaves_the_site_before(workspace, tmp_path, monkeypatch):
    from llm_ocr_outputs.viewer.site import SiteWriter

    output = tmp_path / "site"
    llm_ocr.view(workspace=workspace, output=output)
    before = (output / "index.html").read_text()

    def broken(self, view):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SiteWriter, "add", broken)
    with pytest.raises(llm_ocr.errors.StorageError, match="cannot write the site"):
        llm_ocr.view(workspace=workspace, output=output)
    assert (output / "index.html").read_text() == before
    assert len(list(output.iterdir())) == 3


def test_unassembled_workspace_is_shown_as_far_as_it_is_read(tmp_path, capsys):
    url = make(str(tmp_path / "run"), {"a.pdf": 2}, page, assemble=False)
    assert main(["view", "-w", url, "--output", str(tmp_path / "site")]) == 0
    out, err = capsys.readouterr()
    assert "2 pages: open" in out
    assert "not assembled" in err


def test_a_workspace_without_pages_says_what_to_run(tmp_path, examples):
    url = str(tmp_path / "run")
    llm_ocr.plan(examples / "paper.pdf", workspace=url, engine="embedded")
    with pytest.raises(StageMissing, match="llm-ocr extract"):
        llm_ocr.view(workspace=url, output=tmp_path / "site")
    assert not list(tmp_path.glob("site/site-*"))


def first(name: str, number: int) -> Wanted:
    return text(f"The level of page {number} is 187 cm and it rises.", "The same words in both.")


def second(name: str, number: int) -> Wanted:
    if name == "same.pdf":
        return first(name, number)
    if name == "a.pdf" and number == 2:
        return Wanted(status=Status.FAILED, reason=Reason.EMPTY)
    return replace(text(f"The level of page {number} is 137 cm and it rises.", "The same words in both."), quality=0.5)


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> Path:
    """The same names, by other ids: documents meet by their paths."""
    folder = tmp_path_factory.mktemp("compare")
    one = make(str(folder / "one"), {"a.pdf": 2, "same.pdf": 1, "gone.pdf": 1}, first)
    other = make(str(folder / "other"), {"new.pdf": 1, "same.pdf": 1, "a.pdf": 2}, second, ids="id of ")
    return llm_ocr.view(workspace=one, compare=other, output=folder / "site").index


@pytest.fixture
def side_by_side(browser, compared) -> Browser:
    browser.size(1400, 900)
    browser.open(compared.as_uri())
    return browser


def test_pages_pair_by_document_and_number_sorted_by_similarity(side_by_side):
    rows = [" ".join(one.split()) for one in side_by_side.texts("#rows .row")]
    assert sorted(rows[:2]) == [row for row in sorted(rows) if "only in" in row]
    assert {row.split()[0] for row in rows[:2]} == {"gone.pdf", "new.pdf"}
    assert [row.split()[0] + row.split()[2] for row in rows[2:]] == ["a.pdf2", "a.pdf1", "same.pdf1"]
    assert rows[-1].endswith("100")
    assert "there failed" in rows[2]


def test_words_that_differ_are_marked_on_both_sides(side_by_side):
    side_by_side.run("document.querySelectorAll('.row')[3].click()")
    side_by_side.wait("document.querySelector('.panes.of-2')")
    assert side_by_side.texts(".text.pane > h2") == ["one", "other"]
    assert [one.split() for one in side_by_side.texts("article mark")] == [["187"], ["137"]]
    side_by_side.press("n")
    side_by_side.press("n")
    assert side_by_side.texts("mark.here") == ["137"]
    assert "93.8 % of words equal" in side_by_side.texts(".page-bar")[0]
    assert side_by_side.log == []


def test_pages_that_only_one_has_can_be_listed(side_by_side):
    side_by_side.go("side=second")
    side_by_side.wait("document.querySelector('#found').textContent.startsWith('1 of 5')")
    side_by_side.run("document.querySelector('.row').click()")
    side_by_side.wait("document.querySelector('.panes.of-2')")
    assert side_by_side.texts(".text.pane .message") == ["This workspace does not have the page."]
    side_by_side.go("below=95&side=both")
    side_by_side.wait("document.querySelector('#found')?.textContent.startsWith('2 of 5')")


def test_a_page_image_that_both_have_is_kept_once(compared):
    images = sorted(path.name for path in compared.parent.glob("site-*/images/0/*"))
    assert images == ["0.png", "1.png", "2.png", "3.png", "4-b.png"]


def test_words_of_both_readings_are_found(side_by_side):
    for word in ("187", "137"):
        side_by_side.go(f"q={word}")
        side_by_side.wait("/^[1-9] of 5/.test(document.querySelector('#found').textContent)")
        assert any("a.pdf" in row for row in side_by_side.texts("#rows .row"))


def test_viewer_names_each_evidence_of_a_text():
    script = (Path(llm_ocr_outputs.viewer.__file__).parent / "site" / "page.js").read_text(encoding="utf-8")
    (names,) = re.findall(r'"compared with", \{([^}]*)\}', script)
    assert re.findall(r"(\w+): ", names) == list(get_args(Verify))


@pytest.mark.slow
def test_fields_are_shown_beside_their_quotes_in_the_picture(browser, workspace, tmp_path):
    copy = tmp_path / "with-fields"
    shutil.copytree(workspace, copy)
    evil = "<img src=x onerror=hacked=40>"
    answer = {
        "river": {"quote": "The willow above the weir", "value": evil},
        "tree": {"quote": "the willow above", "value": "willow"},
        "year": {"quote": "in 1887", "value": 1887},
    }
    schema = {"type": "object", "properties": {name: {} for name in answer}}
    (tmp_path / "forced.json").write_text(json.dumps({"[page": json.dumps(answer)}))
    with running(forced=tmp_path / "forced.json", served_model_name="qwen3-vl-8b", preset="h100", speed=50) as server:
        llm_ocr.fields(workspace=copy, schema=schema, server_url=server.url, progress=None)
    site = tmp_path / "site"
    index = llm_ocr.view(workspace=copy, output=site, progress=None).index
    browser.size(1300, 900)
    browser.open(index.as_uri())
    opened(browser, page_of(site, "reports/river.pdf", 2))
    assert browser.texts(".fields tr") == [
        f"river\t{evil}\tThe willow above the weir",
        "tree\twillow\tthe willow above",
    ]
    box = "document.querySelector('.box.k-field')"
    assert browser.run(f"{box}.getAttribute('aria-label')") == "quote of river, tree"
    assert browser.run("document.querySelectorAll('.box.k-field').length") == 1
    place = browser.run(f"[{box}.style.left, {box}.style.top]")
    assert place == browser.run("(({style}) => [style.left, style.top])(document.querySelector('.box[data-b=\"1\"]'))")
    browser.run("document.querySelector('.fields tr').dispatchEvent(new MouseEvent('mouseenter'))")
    assert browser.run(f"{box}.classList.contains('pointed')")
    opened(browser, page_of(site, "reports/river.pdf", 1))
    browser.wait("document.querySelector('.fields tr.unquoted')")
    assert browser.texts(".fields tr.unquoted")[0].split("\t")[0] == "year"
    assert browser.run("window.hacked") is None and browser.log == []


@pytest.mark.slow
def test_fields_without_a_page_are_on_the_first_read_page(tmp_path):
    answer = {"total": {"quote": "", "value": "nowhere"}}
    (tmp_path / "forced.json").write_text(json.dumps({"[page": json.dumps(answer)}))
    (tmp_path / "a.pdf").write_bytes(text_pdf(*good_pages("a", 3)))
    one = {"render_workers": 1, "ocr_workers": 1, "progress": None}
    llm_ocr.run(tmp_path / "a.pdf", workspace=tmp_path / "w", pages="2-3", engine="embedded", **one)
    with running(forced=tmp_path / "forced.json", served_model_name="qwen3-vl-8b", preset="h100", speed=50) as server:
        schema = {"type": "object", "properties": {"total": {"type": "string"}}}
        llm_ocr.fields(workspace=tmp_path / "w", schema=schema, server_url=server.url, progress=None)
    llm_ocr.view(workspace=tmp_path / "w", output=tmp_path / "site", progress=None)
    texts = [file.read_text() for file in (tmp_path / "site").rglob("data/pages/*.js")]
    assert sum(text.count("nowhere") for text in texts) == 1
