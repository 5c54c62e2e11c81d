"""Read check boxes of a PDF's forms, and find placeholder pages."""

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pypdfium2
import pypdfium2.raw as pdfium

from llm_ocr.documents.pdf_objects import Frame
from llm_ocr.types import Box, Line, PageContent, Word

#: Limit of a page's annotations, and of a document's attachments.
_MOST_ANNOTATIONS = 1000
_FILLED_IN = (pdfium.FPDF_ANNOT_WIDGET, pdfium.FPDF_ANNOT_FREETEXT)
_BOXES = (pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON)
_UNSEEN = pdfium.FPDF_ANNOT_FLAG_HIDDEN | pdfium.FPDF_ANNOT_FLAG_NOVIEW
#: Largest distance between a check box and its label in font sizes.
_NEAR = 3.0


@dataclass(frozen=True, slots=True)
class CheckBox:
    """Check box or radio button. `box` in page units as shown."""

    box: Box
    checked: bool


def annotations(page: pypdfium2.PdfPage) -> Iterator[pdfium.FPDF_ANNOTATION]:
    """Yield the page's annotations, each open until the next one."""
    for index in range(min(pdfium.FPDFPage_GetAnnotCount(page), _MOST_ANNOTATIONS)):
        annotation = pdfium.FPDFPage_GetAnnot(page, index)
        try:
            yield annotation
        finally:
            pdfium.FPDFPage_CloseAnnot(annotation)


def has_fields(page: pypdfium2.PdfPage) -> bool:
    """Return whether the page has form fields or free text."""
    return any(pdfium.FPDFAnnot_GetSubtype(annotation) in _FILLED_IN for annotation in annotations(page))


def check_boxes(page: pypdfium2.PdfPage, frame: Frame) -> tuple[CheckBox, ...]:
    """Return the visible check boxes and radio buttons of the page."""
    if page.formenv is None:
        return ()
    form, area = page.formenv.raw, pdfium.FS_RECTF()
    found = []
    for annotation in annotations(page):
        if (
            pdfium.FPDFAnnot_GetFormFieldType(form, annotation) in _BOXES
            and not pdfium.FPDFAnnot_GetFlags(annotation) & _UNSEEN
            and pdfium.FPDFAnnot_GetRect(annotation, ctypes.byref(area))
        ):
            box = frame.box(area.left, area.bottom, area.right, area.top)
            found.append(CheckBox(box, bool(pdfium.FPDFAnnot_IsChecked(form, annotation))))
    return tuple(found)


def with_check_boxes(content: PageContent, boxes: Sequence[CheckBox]) -> PageContent:
    """Return the content with ☑ and ☐ before, or else behind, the line next to each box. The box's own mark is removed.

    Args:
        content: Content of the page.
        boxes: Result of `check_boxes` for the page.
    """
    if not boxes:
        return content
    places = [check_box.box for check_box in boxes]
    lines = [left for line in content.lines if (left := _without_marks(line, places)) is not None]
    for check_box in sorted(boxes, key=lambda item: (item.box.y0, -item.box.x0)):
        box = check_box.box
        mark = Word("☑" if check_box.checked else "☐", box)
        labels = [
            (gap, place, before)
            for place, line in enumerate(lines)
            if line.box.y0 < box.centre[1] < line.box.y1 or box.y0 < line.box.centre[1] < box.y1
            for gap, before in ((line.box.x0 - box.x1, True), (box.x0 - line.box.x1, False))
            if -0.5 * line.size < gap < _NEAR * line.size
        ]
        # A label on the right is usual: a box between two labels belongs to the right one.
        best = min(labels, key=lambda label: (not label[2], label[0]), default=None)
        if best is None:
            lines.append(Line(mark.text, box, min(box.height, box.width), (mark,)))
        else:
            lines[best[1]] = _marked(lines[best[1]], mark, before=best[2])
    lines.sort(key=lambda line: (line.box.y1, line.box.x0))
    return replace(content, lines=tuple(lines))


def _without_marks(line: Line, places: Sequence[Box]) -> Line | None:
    """Return the line without words inside the boxes, such as the letter that a form's font shows as a check mark."""
    words = tuple(word for word in line.words if not any(word.box.covered_by(place) > 0.5 for place in places))
    if not words:
        return None
    if len(words) == len(line.words):
        return line
    box = reduce(Box.union, (word.box for word in words))
    return replace(line, text=" ".join(word.text for word in words), words=words, box=box, scripts=(), parts=())


def _marked(line: Line, mark: Word, *, before: bool) -> Line:
    """Return the line with the mark, as high as the line, so that a large box does not move the line."""
    word = replace(mark, box=Box(mark.box.x0, line.box.y0, mark.box.x1, line.box.y1))
    box = line.box.union(word.box)
    if not before:
        return replace(line, text=f"{line.text} {mark.text}", words=(*line.words, word), box=box)
    shift = len(mark.text) + 1
    scripts = tuple(replace(script, start=script.start + shift, end=script.end + shift) for script in line.scripts)
    return replace(line, text=f"{mark.text} {line.text}", words=(word, *line.words), box=box, scripts=scripts)


def placeholder(pdf: pypdfium2.PdfDocument) -> str:
    """Return for what the pages are placeholders; "" for a document whose pages are its content.

    Viewers without XFA show a page such as "Please wait" for a form of XFA. The page of a portfolio is its cover.
    """
    kind = pdf.get_formtype()
    only = pdfium.FPDF_GetPageCount(pdf) == 1
    stands_for_form = kind == pdfium.FORMTYPE_XFA_FULL
    if kind == pdfium.FORMTYPE_XFA_FOREGROUND and only:
        stands_for_form = True
        with contextlib.suppress(pypdfium2.PdfiumError), contextlib.closing(pdf[0]) as first:
            stands_for_form = not has_fields(first)
    if stands_for_form:
        return "the page is a placeholder for an XFA form, whose content was not read"
    files = 0
    for index in range(min(pdfium.FPDFDoc_GetAttachmentCount(pdf), _MOST_ANNOTATIONS)):
        attachment = pdfium.FPDFDoc_GetAttachment(pdf, index)
        buffer = (pdfium.FPDF_WCHAR * 256)()
        size = pdfium.FPDFAttachment_GetName(attachment, buffer, ctypes.sizeof(buffer)) if attachment else 0
        # Longer names are cut to 255 characters.
        name = bytes(buffer)[: max(0, min(size, ctypes.sizeof(buffer)) - 2)].decode("utf-16-le", "replace")
        files += not name.lower().endswith(".xml")  # data of an electronic invoice
    if files and only and pdf.get_pagemode() == pdfium.PAGEMODE_USEATTACHMENTS:
        return f"the page is the cover of a portfolio, whose {files:,} attached files were not read"
    return ""
