"""Parse answers about figures: JSON, a class name, or chart tables."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from llm_ocr.models.parsers.pieces import markdown_pieces, read_table
from llm_ocr.models.parsers.plain import plain_body, without_special
from llm_ocr.models.parsers.talk import is_refusal, without_introduction
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
_BRACKET = re.compile(r"[\[\]{}]")
#: End of a class name with an explanation behind it.
_HEAD = re.compile(r"[\n.:;(–—]| - ")
_LIST = re.compile(r"[\n,;/]")
#: Scripts without spaces between words.
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff]+")
_DENIAL = re.compile(
    r"\b(?:no|not|cannot|neither|never|whether|without|unable|kein\w{0,2}|nicht|pas|aucune?|ningun\w?)\b|n['’]t\b|[不没]",
    re.IGNORECASE,
)
#: Place of an object in a description, and the label of a whole line.
_PLACED = re.compile(r"<\|det\|>[\d\[\], .]{0,400}<\|/det\|>")
_REF = re.compile(r"^\s*<\|ref\|>[^<>\n]{0,100}<\|/ref\|><\|det\|>[\d\[\], .]{0,400}<\|/det\|>[ \t]*$", re.MULTILINE)
_FENCED = re.compile(r"```\w{0,20}[ \t]*\n(.*)```", re.DOTALL)
#: Fewest equal rows of a chart that are a loop.
_LOOP = 50
_DESCRIPTION_NAMES = ("description", "caption", "alt_text", "alt", "text", "answer")
_NONE = re.compile(
    r"\W*(?:null|none|n/a|undefined|no (?:description|caption)(?: (?:is )?available)?)\W*", re.IGNORECASE
)


def read_description(text: str) -> str:
    """Return a description without thoughts, marks of places, talk, and a fence, tags, or JSON around it.

    A text without any letter or digit, or that only says that there is none, is "".
    """
    body = _PLACED.sub("", _REF.sub("", without_special(text))).replace("<|ref|>", "").replace("<|/ref|>", "")
    body = without_introduction(plain_body(body.rpartition("</think>")[2], names=_DESCRIPTION_NAMES))
    if (fence := _FENCED.fullmatch(body)) and "```" not in fence[1]:
        body = fence[1].strip()
    return body if _WORD.search(body) and not _NONE.fullmatch(body) else ""


def read_parse(text: str, *, as_asked: bool = True) -> tuple[str | None, str]:
    """Return the JSON object of an answer, or a complaint: exactly one of the two is given.

    Prose and code fences around the JSON are dropped. All keys and values of the model are kept, and none is added.
    Some answers contain a table (HTML or Markdown, as from DeepSeek-OCR) instead of JSON. They give the JSON of that
    table. Several different objects or tables are a complaint, because only one is stored.

    Args:
        text: The model's answer.
        as_asked: Whether the request used `PARSE_SCHEMA`. Columns and rows then take the form of the schema, unless
            data is lost: numbers become strings, and row objects become lists. Otherwise the JSON is unchanged and may
            be a list.
    """
    body = without_special(text).strip()
    if body.startswith('"'):  # JSON within a JSON string
        with suppress(ValueError):
            string, end = json.JSONDecoder(strict=False).raw_decode(body)
            body = string if end == len(body) else body
    if not body:
        return None, "the answer is empty"
    complaint = "no JSON object in the answer"
    found: list[str] = []
    for value in _values(body, "{" if as_asked else "{["):
        if isinstance(value, str):
            complaint = value
        elif not value or (as_asked and _is_empty(value)):
            complaint = "the JSON is empty"
        elif fault := _fault(value):
            complaint = fault
        else:
            written = _written(_as_asked(value) if as_asked and isinstance(value, dict) else value)
            found += [] if written in found else [written]
    if found:
        return (found[0], "") if len(found) == 1 else (None, f"{len(found)} JSON objects instead of one")
    tables = [piece.text for piece in markdown_pieces(body) if piece.kind is BlockKind.TABLE]
    if len(tables) > 1:
        return None, f"{len(tables)} tables instead of one JSON object"
    table = read_table(body)
    if table is not None:
        columns, rows = table
        return _written({"type": "table", "columns": columns, "rows": rows}), ""
    return None, complaint


def read_class(text: str, classes: Sequence[str]) -> str | None:
    """Return the class that an answer names, as spelled in `classes`; None for no class, or for several.

    Case, quotes, fences, a plural, an explanation behind the name, and a short sentence around it are ignored. A
    sentence that denies something before the name does not name it.
    """
    body = without_special(text).strip()
    for name in classes:
        if body.casefold() == name.casefold():
            return name
    names = {_plain(name): name for name in classes}
    if len({_plain(part) for part in _LIST.split(body)} & set(names)) > 1:
        return None
    for head in (body, _HEAD.split(body, maxsplit=1)[0]):
        plain = _plain(head)
        if exact := names.get(plain) or names.get(plain.removesuffix("s")) or names.get(plain.removesuffix("es")):
            return exact
    if len(body) > _LONGEST_WORDS:
        return None
    apart = _UNSPACED.sub(r" \g<0> ", body)
    words = f" {_plain(apart)} "
    found = [plain for plain in names if plain and (plain if _UNSPACED.search(plain) else f" {plain} ") in words]
    whole = [name for name in found if not any(f" {name} " in f" {other} " for other in found if other != name)]
    if len(whole) != 1 or _DENIAL.search(body[: body.casefold().find(whole[0].split()[0])]):
        return None
    return names[whole[0]]


def _plain(text: str) -> str:
    """Return words in lower case with single spaces."""
    return " ".join(_WORD.findall(text.casefold().replace("_", " ")))


def _values(text: str, starts: str) -> Iterator[dict[str, Any] | list[Any] | str]:
    """Yield the JSON values in a text that begin with one of `starts`, and a complaint for each invalid position."""
    decoder = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_without_doubles)
    found = re.compile(f"[{re.escape(starts)}]")
    at = tries = 0
    while tries < _TRIES and (start := found.search(text, at)) is not None:
        try:
            value, at = decoder.raw_decode(text, start.start())
        except RecursionError:
            yield _TOO_DEEP
        except json.JSONDecodeError as error:
            if error.pos >= len(text) - 1 or error.msg.startswith("Unterminated"):
                yield "the JSON ends early"
                return  # inner values are parts of this value
            yield f"no valid JSON: {error.msg}"
        except ValueError as error:  # a number with thousands of digits, a key twice, or NaN
            yield f"no valid JSON: {error}"
        else:
            yield value
            continue
        tries += 1
        at = _behind(text, start.start())  # inner values are parts of this value


def _behind(text: str, start: int) -> int:
    """Return the place behind the bracket that closes the one at `start`."""
    depth = 0
    for bracket in _BRACKET.finditer(text, start):
        depth += 1 if bracket[0] in "{[" else -1
        if depth <= 0:
            return bracket.end()
    return len(text)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs) and any(value[key] != other for key, other in pairs):
        raise ValueError("an object has a key twice")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _fault(value: Any) -> str:
    """Return why JSON cannot be stored, or ""."""
    for part, depth in _parts(value):
        if depth > _DEEPEST:
            return _TOO_DEEP
        if isinstance(part, float) and not math.isfinite(part):
            return "a number in the JSON is too large"
        if isinstance(part, str) and is_refusal(part):
            return "the model refused to read an image"
        if isinstance(part, list) and len(part) >= _LOOP and part.count(part[0]) == len(part):
            return f"the same row {len(part)} times"
    return ""


def _is_empty(value: Any) -> bool:
    """Return whether a value has no text, number, or truth value; a value that is nested too deeply is not judged."""
    return not any(
        depth > _DEEPEST or (part not in (None, "") and not isinstance(part, dict | list))
        for part, depth in _parts(value)
    )


def _parts(value: Any) -> Iterator[tuple[Any, int]]:
    """Yield a value and all that it holds, each with its depth from 1."""
    waiting = [(value, 1)]
    while waiting:
        part, depth = waiting.pop()
        yield part, depth
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        waiting += [(value, depth + 1) for value in inner]


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
