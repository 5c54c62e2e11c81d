"""A quick engine in the place of the renderer's and the embedded reader's processes: a page costs no time.

Everything else of a run is the real one: settings, plan, units, leases, rows, markers, views.
"""

import contextlib
import io
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from PIL import Image

from llm_ocr.documents.rendering import Renderer
from llm_ocr.types import Attempt, Block, BlockKind, Box, EncodedImage, Page, Status
from llm_ocr_cpu.reader import EmbeddedReader


def _picture(side: int) -> EncodedImage:
    buffer = io.BytesIO()
    Image.new("L", (side, side), 200).save(buffer, "PNG")
    return EncodedImage(buffer.getvalue(), "image/png", side, side)


PAGE, FIGURE = _picture(16), _picture(4)


async def _open(self, source: str, kind: str = "") -> int:
    """As many pages as the name's beginning says: `3 letters.pdf`."""
    return int(Path(source).name.partition(" ")[0])


async def _open_all(self, asked) -> list[int]:
    return [await _open(self, source, kind) for source, kind, _ in asked]


async def _page(
    self, source: str, kind: str, number: int, *, page_id: str, document_id: str, version: str = ""
) -> Page:
    return Page(page_id, document_id, number, PAGE, None, source)


async def _crop(self, image: EncodedImage, boxes: list[Box], *, image_format: str = "") -> tuple[EncodedImage, ...]:
    return (FIGURE,) * len(boxes)


async def _read(self, page: Page, on_dispatched=lambda: None) -> Attempt:
    text = Block(BlockKind.TEXT, Box(0.1, 0.1, 0.9, 0.4), f"Text of {page.id}.")
    figure = Block(BlockKind.FIGURE, Box(0.1, 0.5, 0.9, 0.9), label="figure")
    return Attempt("embedded", "text-layer", Status.OK, (text, figure))


async def _read_figure(self, image: EncodedImage) -> str:
    return "what stands in it"


@contextlib.contextmanager
def quick_engine() -> Iterator[None]:
    """In this process, as long as the block lasts."""
    with (
        mock.patch.multiple(Renderer, open=_open, open_all=_open_all, page=_page, crop=_crop),
        mock.patch.multiple(EmbeddedReader, read=_read, read_figure=_read_figure),
    ):
        yield


def make_documents(folder: Path, pages: list[int]) -> Path:
    """PDFs by name; their content only has to differ. Each is one unit with `pages_per_unit=1`, or several."""
    folder.mkdir(exist_ok=True)
    for place, count in enumerate(pages):
        (folder / f"{count} pages, {place:02d}.pdf").write_bytes(
            b"%PDF-1.4 " + struct.pack(">I", zlib.crc32(b"%d" % place))
        )
    return folder
