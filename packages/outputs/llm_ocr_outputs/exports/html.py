"""Export with `format=html`: one self-contained file for each document."""

import base64
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from html import escape, unescape
from importlib import resources

from llm_ocr.exporting import Exported, ExportJob
from llm_ocr.results.dataset import DatasetRow
from llm_ocr.results.documents import FOLDER, figure_file
from llm_ocr.results.figure_text import figure_words
from llm_ocr.results.markdown import clean, one_line
from llm_ocr.types import Status
from llm_ocr.workspace import library_version
from llm_ocr_outputs.exports.documents import read_file
from llm_ocr_outputs.exports.formulas import converter, mathml
from llm_ocr_outputs.files import Batch, Failed, File, Form, export_files
from llm_ocr_outputs.source import Document, language_of
from llm_ocr_outputs.viewer.index import visible_text
from llm_ocr_outputs.viewer.pages import page_view

# A file has the HTML of the viewer, which is inert (`viewer/rendering.py`), with three changes: figures are data URLs,
# formulas are MathML, and alignment of cells is CSS. It contains no scripts, and its policy forbids requests.
#
# main > section#page-3    a page, with the number of its file; its language, if it differs from the document's
# .unsupported             text that nothing on the page supports (see docs/explanation/ledger.md)
# .notice                  why a page failed or is degraded


#: Number of figures that are read concurrently.
_AT_ONCE = 16
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_HEADING = re.compile(r"<h[1-6][^>]*>(.*?)</h[1-6]>", re.DOTALL)
_ALIGNED = re.compile(r'(<t[dh][^<>]*?) align="(left|center|right)"')
_MATH = re.compile(r'<(?P<tag>span|div) class="(?P<class>math[^"]*)"(?P<rest>[^<>]*)>(?P<latex>[^<]*)</(?P=tag)>')
_FIGURE = re.compile(r'(<span class="figure[^"]*" data-f="(\d+)"[^<>]*>)</span>')


async def export_html(job: ExportJob) -> Exported:
    """Write an HTML file for each document, with its figures; errors as in `export_files`.

    A file is in memory as a whole, with its figures. A document that could not be opened is listed in
    `failed-documents.jsonl`.

    Raises:
        MissingExtra: the library that converts formulas is not installed.
        StorageError: a figure that Assemble wrote is missing.
    """
    converter()

    def write(batch: Batch, documents: Iterator[Document]) -> Iterator[File | Failed]:
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="llm-ocr-export") as pool:
            for document in documents:
                if failure := document.failure:
                    yield Failed(document, failure)
                    continue
                name = document.names[0]
                figures = [figure for row in document.rows for figure in row.record.figures]
                keys = [figure_file(name, figure) for figure in figures]
                data = pool.map(partial(read_file, job.workspace), keys)
                images = {figure.id: one for figure, one in zip(figures, data, strict=True)}
                html = document_html(document, images).encode()
                for place, copy in enumerate(document.names):
                    yield File(f"{FOLDER}/{copy}.html", html, records=int(place == 0))

    return await export_files(job, Form("html", 2, write, lambda url: f"the .html files in {url}/{FOLDER}"))


def document_html(document: Document, images: Mapping[str, bytes]) -> str:
    """Return a document as HTML that needs no other file.

    Args:
        document: The document with its rows in page order.
        images: The bytes of its figures by id.
    """
    pages = [page_view(row, document.source, document.page_total).html for row in document.rows]
    languages = [language_of(row.record) for row in document.rows]
    language = Counter(filter(None, languages)).most_common(1)
    main = language[0][0] if language else ""
    heading = next((found for page in pages if (found := _HEADING.search(page))), None)
    title = (visible_text(heading[1]) if heading else "") or document.source.rpartition("/")[2]
    marked = any("unsupported" in tag for page in pages for tag in re.findall(r"<[^>]*>", page))
    sections = [
        _section(row, page, own if own != main else "", images)
        for row, page, own in zip(document.rows, pages, languages, strict=True)
    ]
    note = '<p><u class="unsupported">Underlined text</u>: nothing on the page supports it.</p>\n' if marked else ""
    return clean(
        f"""<!DOCTYPE html>
<html{f' lang="{main}"' if main else ""}>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="llm-ocr {escape(library_version())}">
<title>{escape(title)}</title>
<style>
{_style()}</style>
</head>
<body>
<header>
<p>{escape(document.source)}</p>
{note}</header>
<main>
{"".join(sections)}</main>
</body>
</html>
"""
    )


@cache
def _style() -> str:
    return resources.files(__package__).joinpath("document.css").read_text("utf-8")


def _section(row: DatasetRow, html: str, language: str, images: Mapping[str, bytes]) -> str:
    record = row.record

    def with_image(found: re.Match[str]) -> str:
        figure = record.figures[int(found[2])]
        described = row.figures.get(figure.id)
        words = one_line(figure_words(described)) if described else ""
        alt = escape(words or figure.caption or figure.label)
        url = f"data:{figure.image.media_type};base64,{base64.b64encode(images[figure.id]).decode()}"
        size = f'width="{figure.image.width}" height="{figure.image.height}"'
        return f'{found[1]}<img src="{url}" alt="{alt}" {size}></span>'

    def with_mathml(found: re.Match[str]) -> str:
        display = found["tag"] == "div" or "display" in found["class"]
        formula = mathml(unescape(found["latex"]), display=display) or f"<code>{found['latex']}</code>"
        return f'<{found["tag"]} class="{found["class"]}"{found["rest"]}>{formula}</{found["tag"]}>'

    html = _ALIGNED.sub(r'\1 style="text-align:\2"', html)
    html = _FIGURE.sub(with_image, _MATH.sub(with_mathml, html))
    notice = ""
    if record.status is not Status.OK:
        reason = f": {escape(record.reason.value)}" if record.reason else ""
        detail = f" ({escape(one_line(record.detail))})" if record.detail else ""
        notice = f'<p class="notice" dir="ltr">This page {_VERDICTS[record.status]}{reason}{detail}</p>\n'
    attributes = f' lang="{language}"' if language else ""
    number = record.page_number
    link = f'<a class="number" href="#page-{number}" aria-label="Page {number}">{number}</a>'
    return f'<section class="page" id="page-{number}" dir="auto"{attributes}>\n{link}\n{notice}{html}</section>\n'


_VERDICTS = {Status.DEGRADED: "may be wrong or incomplete", Status.FAILED: "could not be read"}
