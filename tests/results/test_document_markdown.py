"""Pages become one document, with gaps that can be seen and figures that can be found."""

from urllib.parse import unquote

from made import failed, record
from markdown_it import MarkdownIt

from llm_ocr.results.documents import document_markdown, figure_file, markdown_file
from llm_ocr.types import Reason

DOCUMENT = "0123456789abcdef"


def test_pages_stand_in_order_behind_their_markers():
    pages = [(record(2, figures=0), "two"), (record(1, figures=0), "one\n")]
    assert document_markdown(pages, "a.pdf") == "<!-- page 1 -->\n\none\n\n<!-- page 2 -->\n\ntwo\n"


def test_markers_can_be_turned_off_but_a_failed_page_stays_visible():
    pages = [
        (record(1, figures=0), "one"),
        (failed(2, document=DOCUMENT, reason=Reason.RENDER_TIMEOUT), ""),
        (record(3, figures=0), ""),
    ]
    gap = "<!-- page 2 failed: render timeout -->"
    assert document_markdown(pages, "a.pdf", page_markers=False) == f"one\n\n{gap}\n"
    assert document_markdown(pages, "a.pdf") == f"<!-- page 1 -->\n\none\n\n{gap}\n\n<!-- page 3 -->\n"


def test_a_document_that_could_not_be_opened_says_why():
    assert document_markdown([(failed(), "")], "b.pdf") == "<!-- document failed: encrypted -->\n"


def test_markers_are_not_seen_when_the_text_is_rendered():
    text = document_markdown([(record(1, figures=0), "one"), (failed(2, document=DOCUMENT), "")], "a.pdf")
    kinds = [token.type for token in MarkdownIt("commonmark").parse(text)]
    assert kinds.count("html_block") == 2
    assert kinds.count("inline") == 1


def test_figure_links_lead_to_the_files_beside_the_text():
    page = record(1)
    figure = page.figures[0]
    name = "reports/über #1 (50%) x.pdf"
    text = document_markdown([(page, page.markdown)], name)
    [image] = [t for token in MarkdownIt("commonmark").parse(text) for t in token.children or () if t.type == "image"]
    folder = markdown_file(name).rpartition("/")[0]
    assert f"{folder}/{unquote(str(image.attrs['src']))}" == figure_file(name, figure)
    assert figure_file(name, figure) == f"documents/{name}.figures/{figure.id}.png"


def test_links_to_unknown_figures_and_links_in_code_stay():
    page = record(1)
    link = f"![x](figure:{page.figures[0].id})"
    text = document_markdown([(page, f"![y](figure:other)\n\n```\n{link}\n```")], "a.pdf", page_markers=False)
    assert text == f"![y](figure:other)\n\n```\n{link}\n```\n"
