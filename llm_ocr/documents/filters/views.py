"""What filters see of an opened document. In the renderer's process: pdfium is not thread-safe and may crash."""

import re
from functools import cached_property
from typing import TYPE_CHECKING

import pypdfium2
import pypdfium2.raw as pdfium

from llm_ocr.documents.filters import TEXT_CHARACTERS, TEXT_PAGES
from llm_ocr.documents.images import BLANK, ImageFile, blank
from llm_ocr.documents.pdf_file import PdfFile
from llm_ocr.errors import PageFailure

if TYPE_CHECKING:
    from PIL import Image


#: Longest side in pixels of the images in which ink is searched for: a dot of a point still darkens a pixel by a fifth,
#: the noise of a scanned empty sheet is averaged away.
_SIDE = 400
#: Pages whose form fields are looked at; the forms of the documents measured begin within the first 10.
_FORM_PAGES = 200
#: Annotations of a page that are looked at.
_ANNOTATIONS = 1000
_XFA = (pdfium.FORMTYPE_XFA_FULL, pdfium.FORMTYPE_XFA_FOREGROUND)
#: Buttons that are pushed, and signatures, make no form: slides and signed reports have them.
_FILLABLE = {
    pdfium.FPDF_FORMFIELD_TEXTFIELD: "text field",
    pdfium.FPDF_FORMFIELD_COMBOBOX: "choice",
    pdfium.FPDF_FORMFIELD_LISTBOX: "choice",
    pdfium.FPDF_FORMFIELD_CHECKBOX: "check box",
    pdfium.FPDF_FORMFIELD_RADIOBUTTON: "radio button",
}
_READ_ONLY = 1  # PDF 32000-1, table 221: bit 1 of a field's flags
_SPACE = re.compile(r"\s+")


class PdfView:
    """Of a PDF. One that only poppler can open shows nothing, and stays."""

    def __init__(self, document: PdfFile) -> None:
        self._document = document

    def text(self) -> str:
        """The text layer of the first pages, each stretch of space as one space."""
        return self._text

    @cached_property
    def _text(self) -> str:
        pdf = self._document.opened
        if pdf is None:
            return ""
        pages = (_page_text(pdf, index) for index in range(min(len(pdf), TEXT_PAGES)))
        return _SPACE.sub(" ", "\n".join(pages)).strip()

    def form(self) -> str:
        """An XFA form, or the first field of an AcroForm that is there to be filled in."""
        pdf = self._document.opened
        kind = pdf.get_formtype() if pdf is not None else pdfium.FORMTYPE_NONE
        if pdf is None or kind == pdfium.FORMTYPE_NONE:
            return ""
        if kind in _XFA:
            return "XFA"
        for index in range(min(len(pdf), _FORM_PAGES)):
            if field := _fillable(pdf, index):
                return f"AcroForm, {field} on page {index + 1}"
        return ""

    def blank(self) -> bool:
        """Whether no page has text or ink; one that cannot be looked at may have."""
        pdf = self._document.opened
        return pdf is not None and all(
            not _page_text(pdf, index).strip() and self._without_ink(index + 1) for index in range(len(pdf))
        )

    def _without_ink(self, number: int) -> bool:
        try:
            image = self._document.thumbnail(number, _SIDE)
        except PageFailure:
            return False
        return image is not None and _plain(image)


class ImageView:
    """Of an image file, which has no text layer."""

    def __init__(self, document: ImageFile) -> None:
        self._document = document

    def text(self) -> str:
        return ""

    def form(self) -> str:
        return ""

    def blank(self) -> bool:
        """Whether no frame has ink; one that cannot be decoded may have."""
        return all(self._without_ink(number) for number in range(1, self._document.pages + 1))

    def _without_ink(self, number: int) -> bool:
        try:
            image, _ = self._document.page(number, size=_SIDE, image_format="png", quality=0)
            return blank(image)
        except PageFailure:
            return False


def view_of(document: PdfFile | ImageFile) -> PdfView | ImageView:
    """What filters look at."""
    return PdfView(document) if isinstance(document, PdfFile) else ImageView(document)


def _page_text(pdf: pypdfium2.PdfDocument, index: int) -> str:
    """Empty for a page that cannot be loaded."""
    try:
        page = pdf[index]
    except pypdfium2.PdfiumError:
        return ""
    try:
        layer = page.get_textpage()
        count = min(layer.count_chars(), TEXT_CHARACTERS)
        return str(layer.get_text_range(0, count, errors="replace")) if count > 0 else ""
    finally:
        page.close()


def _fillable(pdf: pypdfium2.PdfDocument, index: int) -> str:
    """The first field of a page that may be filled in, in words."""
    try:
        page = pdf[index]
    except pypdfium2.PdfiumError:
        return ""
    try:
        for number in range(min(pdfium.FPDFPage_GetAnnotCount(page), _ANNOTATIONS)):
            annotation = pdfium.FPDFPage_GetAnnot(page, number)
            kind = pdfium.FPDFAnnot_GetFormFieldType(pdf.formenv, annotation)
            flags = pdfium.FPDFAnnot_GetFormFieldFlags(pdf.formenv, annotation)
            pdfium.FPDFPage_CloseAnnot(annotation)
            if kind in _FILLABLE and not flags & _READ_ONLY:
                return _FILLABLE[kind]
        return ""
    finally:
        page.close()


def _plain(image: "Image.Image") -> bool:
    """Whether nothing stands out of a grey image: paper of any shade is plain."""
    values = [value for value, count in enumerate(image.convert("L").histogram()) if count]
    return values[-1] - values[0] < BLANK
