"""JSON of an export: UTF-8 that any reader takes, the same bytes for the same values."""

import json
import re
from collections.abc import Mapping
from typing import Any

from llm_ocr.results.text import clean

#: Ends of lines for Python's `splitlines` and others, which JSON leaves as they are; they stand in its texts only.
_LINE_ENDS = re.compile("[\x85\u2028\u2029]")


def json_line(value: object) -> bytes:
    """One line of JSON with its newline; lone surrogates in texts become U+FFFD. Keys keep their order.

    Raises ValueError for a number that JSON has none for.
    """
    return _escaped(_compact(value))


def json_document(value: Mapping[str, object]) -> bytes:
    """An object with a line for each of its fields, and for each member of its lists; else as `json_line`."""
    fields = (f"{_compact(name)}:{_field(field)}" for name, field in value.items())
    return _escaped("{\n" + ",\n".join(fields) + "\n}")


def _field(value: object) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(map(_compact, value)) + "\n]"
    return _compact(value)


def _compact(value: object) -> str:
    # Cleaned as a whole: surrogates stand in its texts only, and one look at all of them is quicker than one at each.
    return clean(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))


def json_value(text: str) -> Any:
    """What the JSON in `text` says; None for no text, and the text itself where it is no JSON."""
    try:
        return json.loads(text, parse_constant=_refuse) if text else None
    except (ValueError, RecursionError):
        return text


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _escaped(text: str) -> bytes:
    return _LINE_ENDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode() + b"\n"
