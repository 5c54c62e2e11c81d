"""JSON of the workspace: equal values give equal bytes."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar

from llm_ocr.errors import WorkspaceError
from llm_ocr.results.markdown import clean
from llm_ocr.types import Counts, DocumentPart, PageSelection, Reason, Repeated, Status, Unit

# Ids of documents. They depend on what a document is, never on arrival order or on the number of workers.


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


# Many small objects, read at the same time and given in order.


T = TypeVar("T")
R = TypeVar("R")

#: Objects that are read at the same time, and how many are read before the first of them is given.
_AT_ONCE, _AHEAD = 16, 128


def read_ahead(read: Callable[[T], R], names: Iterable[T], what: str) -> Iterator[R]:
    """What `read` gives for each name, in order; its errors come where its result would. `what` names the threads."""
    rest = iter(names)
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix=f"llm-ocr {what}") as readers:
        while some := list(islice(rest, _AHEAD)):
            yield from readers.map(read, some)


# JSON as the workspace stores it: the same value gives the same bytes, whatever characters are in file names.


_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def dump(value: object, *, indent: int | None = None) -> bytes:
    """Canonical JSON with a newline; ASCII only, so that half surrogate pairs in file names survive.

    Raises TypeError for what is no JSON value: a secret that is wrapped can never be written by mistake.
    """
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(value, sort_keys=True, separators=separators, indent=indent, allow_nan=False).encode() + b"\n"


def load(data: bytes, where: str) -> dict[str, Any]:
    """The JSON object in `data`. Raises `WorkspaceError` that names `where` when it is damaged."""
    try:
        value = json.loads(data)
    except ValueError as error:
        raise damaged(where, str(error)) from error
    if not isinstance(value, dict):
        raise damaged(where, "no JSON object")
    return value


def damaged(where: str, what: str) -> WorkspaceError:
    """The error for an object of the workspace that does not say what it should."""
    return WorkspaceError(
        f"{where} is damaged: {what}",
        hint="Bring it back from a copy of the workspace, or begin again with another workspace (-w).",
    )


def pages_to_text(pages: Iterable[int]) -> str:
    """`1-5,9` for ascending page numbers; empty for none."""
    runs: list[list[int]] = []
    for page in pages:
        if runs and page == runs[-1][1] + 1:
            runs[-1][1] = page
        else:
            runs.append([page, page])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def pages_from_text(text: str) -> tuple[int, ...]:
    """The inverse of `pages_to_text`. Raises ValueError for any other text."""
    return tuple(page for run in text.split(",") if text for page in _run(run))


def _run(text: str) -> Iterator[int]:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ValueError(f"no page range: {text}")
    return iter(range(int(match[1]), int(match[2] or match[1]) + 1))


def unit_to_json(unit: Unit) -> dict[str, Any]:
    """One line of a plan; what has its default is left out."""
    value: dict[str, Any] = {"id": unit.id, "parts": [_part_to_json(part) for part in unit.parts]}
    if unit.replaces:
        value["replaces"] = unit.replaces
    if unit.repeats:
        value["repeats"] = [
            [one.page_id, one.status.value, one.reason.value if one.reason else None, one.quality]
            for one in unit.repeats
        ]
        # A key of its own: older versions read lists of four.
        value["repeated_figures"] = {one.page_id: [one.unit, one.figures] for one in unit.repeats if one.figures}
    return value


def unit_from_json(value: Mapping[str, Any]) -> Unit:
    """Raises KeyError, TypeError or ValueError for anything but what `unit_to_json` made."""
    generation, index = (int(number) for number in value["id"].split("-"))
    parts = tuple(_part_from_json(part) for part in value["parts"])
    figures = value.get("repeated_figures", {})
    repeats = tuple(
        Repeated(page, Status(status), Reason(reason) if reason else None, quality, found, by)
        for page, status, reason, quality in value.get("repeats", ())
        for by, found in [figures.get(page, ("", 0))]
    )
    return Unit(value["id"], generation, index, parts, value.get("replaces", 0), repeats)


def _part_to_json(part: DocumentPart) -> dict[str, Any]:
    value: dict[str, Any] = {
        "document_id": part.document_id,
        "source": part.source,
        "relative": part.relative,
        "version": part.version,
        "pages": pages_to_text(part.pages),
        "page_total": part.page_total,
        "first_index": part.first_index,
    }
    optional = {
        "aliases": list(part.aliases),
        "reason": part.reason.value if part.reason else None,
        "detail": part.detail,
        "estimate": part.estimate,
        "wanted": wanted_to_json(part.wanted),
        "again": part.again,
    }
    return value | {name: given for name, given in optional.items() if given}


def _part_from_json(value: Mapping[str, Any]) -> DocumentPart:
    reason = value.get("reason")
    return DocumentPart(
        document_id=value["document_id"],
        source=value["source"],
        relative=value["relative"],
        version=value["version"],
        pages=pages_from_text(value["pages"]),
        page_total=value["page_total"],
        first_index=value["first_index"],
        aliases=tuple(value.get("aliases", ())),
        reason=Reason(reason) if reason else None,
        detail=value.get("detail", ""),
        estimate=value.get("estimate", 0),
        wanted=PageSelection(**value.get("wanted", {})),
        again=value.get("again", False),
    )


def wanted_to_json(wanted: PageSelection) -> dict[str, Any]:
    """What has its default is left out; `Wanted(**value)` is the inverse."""
    value: dict[str, Any] = {"named": wanted.named, "ranges": wanted.ranges, "most": wanted.most}
    return {name: given for name, given in value.items() if given}


def counts_to_json(counts: Counts) -> dict[str, int]:
    """`{expected, ok, degraded, failed}`."""
    return {"expected": counts.expected, "ok": counts.ok, "degraded": counts.degraded, "failed": counts.failed}


def counts_from_json(value: Mapping[str, int]) -> Counts:
    """The inverse of `counts_to_json`."""
    return Counts(value["expected"], value["ok"], value["degraded"], value["failed"])
