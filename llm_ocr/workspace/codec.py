"""JSON encoding of the workspace's objects, and document ids."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import MISSING, fields
from itertools import islice
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from llm_ocr.errors import WorkspaceError
from llm_ocr.results.markdown import clean
from llm_ocr.types import DocumentPart, Ledger, PageSelection, Reason, Repeated, Status, Unit

#: Upper limit of characters of a given document id.
_LONGEST = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def document_id(given: str | None, *, relative: str, version: str, source: str) -> str:
    """Return the manifest's id if given, otherwise 16 hex digits of sha256(path below its source root, version).

    Ids depend on path and content, never on arrival order or on the number of workers.

    A document without a version (missing, or of unknown type) is hashed by its source instead. Two missing documents
    with the same name in two folders therefore have two ids.

    A given id is kept, and page and figure ids begin with it. File names are made from a sanitized id
    (`results.documents`), and no unit key contains it. Only text that cannot be stored or shown on one line is
    replaced: lone surrogates, control characters, more than 200 characters. A hash then keeps such ids distinct.
    """
    if given:
        kept = _CONTROL.sub("_", clean(given))
        return kept if kept == given and len(kept) <= _LONGEST else f"{kept[: _LONGEST - 17]}-{_digest(given)}"
    return _digest(f"{relative}\0{version}" if version else f"\0{source}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


T = TypeVar("T")
R = TypeVar("R")

#: Number of concurrent reads, and number of objects to read before the first is returned.
_AT_ONCE, _AHEAD = 16, 128


def read_ahead(read: Callable[[T], R], names: Iterable[T], what: str) -> Iterator[R]:
    """Yield the result of `read` for each name, in order. An error is raised in place of its result.

    Args:
        read: reads one object.
        names: arguments for `read`.
        what: part of the thread names.
    """
    rest = iter(names)
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix=f"llm-ocr {what}") as readers:
        while chunk := list(islice(rest, _AHEAD)):
            yield from readers.map(read, chunk)


_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def dump(value: object, *, indent: int | None = None) -> bytes:
    """Return canonical JSON with a newline, ASCII only, so that lone surrogates in file names survive.

    Raises:
        TypeError: a value is not a JSON value. A wrapped secret can therefore never be written by mistake.
    """
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(value, sort_keys=True, separators=separators, indent=indent, allow_nan=False).encode() + b"\n"


def load(data: bytes, where: str) -> dict[str, Any]:
    """Return the JSON object in `data`.

    Raises:
        WorkspaceError: the data are damaged; the message names `where`.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise damaged(where, str(error)) from error
    if not isinstance(value, dict):
        raise damaged(where, "not a JSON object")
    return value


def damaged(where: str, what: str) -> WorkspaceError:
    """Return the error for an object of the workspace with invalid content."""
    return WorkspaceError(
        f"{where} is damaged: {what}",
        hint="Restore the object from a copy of the workspace, or start again with another `workspace`.",
    )


def typed(kind: TypeAdapter[T], value: object, where: str) -> T:
    """Return a stored JSON value as the type of `kind`.

    Raises:
        WorkspaceError: a field is missing or has another type; the message names `where` and the field.
    """
    try:
        return kind.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise damaged(where, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def pages_to_text(pages: Iterable[int]) -> str:
    """Return ascending page numbers as ranges, `1-5,9`; empty for no pages."""
    runs: list[list[int]] = []
    for page in pages:
        if runs and page == runs[-1][1] + 1:
            runs[-1][1] = page
        else:
            runs.append([page, page])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def pages_from_text(text: str) -> tuple[int, ...]:
    """Parse ranges made by `pages_to_text`.

    Raises:
        ValueError: the text has another form.
    """
    pages: list[int] = []
    for run in text.split(",") if text else ():
        match = _RANGE.fullmatch(run)
        if match is None:
            raise ValueError(f"not a page range: {run}")
        pages += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(pages)


_PART = {column.name: column.default is MISSING for column in fields(DocumentPart)}  # whether a part needs it


def unit_to_json(unit: Unit) -> dict[str, Any]:
    """Return a unit as a line of a plan, without fields that have their default."""
    parts: list[dict[str, Any]] = []
    for part in unit.parts:
        encoded = {
            "pages": pages_to_text(part.pages),
            "aliases": list(part.aliases),
            "reason": part.reason.value if part.reason else None,
            "wanted": wanted_to_json(part.wanted),
        }
        values = {name: encoded[name] if name in encoded else getattr(part, name) for name in _PART}
        parts.append({name: value for name, value in values.items() if value or _PART[name]})
    value: dict[str, Any] = {"id": unit.id, "parts": parts}
    if unit.replaces:
        value["replaces"] = unit.replaces
    if unit.repeats:
        value["repeats"] = [
            [row.page_id, row.status.value, row.reason.value if row.reason else None, row.quality]
            for row in unit.repeats
        ]
        # Separate keys, because older versions read lists of four.
        value["repeated_figures"] = {row.page_id: [row.unit, row.figures] for row in unit.repeats if row.figures}
        value["repeated_ledgers"] = {
            row.page_id: [row.ledger.ink, row.ledger.unread_share, row.ledger.unsupported_share]
            for row in unit.repeats
            if row.ledger
        }
    return value


def parse_unit_id(unit: str) -> tuple[int, int]:
    """Return the generation of a unit and its index there, from its id `<generation>-<index>`.

    Raises:
        ValueError: the text has another form.
    """
    generation, index = (int(number) for number in unit.split("-"))
    return generation, index


def item_name(item: str, generation: int) -> str:
    """Return `<item>.<generation>`."""
    return f"{item}.{generation:04d}"


def parse_item_name(name: str) -> tuple[str, int]:
    """Parse a name made by `item_name`.

    Raises:
        ValueError: the text has another form.
    """
    item, _, generation = name.rpartition(".")
    return item, int(generation)


def unit_from_json(value: Mapping[str, Any]) -> Unit:
    """Parse a value made by `unit_to_json`.

    Raises:
        KeyError: a field is missing.
        TypeError: a value has the wrong type.
        ValueError: a value is invalid.
    """
    generation, index = parse_unit_id(value["id"])
    parts = tuple(
        DocumentPart(
            **{name: given for name, given in part.items() if name in _PART}
            | {
                "pages": pages_from_text(part["pages"]),
                "aliases": tuple(part.get("aliases", ())),
                "reason": Reason(part["reason"]) if part.get("reason") else None,
                "wanted": PageSelection(**part.get("wanted", {})),
            }
        )
        for part in value["parts"]
    )
    figures, ledgers = value.get("repeated_figures", {}), value.get("repeated_ledgers", {})
    repeats = tuple(
        Repeated(
            page,
            Status(status),
            Reason(reason) if reason else None,
            quality,
            found,
            by,
            Ledger(*ledgers[page]) if page in ledgers else None,
        )
        for page, status, reason, quality in value.get("repeats", ())
        for by, found in [figures.get(page, ("", 0))]
    )
    return Unit(value["id"], generation, index, parts, value.get("replaces", 0), repeats)


def wanted_to_json(wanted: PageSelection) -> dict[str, Any]:
    """Return the fields that differ from their default; `PageSelection(**value)` is the inverse."""
    value: dict[str, Any] = {"named": wanted.named, "ranges": wanted.ranges, "most": wanted.most}
    return {name: given for name, given in value.items() if given}
