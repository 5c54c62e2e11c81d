"""Export with `format=pdf`: the documents as PDFs whose text can be found, copied, and read aloud."""

import json
from importlib.util import find_spec

from llm_ocr.documents.files import PDF, kind_by_name
from llm_ocr.errors import MissingExtra
from llm_ocr.exporting import Exported, ExportJob
from llm_ocr_outputs.files import File
from llm_ocr_outputs.originals import Originals, export_originals
from llm_ocr_outputs.source import Document
from llm_ocr_outputs.words import PlacedPage

_SUFFIX = ".pdf"


def pdf_file(name: str) -> str:
    """Return the key of a document. `name` is the document's in the Markdown tree; images keep their extension.

    `a.jpg` gives `a.jpg.pdf`, so that the document `a.jpg.pdf` becomes `a.jpg.pdf.pdf`.
    """
    is_pdf = kind_by_name(name) == PDF and not kind_by_name(name[: -len(_SUFFIX)])
    return name if is_pdf else f"{name}{_SUFFIX}"


def page_wire(page: PlacedPage) -> bytes:
    """Return the text of a page for `pdf_worker` as JSON.

    `rotation` are the degrees by which the page was turned before it was read; with `credible`, visible text is true.
    `lines` have the direction, the sides of the relative box, and the words: text, start and end as shares of the
    line's length, and the character that follows: a space, a hyphen in a broken word, or "" in scripts without hyphens.
    """
    lines = []
    for line in (line for block in page.blocks for line in block.lines):
        words = []
        for word in line.words:
            hyphen = "-" if word.text[-1].isalpha() and word.text[-1] < _HYPHENATED else ""
            words.append((word.text, *line.extent(word), hyphen if word.continues else " "))
        sides = line.box.x0, line.box.y0, line.box.x1, line.box.y1
        lines.append((line.direction, sides, words))
    about = {"rotation": page.record.rotation, "credible": page.text_is_credible, "lines": lines}
    return json.dumps(about, separators=(",", ":")).encode()


#: First letter after the scripts with hyphens.
_HYPHENATED = "\u0590"


async def export_pdf(job: ExportJob) -> Exported:
    """Write a PDF for each document: its own pages, with an invisible text layer. Errors as in `export_files`.

    Pages with visible, true text get the lines that it lacks. Pages without such lines, without a row, or that failed
    are unchanged. A document whose
    source is gone, has changed, or cannot be opened is listed in `failed-documents.jsonl`.

    Raises:
        MissingExtra: pikepdf is not installed.
    """
    if find_spec("pikepdf") is None:
        raise MissingExtra("`format=pdf` needs the library pikepdf", install="pdf")

    async def made(originals: Originals, document: Document) -> list[File]:
        texts = {str(page.record.page_number or 1): page_wire(page) for page in await originals.pages(document)}
        data = bytes((await originals.work("write", document.part, {"pages": texts}))["pdf"])
        return [File(pdf_file(name), data, records=int(place == 0)) for place, name in enumerate(document.names)]

    return await export_originals(job, "pdf", made, "ls {}".format, version=2)
