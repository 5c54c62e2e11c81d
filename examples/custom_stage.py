"""A stage of one's own: e-mail addresses and telephone numbers are blacked out between Extract and Describe.

    python examples/custom_stage.py report.pdf out

A stage is a function from a page's row to its new row. It runs over the workspace as the other stages do: unit by unit,
resumable, on any number of machines (`shard_index`, `shard_count`, or leases). What Extract published stays as it was:
a workspace that must not hold it is made elsewhere, and only its dataset and documents are passed on.
"""

import re
import sys
from dataclasses import replace

import llm_ocr
from llm_ocr.types import PageRecord

_PRIVATE = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+|\+?\d[\d ()/-]{7,}\d")


def redacted(text: str) -> str:
    """The text with a bar in place of what is private."""
    return _PRIVATE.sub("█████", text)


def redact(page: PageRecord) -> PageRecord:
    """The page without its image, and with its texts redacted; figures keep their crops."""
    blocks = tuple(
        replace(
            block,
            text=redacted(block.text),
            inside=redacted(block.inside),
            caption=redacted(block.caption),
            described=redacted(block.described),
        )
        for block in page.blocks
    )
    figures = tuple(
        replace(figure, caption=redacted(figure.caption), inside=redacted(figure.inside)) for figure in page.figures
    )
    return replace(page, markdown=redacted(page.markdown), blocks=blocks, figures=figures, image=None, attempts=())


def main(source: str, workspace: str) -> None:
    """The four stages, one after the other."""
    llm_ocr.extract(source, workspace=workspace, engine="embedded")
    llm_ocr.transform(redact, workspace=workspace, stage="redact", version="1")
    llm_ocr.describe(workspace=workspace, engine="embedded", pages_from="redact")
    run = llm_ocr.assemble(workspace=workspace, pages_from="redact")
    for document in run.documents():
        print(document.markdown)


if __name__ == "__main__":
    main(*sys.argv[1:])
