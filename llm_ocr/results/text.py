"""Any text, made fit to be stored: UTF-8 has no place for lone surrogates, which broken PDFs and file names bring."""

import re

_SURROGATE = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates replaced by U+FFFD; all else unchanged."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
