"""Judge opened documents by the filters, in the renderer's process: pdfium is not thread-safe and may crash."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

import pypdfium2
import pypdfium2.raw as pdfium

from llm_ocr.documents.filters import BLANK, FORMS, LANGUAGE, SPAM
from llm_ocr.documents.images import ImageFile
from llm_ocr.documents.pdf_file import PdfFile
from llm_ocr.documents.pdf_objects import annotations
from llm_ocr.errors import PageFailure

T = TypeVar("T")

#: Number of pages whose text is used, as in olmOCR's filter (allenai/olmocr @ 4f34e02, olmocr/filter/filter.py).
TEXT_PAGES = 5
#: Limit of characters per page; a broadsheet has 30,000, and a few hundred identify a language.
TEXT_CHARACTERS = 8000
#: Minimum characters of a text to judge, and minimum share of letters among them: olmOCR's numbers. Scans without a
#: text layer have no characters; tables of numbers and wrong text layers have few letters.
ENOUGH_CHARACTERS, LETTERS = 200, 0.5
#: Words of olmOCR's rule, and the share of a text's words above which the text is spam (allenai/olmocr @ 4f34e02,
#: olmocr/filter/filter.py).
WORDS = frozenset(
    [
        *("download", "pdf", "epub", "mobi", "free", "ebook"),
        *("file", "save", "casino", "viagra", "cialis", "ciprofloxacin"),
    ]
)
SHARE = 0.004
#: Minimum number of different spam words. olmOCR requires one. Measured on 335 stretches of 3,000 characters from real
#: documents: one word marks 11 as spam, because a page contains `free` three times. Three words mark none.
DIFFERENT = 3

_WORD = re.compile(r"\w+")
#: Longest side in pixels of the images that are searched for ink.
_SIDE = 700
#: Limit of pages searched for form fields; in the measured documents, forms begin within the first 10.
_FORM_PAGES = 200
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


def judged(document: PdfFile | ImageFile, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of the filters as JSON values; `options` are the fields of `FilterOptions`.

    `left_out`: reason and detail, or None. `text`: text for the language check, empty without a check. `trouble`:
    errors of filters, whose documents stay. An image file has no text layer and no form. A PDF that only poppler can
    open shows nothing, and stays.
    """
    pdf = document.opened if isinstance(document, PdfFile) else None
    trouble: list[str] = []

    @cache
    def text() -> str:
        """Return the text layer of the first pages, each run of whitespace as one space; "" for too little text."""
        if pdf is None:
            return ""
        pages = (_page_text(pdf, index) for index in range(min(len(pdf), TEXT_PAGES)))
        found = _SPACE.sub(" ", "\n".join(pages)).strip()
        enough = len(found) >= ENOUGH_CHARACTERS and sum(map(str.isalpha, found)) >= LETTERS * len(found)
        return found if enough else ""

    def tried(name: str, step: Callable[[], T], failed: T) -> T:
        try:
            return step()
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - a filter's error, whatever its type, must not affect the document
            trouble.append(f"{name}: {type(error).__name__} {error}")
            return failed

    # Cheapest first; the last filter runs only if no other filter matched.
    rules: dict[str, Callable[[], str]] = {
        FORMS: lambda: _form(pdf) if pdf is not None else "",
        SPAM: lambda: spam(text()),
        BLANK: lambda: "no text and no ink on any page" if _is_blank(document) else "",
    }
    for name, rule in rules.items():
        if options[name] and (detail := tried(name, rule, "")):
            return {"left_out": [name, detail], "text": "", "trouble": ""}
    words = tried(LANGUAGE, text, "") if options["languages"] else ""
    return {"left_out": None, "text": words, "trouble": "; ".join(trouble)}


def spam(text: str) -> str:
    """Return the spam words of a text of which several make up more than `SHARE`; "" for other texts."""
    words = Counter(_WORD.findall(text.lower()))
    met = {word: words[word] for word in WORDS if words[word]}
    share = sum(met.values()) / max(1, words.total())
    if share <= SHARE or len(met) < DIFFERENT:
        return ""
    shown = ", ".join(sorted(met, key=lambda word: (-met[word], word))[:3])
    return f"{share:.1%} of {words.total()} words: {shown}"


def _form(pdf: pypdfium2.PdfDocument) -> str:
    """Return an XFA form, or the first fillable field of an AcroForm."""
    kind = pdf.get_formtype()
    if kind in _XFA:
        return "XFA"
    for index in range(min(len(pdf), _FORM_PAGES) if kind != pdfium.FORMTYPE_NONE else 0):
        try:
            page = pdf[index]
        except pypdfium2.PdfiumError:
            continue
        try:
            for annotation in annotations(page):
                field = pdfium.FPDFAnnot_GetFormFieldType(pdf.formenv, annotation)
                if field in _FILLABLE and not pdfium.FPDFAnnot_GetFormFieldFlags(pdf.formenv, annotation) & _READ_ONLY:
                    return f"AcroForm, {_FILLABLE[field]} on page {index + 1}"
        finally:
            page.close()
    return ""


def _is_blank(document: PdfFile | ImageFile) -> bool:
    """Return whether no page has text or ink; an unreadable page may have some."""
    for number in range(1, document.pages + 1):
        try:
            if isinstance(document, ImageFile):
                _, ink, damage = document.page(number, size=_SIDE, image_format="png", quality=0)
                blank = ink.blank and not damage
            else:
                pdf = document.opened
                if pdf is None or _page_text(pdf, number - 1).strip():
                    return False
                drawn = document.page(number, text_layer=False)
                blank = drawn.evidence.no_ink and not drawn.damage
        except PageFailure:
            return False
        if not blank:
            return False
    return True


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
