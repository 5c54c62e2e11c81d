"""Parse answers about figures: JSON, a class name, or chart tables."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from llm_ocr.models.parsers.pieces import markdown_pieces, read_table
from llm_ocr.models.parsers.plain import without_special
from llm_ocr.types import BlockKind

#: Note below every table that was read from a chart.
ESTIMATED = "The values are estimates by the model."


def read_chart(text: str) -> str:
    """Return an answer about a chart as Markdown with pipe tables. Linear; never raises."""
    found = False
    parts: list[str] = []
    for piece in markdown_pieces(text):
        table = read_table(piece.text) if piece.kind is BlockKind.TABLE else None
        if table is None:
            parts.append(piece.text)
            continue
        found = True
        head, rows = table
        width = max(map(len, (head, *rows)))
        cells = ([cell.replace("|", "\\|") for cell in row] for row in (head, ["---"] * width, *rows))
        parts.append("\n".join(f"| {' | '.join(row + [''] * (width - len(row)))} |" for row in cells))
    return "\n\n".join([*parts, ESTIMATED] if found else parts)


#: Positions in an answer at which a JSON object is tried: preceding prose may contain braces.
_TRIES = 8
#: Maximum depth of nested lists and objects; readers of deeper JSON may fail.
_DEEPEST = 50
_TOO_DEEP = "the JSON is nested too deeply"
_LONGEST_WORDS = 400  # maximum characters of an answer for the class search
_WORD = re.compile(r"\w+")


def read_parse(text: str, *, as_asked: bool = True) -> tuple[str | None, str]:
    """Return the JSON object of an answer, or a complaint: exactly one of the two is given.

    Prose and code fences around the JSON are dropped. All keys and values of the model are kept, and none is added.
    Some answers contain a table (HTML or Markdown, as from DeepSeek-OCR) instead of JSON. They give the JSON of that
    table.

    Args:
        text: The model's answer.
        as_asked: Whether the request used `PARSE_SCHEMA`. Columns and rows then take the form of the schema, unless
            data is lost: numbers become strings, and row objects become lists. Otherwise the JSON is unchanged and may
            be a list.
    """
    body = without_special(text).strip()
    if not body:
        return None, "the answer is empty"
    complaint = "no JSON object in the answer"
    for value in _values(body, "{" if as_asked else "{["):
        if isinstance(value, str):
            complaint = value
        elif not value:
            complaint = "the JSON is empty"
        elif fault := _fault(value):
            complaint = fault
        else:
            return _written(_as_asked(value) if as_asked and isinstance(value, dict) else value), ""
    table = read_table(body)
    if table is not None:
        columns, rows = table
        return _written({"type": "table", "columns": columns, "rows": rows}), ""
    return None, complaint


def read_class(text: str, classes: Sequence[str]) -> str | None:
    """Return the class that an answer names, as spelled in `classes`; None for no class, or for several.

    Case, quotes, fences, and a short sentence around the name are ignored.
    """
    body = without_special(text).strip()
    names = {_plain(name): name for name in classes}
    if exact := names.get(_plain(body)):
        return exact
    if len(body) > _LONGEST_WORDS:
        return None
    words = f" {_plain(body)} "
    found = [plain for plain in names if plain and f" {plain} " in words]
    whole = [name for name in found if not any(f" {name} " in f" {other} " for other in found if other != name)]
    return names[whole[0]] if len(whole) == 1 else None


def _plain(text: str) -> str:
    """Return words in lower case with single spaces."""
    return " ".join(_WORD.findall(text.casefold().replace("_", " ")))


def _values(text: str, starts: str) -> Iterator[dict[str, Any] | list[Any] | str]:
    """Yield the JSON values in a text that begin with one of `starts`, and a complaint for each invalid position."""
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    found = re.compile(f"[{re.escape(starts)}]")
    at = 0
    for _ in range(_TRIES):
        start = found.search(text, at)
        if start is None:
            return
        at = start.start() + 1
        try:
            value, end = decoder.raw_decode(text, start.start())
        except RecursionError:
            yield _TOO_DEEP
        except json.JSONDecodeError as error:
            if error.pos >= len(text) - 1 or error.msg.startswith("Unterminated"):
                yield "the JSON ends early"
                return  # inner values are parts of this value
            yield f"no valid JSON: {error.msg}"
        except ValueError as error:  # a number with thousands of digits, or NaN
            yield f"no valid JSON: {error}"
        else:
            at = end
            yield value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _fault(value: Any, depth: int = 1) -> str:
    """Return why JSON cannot be stored, or ""."""
    if depth > _DEEPEST:
        return _TOO_DEEP
    if isinstance(value, float) and not math.isfinite(value):
        return "a number in the JSON is too large"
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next(filter(None, (_fault(part, depth + 1) for part in inner)), "")


def _as_asked(value: dict[str, Any]) -> dict[str, Any]:
    """Return the columns and rows in the form of `PARSE_SCHEMA`, as far as no data is lost."""
    kept = dict(value)
    columns, rows = value.get("columns"), value.get("rows")
    if isinstance(rows, list):
        keys = list(rows[0]) if rows and isinstance(rows[0], dict) else []
        names = columns if isinstance(columns, list) and columns else keys
        if names and rows and all(isinstance(row, dict) and row.keys() == set(map(str, names)) for row in rows):
            kept["columns"], rows = names, [[row[str(name)] for name in names] for row in rows]
        kept["rows"] = [[_cell(cell) for cell in row] if isinstance(row, list) else row for row in rows]
    if isinstance(kept.get("columns"), list):
        kept["columns"] = [_cell(name) for name in kept["columns"]]
    return kept


def _cell(value: Any) -> Any:
    """Return a plain value as a string; keep a list or an object."""
    if value is None:
        return ""
    return _written(value) if isinstance(value, bool | int | float) else value


def _written(value: Any) -> str:
    # JSON can spell lone surrogates, but UTF-8 cannot encode them.
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode("utf-8")
