"""From documents to a stored plan. The same documents in the same order give the same plan.

Documents are spooled to the local disk first: a copy of a document, which becomes its alias, may come as the last of a
million. In memory there are eight bytes a document, and the names of copies.
"""

import asyncio
from array import array
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Self

from llm_ocr.errors import UsageError
from llm_ocr.types import DocumentPart
from llm_ocr.work import codec
from llm_ocr.work.generations import Generation, Kind, generations, new_draft, units_of, write_generation
from llm_ocr.work.ids import document_id
from llm_ocr.work.marker import attempt_id
from llm_ocr.work.numbers import Numbers, number_of
from llm_ocr.work.planned import (
    PlannedDocument,
    asked_content,
    content_of,
    contents_of,
    counted_content,
    document_from_json,
    document_to_json,
    part_of,
    with_reason,
)
from llm_ocr.work.units import CutUnit, Piece, cut_units
from llm_ocr.work.workspace import Workspace

__all__ = ["PlanResult", "PlannedDocument", "Planner", "plan_documents", "plan_stream"]

_MOST_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class PlanResult:
    """What planning did. `generation` is None when there was nothing new.

    `known` documents were in the plan already and were left as they are; `differing` of them came with another content
    or page selection now, and `examples` are sources of such.
    """

    generation: Generation | None
    known: int = 0
    differing: int = 0
    copies: int = 0  # documents with the content of another: its aliases
    examples: tuple[str, ...] = ()


def plan_documents(
    workspace: Workspace,
    documents: Iterable[PlannedDocument],
    *,
    pages_per_unit: int,
    skipped: Mapping[str, int] | None = None,
) -> PlanResult:
    """Write a generation with those documents that are not in the plan yet.

    `skipped` counts files that were left out, by suffix; it is read at the end. Raises `UsageError` for an id that
    stands for two documents.
    """
    with Planner(workspace, pages_per_unit=pages_per_unit) as planner:
        for document in documents:
            planner.add(document)
        return planner.finish(skipped)


async def plan_stream(
    workspace: Workspace,
    documents: AsyncIterable[PlannedDocument],
    *,
    pages_per_unit: int,
    skipped: Mapping[str, int] | None = None,
) -> PlanResult:
    """`plan_documents` for documents that come one by one while their pages are counted."""
    with Planner(workspace, pages_per_unit=pages_per_unit) as planner:
        async for document in documents:
            planner.add(document)
        return await asyncio.to_thread(planner.finish, skipped)


class Planner:
    """Takes documents, then writes them as a generation. For one thread at a time."""

    def __init__(self, workspace: Workspace, *, pages_per_unit: int) -> None:
        if pages_per_unit < 1:
            raise UsageError(f"pages per unit must be 1 or more, not {pages_per_unit}")
        self._workspace = workspace
        self._pages_per_unit = pages_per_unit
        self._path = workspace.spool / f"plan-{attempt_id()}.jsonl"
        self._file = self._path.open("xb")
        self._lines = Numbers()  # by id, and by content
        self._contents = array("Q")  # of each line
        self._aliases: dict[int, list[tuple[str, str]]] = {}  # by line: source, relative

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)
        self._lines.close()

    def add(self, document: PlannedDocument) -> None:
        """Take one more document. Raises `UsageError` when its id stands for another document already."""
        document = with_reason(document)
        name, content = f"id {document.id}", content_of(document)
        line = self._lines.get(name)
        if line is not None:
            if self._contents[line] not in contents_of(document):
                raise _two_documents(document)
            if document.document_id is not None:
                self._aliases.setdefault(line, []).append((document.source, document.relative))
            return
        may_be_copy = document.document_id is None and document.reason is None and bool(document.version)
        line = self._lines.get(f"content {content}") if may_be_copy else None
        if line is not None:
            self._aliases.setdefault(line, []).append((document.source, document.relative))
        else:
            line = self._keep(document, content)
            if may_be_copy:
                self._lines[f"content {content}"] = line
        self._lines[name] = line

    def _keep(self, document: PlannedDocument, content: str) -> int:
        self._file.write(codec.dump(document_to_json(document)))
        self._contents.append(number_of(content))
        return len(self._contents) - 1

    def finish(self, skipped: Mapping[str, int] | None = None) -> PlanResult:
        """Write the generation. When another planner was first, what it did not plan goes into the next one."""
        self._file.flush()
        while True:
            found = generations(self._workspace)
            begin = found[-1].next_index if found else 0
            with _known(self._workspace, found) as known:
                choice = _Choice(self._members, known, begin)
                if not any(True for _ in choice.pieces()):
                    return choice.result(None)
                draft = new_draft(
                    len(found) + 1,
                    Kind.SOURCES,
                    pages_per_unit=self._pages_per_unit,
                    next_index=begin,
                    skipped=skipped or {},
                )
                cut = partial(_cut, choice, draft)
                standing = write_generation(self._workspace, draft, cut)
                if standing.attempt == draft.attempt:
                    return choice.result(standing)

    def _members(self) -> Iterator[list[PlannedDocument]]:
        """The documents in order, each with those of the same content behind it."""
        with self._path.open("rb") as lines:
            for number, line in enumerate(lines):
                document = document_from_json(codec.load(line, str(self._path)))
                others = self._aliases.get(number, ())
                yield [document, *(replace(document, source=source, relative=path) for source, path in others)]


