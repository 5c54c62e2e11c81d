"""Answers about figures, read back: JSON for `parse`, one name for `classify`. Never raises, whatever the answer."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llm_ocr.models.tables import read_table
from llm_ocr.models.tokens import without_special

#: Places in an answer at which a JSON object is looked for: prose before it may hold braces.
_TRIES = 8
_KEYS = ("type", "title", "axes", "columns", "rows", "text")
_LONGEST_WORDS = 400  # characters of an answer in which a class is looked for
_WORD = re.compile(r"\w+")


class _Unfit(ValueError):
    """The JSON has not the shape that was asked for; the message is the complaint."""


def read_parse(text: str) -> tuple[str | None, str]:
    """The JSON of an answer by `PARSE_SCHEMA`, made whole, and a complaint: exactly one of the two is given.

    Around the JSON may stand prose and code fences. Keys that are missing are empty, rows given as objects become
    lists, numbers become strings. An answer without JSON that holds a table (HTML or Markdown, as DeepSeek-OCR answers)
    gives the JSON of that table.
    """
    body = without_special(text).strip()
    if not body:
        return None, "the answer is empty"
    complaint = "no JSON object in the answer"
    for value in _objects(body):
        if isinstance(value, str):
            complaint = value
            continue
        try:
            return _written(_whole(value)), ""
        except _Unfit as unfit:
            complaint = str(unfit)
    table = read_table(body)
    if table is not None:
        columns, rows = table
        return _written({**dict.fromkeys(_KEYS, ""), "type": "table", "axes": [], "columns": columns, "rows": rows}), ""
    return None, complaint


def read_class(text: str, classes: Sequence[str]) -> str | None:
    """The class that an answer names, as spelt in `classes`; None for none, or for several.

    Case, quotes, fences and a short sentence around the name make no difference.
    """
    body = without_special(text).strip()
    names = {_plain(name): name for name in classes}
    if exact := names.get(_plain(body)):
        return exact
    if len(body) > _LONGEST_WORDS:
        return None
    words = f" {_plain(body)} "
    found = [plain for plain in names if plain and f" {plain} " in words]
    whole = [one for one in found if not any(f" {one} " in f" {other} " for other in found if other != one)]
    return names[whole[0]] if len(whole) == 1 else None


def _plain(text: str) -> str:
    """Words in lower case with one space between them."""
    return " ".join(_WORD.findall(text.casefold().replace("_", " ")))


def _objects(text: str) -> Iterator[dict[str, Any] | str]:
    """The JSON objects in a text, and a complaint for each place that only looks like one."""
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    at = -1
    for _ in range(_TRIES):
        at = text.find("{", at + 1)
        if at < 0:
            return
        try:
            value, end = decoder.raw_decode(text, at)
        except RecursionError:
            yield "the JSON is nested too deeply"
        except json.JSONDecodeError as error:
            if error.pos >= len(text) - 1 or error.msg.startswith("Unterminated"):
                yield "the JSON ends early"
                return  # what stands inside is part of it
            yield f"no valid JSON: {error.msg}"
        except ValueError as error:  # a number of thousands of digits, or NaN
            yield f"no valid JSON: {error}"
        else:
            at = end - 1
            yield value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")


def _whole(value: Mapping[str, Any]) -> dict[str, Any]:
    if not any(key in value for key in _KEYS):
        raise _Unfit("the JSON has none of the keys that were asked for")
    columns = [_cell(name) for name in _list(value, "columns")]
    rows: list[list[str]] = []
    for row in _list(value, "rows"):
        if isinstance(row, dict):
            columns = columns or [str(key) for key in row]
            rows.append([_cell(row.get(name)) for name in columns])
        elif isinstance(row, list):
            rows.append([_cell(cell) for cell in row])
        else:
            raise _Unfit("a row of the JSON is neither a list nor an object")
    return {
        "type": _text(value, "type"),
        "title": _text(value, "title"),
        "axes": [_axis(axis) for axis in _list(value, "axes")],
        "columns": columns,
        "rows": rows,
        "text": _text(value, "text"),
    }


def _list(value: Mapping[str, Any], key: str) -> list[Any]:
    found = value.get(key)
    if found is None or found == "":
        return []
    if not isinstance(found, list):
        raise _Unfit(f'"{key}" in the JSON is no list')
    return found


def _text(value: Mapping[str, Any], key: str) -> str:
    found = value.get(key)
    if isinstance(found, list):
        return "\n".join(_cell(line) for line in found)
    return _cell(found)


def _axis(axis: Any) -> dict[str, str]:
    if isinstance(axis, dict):
        return {"name": _cell(axis.get("name")), "unit": _cell(axis.get("unit"))}
    return {"name": _cell(axis), "unit": ""}


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return _written(value) if isinstance(value, bool | int | float) else _unfit_cell()


def _unfit_cell() -> str:
    raise _Unfit("a value in the JSON is neither text nor a number")


def _written(value: Any) -> str:
    # Lone surrogates, which JSON can spell, have no place in UTF-8.
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode("utf-8")
