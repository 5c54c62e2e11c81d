"""Run the worker process that writes searchable PDFs: `python -m llm_ocr_outputs.pdf_worker`."""

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pypdfium2

from llm_ocr.documents.files import IMAGE, PDF, FdFile
from llm_ocr.documents.images import ImageFile, is_negative, plain_image
from llm_ocr.documents.pdf_file import Look, PdfFile
from llm_ocr.documents.pdf_objects import Matrix
from llm_ocr.errors import PageFailure
from llm_ocr.sandbox.confinement import Confinement
from llm_ocr.sandbox.worker import serve
from llm_ocr.types import Reason

if TYPE_CHECKING:
    from PIL import Image

#: Resolution of images without one. Up to 96 dots per inch, the value is that of screens, and says nothing.
DEFAULT_DPI, _SCREEN = 200.0, 96.5
#: Longest side of a page in points (ISO 32000-2, C.2).
_LONGEST = 14400.0
_ORIENTATION, _ON_SIDE = 0x0112, (5, 6, 7, 8)  # EXIF
#: By EXIF's orientation: where the image's unit square has its corners, as a matrix on the page's unit square.
_TURNS: Mapping[int, Matrix] = {
    1: (1, 0, 0, 1, 0, 0),
    2: (-1, 0, 0, 1, 1, 0),
    3: (-1, 0, 0, -1, 1, 1),
    4: (1, 0, 0, -1, 0, 1),
    5: (0, -1, -1, 0, 1, 1),
    6: (0, -1, 1, 0, 0, 1),
    7: (0, 1, 1, 0, 0, 0),
    8: (0, 1, -1, 0, 1, 0),
}


def _size(image: "Image.Image") -> tuple[float, float]:
    """Return the physical size of an upright image in points."""
    across, down = image.info.get("dpi") or (0.0, 0.0)
    if not (_SCREEN < float(across) < 10_000 and _SCREEN < float(down) < 10_000):
        across = down = DEFAULT_DPI
    width, height = 72 * image.width / float(across), 72 * image.height / float(down)
    fit = min(1.0, _LONGEST / max(width, height))
    width, height = width * fit, height * fit
    return (height, width) if image.getexif().get(_ORIENTATION, 1) in _ON_SIDE else (width, height)


def _images(files: Sequence[FdFile]) -> Iterator[tuple[FdFile, "Image.Image"]]:
    """Yield the pages of image files as they are stored, not decoded."""
    for file in files:
        opened = ImageFile(file)
        for number in range(1, opened.pages + 1):
            yield file, opened.frame(number)


def _sizes(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return width and height of each page of image files in points."""
    files = [FdFile(descriptor, payload["source"]) for descriptor in payload["files"]]
    return {"sizes": [_size(image) for _, image in _images(files)]}


def _of_images(files: Sequence[FdFile]) -> pypdfium2.PdfDocument:
    """Return a PDF of images: the bytes of a JPEG unchanged, others without loss."""
    pdf = pypdfium2.PdfDocument.new()
    for file, image in _images(files):
        width, height = _size(image)
        page = pdf.new_page(width, height)
        turn: Matrix = (1, 0, 0, 1, 0, 0)
        made = pypdfium2.PdfImage.new(pdf)
        if image.format in ("JPEG", "MPO"):  # an MPO is a JPEG with others after it, as phones write it
            turn = _TURNS.get(image.getexif().get(_ORIENTATION, 1), turn)
            made.load_jpeg(FdFile(file.fileno(), file.name), inline=True)
        else:
            from PIL import ImageOps

            image.load()
            plain = plain_image(ImageOps.exif_transpose(image))
            bitmap = pypdfium2.PdfBitmap.from_pil(ImageOps.invert(plain) if is_negative(image) else plain)
            made.set_bitmap(bitmap)
            bitmap.close()
        a, b, c, d, e, f = turn
        made.set_matrix(pypdfium2.PdfMatrix(a * width, b * height, c * width, d * height, e * width, f * height))
        page.insert_obj(made)
        page.gen_content()
        page.close()
    return pdf


def write_pdf(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the PDF of a document, whose pages have the given text."""
    from llm_ocr_outputs.pdf_text import with_text  # needs the extra `pdf`, and sizes do not

    files = [FdFile(descriptor, payload["source"]) for descriptor in payload["files"]]
    if (files[0].kind() or PDF) == IMAGE:
        data = io.BytesIO()
        with _of_images(files) as made:
            made.save(data)
            return {"pdf": with_text(data.getvalue(), made, payload["pages"])}
    source = files[0].whole()
    opened = PdfFile(files[0], payload["passwords"], Look(64, 64, "pdfium", 60.0, payload["memory"]))
    try:
        if opened.opened is None:
            raise PageFailure(Reason.UNREADABLE, "pdfium cannot open the document, so that it cannot be written")
        return {"pdf": with_text(source, opened.opened, payload["pages"])}
    finally:
        opened.close()


if __name__ == "__main__":
    serve({"write": write_pdf, "sizes": _sizes}, Confinement())