@dataclass(slots=True)
class _Choice:
    """Those of the documents that a generation is to hold; the counts are of the last pass over `pieces`."""

    members: Callable[[], Iterator[list[PlannedDocument]]]
    known: Numbers  # by id: the number of the content
    begin: int
    known_count: int = 0
    copies: int = 0
    differing: int = 0
    examples: list[str] = field(default_factory=list)

    def pieces(self) -> Iterator[Piece]:
        self.known_count = self.copies = self.differing = 0
        self.examples.clear()
        index = self.begin
        for members in self.members():
            new = [document for document in members if not self._is_known(document)]
            if not new:
                continue
            first = new[0]
            aliases = tuple(dict.fromkeys(other.relative for other in new[1:] if other.relative != first.relative))
            self.copies += len(aliases)
            part = part_of(first, aliases)
            yield Piece(part, range(index, index + part.reserved))
            index += part.reserved

    def _is_known(self, document: PlannedDocument) -> bool:
        content = self.known.get(document.id)
        if content is None:
            return False
        self.known_count += 1
        if content not in contents_of(document):
            self.differing += 1
            if len(self.examples) < _MOST_EXAMPLES:
                self.examples.append(document.source)
        return True

    def result(self, generation: Generation | None) -> PlanResult:
        return PlanResult(generation, self.known_count, self.differing, self.copies, tuple(self.examples))


def _cut(choice: _Choice, draft: Generation) -> Iterator[CutUnit]:
    return cut_units(choice.pieces(), generation=draft.number, pages_per_unit=draft.pages_per_unit)


def _known(workspace: Workspace, found: Iterable[Generation]) -> Numbers:
    """All documents of the plan, and under the ids that they would have the aliases."""
    known = Numbers()
    for generation in found:
        if generation.kind is Kind.SOURCES:
            parts = (part for unit in units_of(workspace, generation) for part in unit.parts)
            for _, ranges in groupby(parts, key=lambda part: part.document_id):
                _remember(known, list(ranges))
    return known


def _remember(known: Numbers, ranges: Sequence[DocumentPart]) -> None:
    part = ranges[0]
    if part.estimate:
        content = asked_content(part.version, part.wanted)
    else:
        content = counted_content(part.version, tuple(page for one in ranges for page in one.pages))
    known[part.document_id] = number_of(content)
    for alias in part.aliases:
        known[document_id(None, relative=alias, version=part.version, source="")] = number_of(content)


def _two_documents(document: PlannedDocument) -> UsageError:
    if document.document_id is not None:
        return UsageError(
            f"the id {document.document_id} stands for two documents; the second is {document.source}",
            hint="Give each document of the manifest an id of its own.",
        )
    return UsageError(
        f"{document.source} is named twice with different pages",
        hint="Name it once, with all its pages.",
    )
