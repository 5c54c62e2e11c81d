"""Find marked content whose `/ActualText` contradicts its glyphs, such as an amount that a reader does not see.

pdfium reads `/ActualText` in place of the glyphs. Most of it agrees with them, or says what the font does not: the
letters of a ligature, or a soft hyphen. The names of the glyphs count if both are numbers or letters that differ.
"""

import contextlib
import ctypes
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

import pypdfium2
import pypdfium2.raw as pdfium

from llm_ocr.documents.pdf_objects import Placed, page_frame, page_objects, texts_of_objects
from llm_ocr.documents.text_layer import meaningless

#: Bytes of `/ActualText` that are compared.
_LONGEST = 4096
_NAME = b"ActualText"
#: First words of the names of letters whose order in the file is that of the text, and which have one form.
_PLAIN_SCRIPTS = ("LATIN", "GREEK", "CYRILLIC", "DIGIT")


def drop_contradicted_names(page: pypdfium2.PdfPage, number: int, texts: Sequence[Placed]) -> None:
    """Remove the marks from the text objects of page `number` whose `/ActualText` contradicts their glyphs."""
    spans: dict[int, tuple[str, list[int]]] = {}  # by mark: the objects of one span share it
    for at, text in enumerate(texts):
        for mark, told in _names_of(text.handle):
            if any(map(str.isalnum, told)):
                spans.setdefault(_address(mark), (told, []))[1].append(at)
    if not spans or page.pdf is None:
        return
    with contextlib.closing(page.pdf[number - 1]) as copy:  # its text is that of the glyphs
        copies = page_objects(copy, page_frame(copy), paths=False).texts_at
        if len(copies) != len(texts):
            return
        numbers = {at for _, places in spans.values() for at in places}
        for at in numbers:
            _remove_names(copies[at].handle)
        drawn, unnamed = texts_of_objects(copy, copies, numbers), _unnamed(copy)
        for told, places in spans.values():
            is_named = not any(_address(copies[at].handle) in unnamed for at in places)
            if is_named and contradicts(told, "".join(drawn[at] for at in places)):
                for at in places:
                    _remove_names(texts[at].handle)


def contradicts(told: str, drawn: str) -> bool:
    """Return whether `/ActualText` has other numbers or letters than the glyphs; it may have more letters."""
    ours, theirs = _plain(told), _plain(drawn)
    if not ours or not theirs or meaningless(drawn):
        return False
    if not all(unicodedata.name(c, "?").startswith(_PLAIN_SCRIPTS) for c in ours + theirs):
        return False
    if "".join(filter(str.isdigit, ours)) != "".join(filter(str.isdigit, theirs)):
        return True
    rest = iter(ours)
    return not all(letter in rest for letter in theirs)


def _plain(text: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKD", text).casefold()))


def _names_of(handle: Any) -> Iterator[tuple[Any, str]]:
    """Yield the marks of a text object that have `/ActualText`, with this text."""
    size, buffer = ctypes.c_ulong(), (pdfium.FPDF_WCHAR * (_LONGEST // 2))()
    for index in range(max(0, pdfium.FPDFPageObj_CountMarks(handle))):
        mark = pdfium.FPDFPageObj_GetMark(handle, index)
        if mark and pdfium.FPDFPageObjMark_GetParamStringValue(mark, _NAME, buffer, _LONGEST, size):
            yield mark, bytes(buffer)[: max(0, min(size.value, _LONGEST) - 2)].decode("utf-16-le", "replace")


def _remove_names(handle: Any) -> None:
    for mark, _ in list(_names_of(handle)):
        pdfium.FPDFPageObj_RemoveMark(handle, mark)


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _unnamed(page: pypdfium2.PdfPage) -> set[int]:
    """Return the addresses of the text objects with glyphs for which their font has no name."""
    text_page = page.get_textpage()
    try:
        return {
            _address(pdfium.FPDFText_GetTextObject(text_page, index))
            for index in range(max(0, text_page.count_chars()))
            if pdfium.FPDFText_HasUnicodeMapError(text_page, index) == 1
        }
    finally:
        text_page.close()
