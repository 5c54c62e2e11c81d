"""Show an opened document to the filters, in the renderer's process: pdfium is not thread-safe and may crash."""

import re
from functools import cached_property

import pypdfium2
import pypdfium2.raw as pdfium

from llm_ocr.documents.filters import TEXT_CHARACTERS, TEXT_PAGES
from llm_ocr.documents.images import ImageFile
from llm_ocr.documents.ink import ink_of
from llm_ocr.documents.pdf_file import PdfFile
from llm_ocr.errors import PageFailure

#: Longest side in pixels of the images that are searched for ink.
_SIDE = 700
#: Limit of pages searched for form fields; in the measured documents, forms begin within the first 10.
_FORM_PAGES = 200
#: Limit of checked annotations per page.
_ANNOTATIONS = 1000
_XFA = (pdfium.FORMTYPE_XFA_FULL, pdfium.FORMTYPE_XFA_FOREGROUND)
#: Push buttons and signatures do not make a form: slides and signed reports contain them.
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
    """View of a PDF. A PDF that only poppler can open shows nothing, and stays."""

    def __init__(self, document: PdfFile) -> None:
        self._document = document

    def text(self) -> str:
        """Return the text layer of the first pages, each run of whitespace as one space."""
        return self._text

    @cached_property
    def _text(self) -> str:
        pdf = self._document.opened
        if pdf is None:
            return ""
        pages = (_page_text(pdf, index) for index in range(min(len(pdf), TEXT_PAGES)))
        return _SPACE.sub(" ", "\n".join(pages)).strip()

    def form(self) -> str:
        """Return an XFA form, or the first fillable field of an AcroForm."""
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
        """Return whether no page has text or ink; an unreadable page may have some."""
        pdf = self._document.opened
        return pdf is not None and all(
            not _page_text(pdf, index).strip() and self._without_ink(index + 1) for index in range(len(pdf))
        )

    def _without_ink(self, number: int) -> bool:
        try:
            image = self._document.thumbnail(number, _SIDE)
        except PageFailure:
            return False
        return image is not None and ink_of(image).blank


class ImageView:
    """View of an image file, which has no text layer."""

    def __init__(self, document: ImageFile) -> None:
        self._document = document

    def text(self) -> str:
        return ""

    def form(self) -> str:
        return ""

    def blank(self) -> bool:
        """Return whether no frame has ink; an undecodable frame may have some."""
        return all(self._without_ink(number) for number in range(1, self._document.pages + 1))

    def _without_ink(self, number: int) -> bool:
        try:
            _, ink, damage = self._document.page(number, size=_SIDE, image_format="png", quality=0)
            return ink.blank and not damage
        except PageFailure:
            return False


def view_of(document: PdfFile | ImageFile) -> PdfView | ImageView:
    """Return the view of a document for the filters."""
    return PdfView(document) if isinstance(document, PdfFile) else ImageView(document)


def _page_text(pdf: pypdfium2.PdfDocument, index: int) -> str:
    """Return the text of a page; "" for a page that cannot be loaded."""
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
    """Return the first fillable field of a page in words."""
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
