"""Names of files and ids of documents that programs stumble over. Seeded."""

import os
import random
import unicodedata

_PARTS = (
    "a", "B", "é", unicodedata.normalize("NFD", "é"), "ß", "SS", "İ", "ı", "😀", "👩‍👩‍👧", "合同", "\u202e",
    "\u200f", "\u2066", "\ufeff",
    "\u200b", "\n", "\r", "\t", "\x01", "\x07", "\x1b[31m", "\x7f", "\x85", "\u2028", " ", "  ", ".", "..",
    "...", "-", "--",
    "-rf", "~", "$HOME", "`id`", "$(id)", ";", "&", "|", "<", ">", '"', "'", "\\", "..\\", ":", "*", "?", "[",
    "]", "{}", "%", "%00",
    "%2e%2e%2f", "#", "=", ",", "@", "!", "con", "CON", "nul", "aux", "com1", "LPT1", "file", "\udc80",
    "\udcff", "&lt;", "<script>",
    "\\n", "C:", "CON.", "index.html", "train-0.parquet", "\u0301", "\U000e0001", "\ufffe",
)  # fmt: skip
_SUFFIXES = (".pdf", ".pdf", ".PDF", ".png", ".pdf.md", ".pdf ", ".pdf.", "", ".jsonl.pdf", ".txt.pdf", ".jpe", ".tiff")
_LONGEST = 255  # bytes of a name on Linux


def file_name(chance: random.Random) -> str:
    """A name that a Linux folder takes: up to 255 bytes, neither `/` nor NUL; bytes that are no UTF-8 as surrogates."""
    stem = "".join(chance.choices(_PARTS, k=chance.choice((1, 2, 3, 8))))
    if chance.random() < 0.1:
        stem *= 300
    suffix = chance.choice(_SUFFIXES)
    name = os.fsencode(stem)[: _LONGEST - len(suffix)] + suffix.encode()
    return os.fsdecode(name) if name.strip(b".") else "dots" + os.fsdecode(name) + ".pdf"


def twins(chance: random.Random) -> list[str]:
    """Names that some file systems hold for one: by case, and by how a letter is composed."""
    word = "".join(chance.choices("abcé", k=4)) + "é"
    forms = [unicodedata.normalize(form, word) for form in ("NFC", "NFD")]
    return [f"{one}.pdf" for one in dict.fromkeys([*forms, *(form.upper() for form in forms), word.title()])]


def any_id(chance: random.Random) -> str:
    """An id as a manifest may give it: separators too."""
    return "".join(chance.choices((*_PARTS, "/", "../", "\0", "x" * 300, "\ud800"), k=chance.choice((1, 2, 3, 8))))
