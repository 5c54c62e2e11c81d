"""Ids of documents. They depend on what a document is, never on arrival order or on the number of workers."""

import hashlib
import re

from llm_ocr.results.text import clean

_LONGEST = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def document_id(given: str | None, *, relative: str, version: str, source: str) -> str:
    """The manifest's id if one is given, else 16 hex of sha256(path below its source root, version).

    A document without a version (it is missing, or of no known type) has its source in the place of both: two that are
    missing under one name in two folders are two.

    A given id stays as it is, and page and figure ids begin with it. Names of files are never made of it without being
    made safe (`results.paths`), and no key of a unit holds it. Only what cannot be stored or shown on one line is
    changed, and gets a hash so that ids stay apart: half surrogate pairs, control characters, more than 200 letters.
    """
    if given:
        return _storable(given)
    return _digest(f"{relative}\0{version}" if version else f"\0{source}")


def _storable(given: str) -> str:
    kept = _CONTROL.sub("_", clean(given))
    return kept if kept == given and len(kept) <= _LONGEST else f"{kept[: _LONGEST - 17]}-{_digest(given)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
