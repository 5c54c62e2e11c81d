"""Convert pages, attempts, and their parts to JSON values and bytes for the transfer between processes.

A dataclass is the list of its fields, without those at its end that have their defaults.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from llm_ocr.types import Box, Evidence, OcrText, Page, PageContent

T = TypeVar("T")
_Convert = Callable[[Any], Any]

#: Decimal places of boxes: of a page's content, which is in points, and of relative boxes. Boxes of blocks are exact.
_DIGITS: Mapping[Any, int] = {PageContent: 2, Evidence: 4, OcrText: 4}


def to_wire(value: object) -> Any:
    """Return a dataclass of `types` as JSON values and `bytes`."""
    kind: Any = type(value)
    return _converters(kind, None)[0](value)


def from_wire(kind: type[T], wire: Any) -> T:
    """Convert the result of `to_wire` for a value of this dataclass back. The lists of `wire` are changed."""
    own: Any = kind
    value: T = _converters(own, None)[1](wire)
    return value


def page_to_wire(page: Page) -> Any:
    """Return what a reader's process needs of a page: of its evidence, only the ink."""
    evidence = Evidence(page.evidence.ink) if page.evidence and page.evidence.ink else None
    return to_wire(Page(page.id, page.document_id, page.number, page.image, page.content, page.source, evidence))


@cache
def _converters(kind: Any, digits: int | None) -> tuple[_Convert, _Convert]:
    """Return the functions that convert values of a type, and back; `_same` for JSON values and `bytes`."""
    if is_dataclass(kind):
        return _of_box(digits) if kind is Box else _of_fields(kind, _DIGITS.get(kind, digits))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return attrgetter("value"), kind
    origin, parts = get_origin(kind), get_args(kind)
    if origin is frozenset:
        return sorted, frozenset
    if origin not in (tuple, UnionType):
        return _same, _same
    to, back = zip(*(_converters(part, digits) for part in parts if part not in (Ellipsis, type(None))), strict=True)
    first, first_back = to[0], back[0]
    if origin is UnionType:
        if first is _same:
            return _same, _same
        return (
            lambda value: None if value is None else first(value),
            lambda wire: None if wire is None else first_back(wire),
        )
    if parts[-1] is Ellipsis:
        if first is _same:
            return _same, tuple
        return lambda values: [first(one) for one in values], lambda wire: tuple([first_back(one) for one in wire])
    return (
        lambda values: [one(value) for one, value in zip(to, values, strict=True)],
        lambda wire: tuple([one(value) for one, value in zip(back, wire, strict=True)]),
    )


def _same(value: Any) -> Any:
    return value


def _of_box(digits: int | None) -> tuple[_Convert, _Convert]:
    def to(box: Box) -> list[float]:
        sides = [box.x0, box.y0, box.x1, box.y1]
        return sides if digits is None else [round(side, digits) for side in sides]

    return to, lambda wire: Box(*wire)


def _of_fields(kind: Any, digits: int | None) -> tuple[_Convert, _Convert]:
    types = get_type_hints(kind)
    named = fields(kind)
    defaults = [one.default if one.default_factory is MISSING else one.default_factory() for one in named]
    values_of = attrgetter(*(one.name for one in named))
    parts = [(at, *_converters(types[one.name], digits)) for at, one in enumerate(named)]
    parts = [part for part in parts if part[1] is not _same or part[2] is not _same]

    def to(value: Any) -> list[Any]:
        values = list(values_of(value)) if len(named) > 1 else [values_of(value)]
        while values and values[-1] == defaults[len(values) - 1]:
            del values[-1]
        for at, convert, _ in parts:
            if at < len(values):
                values[at] = convert(values[at])
        return values

    def back(wire: Any) -> Any:
        for at, _, convert in parts:
            if at < len(wire):
                wire[at] = convert(wire[at])
        return kind(*wire)

    return to, back
