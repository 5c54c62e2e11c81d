"""Pages of blocks, and their passages."""

from types import SimpleNamespace

from made import record

from llm_ocr.results.dataset import DatasetRow
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.types import Block, BlockKind, Box
from llm_ocr_outputs.exports.chunks import Limits, document_chunks

BOX = Box(0.1, 0.1, 0.9, 0.2)


def block(kind, text, level=0, **more):
    return Block(BlockKind(kind), more.pop("box", BOX), text, level=level, **more)


def page(number, *blocks, markdown=None, **more):
    text = blocks_to_markdown(blocks) if markdown is None else markdown
    row = record(number, figures=0, blocks=blocks, markdown=text, **more)
    return DatasetRow(row, text)


def chunks(*rows, size=2000, overlap=0, measure=len):
    found = document_chunks("doc", "/in/a.pdf", "a.pdf", rows, Limits(size, overlap, measure))
    return [SimpleNamespace(**row, size=row["characters"] if measure is len else row["tokens"]) for row in found]


def texts(*rows, **limits):
    return [chunk.text for chunk in chunks(*rows, **limits)]
