"""Export with `format=pdf`: the documents as PDFs whose text can be found, copied, and read aloud."""

import asyncio
import json
from collections.abc import Iterator

from llm_ocr.exporting import Exported, ExportJob
from llm_ocr_outputs.files import Batch, Failed, File, Form, export_files
from llm_ocr_outputs.originals import Originals, PlacedPage
from llm_ocr_outputs.source import Document

#: Pages of a batch. The pages of an interrupted batch are read by OCR again.
_PAGES = 200
_SUFFIX = ".pdf"


def pdf_file(name: str) -> str:
    """Return the key of a document. `name` is the document's in the Markdown tree; images keep their extension."""
    return name if name.lower().endswith(_SUFFIX) else f"{name}{_SUFFIX}"


def page_wire(page: PlacedPage) -> bytes:
    """Return the text of a page for `pdf_worker` as JSON.

    `words` are lists of the text, the sides of its relative box, the direction of its line, and the character that
    follows it: a space, a hyphen in a broken word, or "" in a script that has no hyphens.
    """
    words = []
    for block in page.blocks:
        for line in block.lines:
            for word in line.words:
                box = word.box
                follows = (
                    " " if not word.continues else "-" if word.text[-1].isalpha() and word.text[-1] < "\u0e00" else ""
                )
                sides = (round(side, 5) for side in (box.x0, box.y0, box.x1, box.y1))
                words.append((word.text, *sides, line.direction, follows))
    about = {"rotation": page.row.record.rotation, "keep": page.layer_is_true, "words": words}
    return json.dumps(about, separators=(",", ":")).encode()


async def export_pdf(job: ExportJob) -> Exported:
    """Write a PDF for each document: its own pages, with an invisible text layer. Errors as in `export_files`.

    Pages with visible, true text are unchanged, as are pages without a row and pages that failed. A document whose
    source is gone, has changed, or cannot be opened is listed in `failed-documents.jsonl`.
    """
    loop = asyncio.get_running_loop()
    async with Originals(job) as originals:

        async def made(document: Document) -> bytes:
            texts = {str(page.number): page_wire(page) async for page in originals.pages(document)}
            return bytes((await originals.work("write", document.part, {"pages": texts}))["pdf"])

        def write(_: Batch, documents: Iterator[Document]) -> Iterator[File | Failed]:
            for document, result in originals.in_order(loop, documents, made):
                if isinstance(result, bytes):
                    for place, name in enumerate(document.names):
                        yield File(pdf_file(name), result, records=int(place == 0))
                else:
                    yield Failed(document, result)

        return await export_files(job, Form("pdf", 1, write, "ls {}".format, pages=_PAGES))
