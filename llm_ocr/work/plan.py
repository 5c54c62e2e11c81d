"""From documents to a stored plan. The same documents in the same order give the same plan.

Documents are spooled to the local disk first: a copy of a document, which becomes its alias, may come as the last of a
million. In memory there are eight bytes a document, and the names of copies.
"""

import asyncio
from array import array
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from llm_ocr.documents.remote.urls import shown
from llm_ocr.errors import UsageError
from llm_ocr.work import codec
from llm_ocr.work.filtered import Filtered
from llm_ocr.work.filtered_lists import FilteredSpool, KnownFiltered
from llm_ocr.work.generations import (
    Generation,
    Kind,
    counted_generation,
    generations,
    new_draft,
    write_generation,
)
from llm_ocr.work.marker import attempt_id
from llm_ocr.work.new_documents import Choice, check_pages, known_documents
from llm_ocr.work.numbers import Numbers, number_of
from llm_ocr.work.planned import (
    PlannedDocument,
    content_of,
    contents_of,
    document_from_json,
    document_to_json,
    with_reason,
)
from llm_ocr.work.units import CutUnit, cut_units
from llm_ocr.work.workspace import Workspace

__all__ = ["PlanResult", "PlannedDocument", "Planner", "plan_documents", "plan_stream"]

#: A plan that may have smaller units has about so many of them, until they are of the usual size.
SMALL_PLAN = 32


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
    filtered: Filtered | None = None  # what filters newly left out


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
    least_per_unit: int | None = None,
    filters: Mapping[str, Any] | None = None,
    dry_run: bool = False,
) -> PlanResult:
    """`plan_documents` for documents that come one by one while their pages are counted.

    With `least_per_unit` a small plan has smaller units than `pages_per_unit`, of at least so many pages. `filters`
    says which are on; empty or None: none. With `dry_run` nothing is written to the workspace.
    """
    with Planner(workspace, pages_per_unit=pages_per_unit, least_per_unit=least_per_unit, filters=filters) as planner:
        async for document in documents:
            planner.add(document)
        return await asyncio.to_thread(planner.finish, skipped, dry_run=dry_run)


class Planner:
    """Takes documents, then writes them as a generation. For one thread at a time."""

    def __init__(
        self,
        workspace: Workspace,
        *,
        pages_per_unit: int,
        least_per_unit: int | None = None,
        filters: Mapping[str, Any] | None = None,
    ) -> None:
        if pages_per_unit < 1:
            raise UsageError(f"pages per unit must be 1 or more, not {pages_per_unit}")
        self._workspace = workspace
        self._pages_per_unit = pages_per_unit
        self._least_per_unit = least_per_unit or pages_per_unit
        self._pages = 0
        self._path = workspace.spool / f"plan-{attempt_id()}.jsonl"
        self._file = self._path.open("xb")
        self._lines = Numbers()  # by id, and by content
        self._contents = array("Q")  # of each line
        self._aliases: dict[int, list[tuple[str, str]]] = {}  # by line: source, relative
        self._filters = filters or {}
        self._filtered = FilteredSpool(self._path.with_suffix(".filtered"), self._filters) if filters else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)
        self._lines.close()
        if self._filtered is not None:
            self._filtered.close()

    def add(self, document: PlannedDocument) -> None:
        """Take one more document. Raises `UsageError` when its id stands for another document already."""
        if document.filtered and self._filtered is not None:
            self._filtered.add(document)
            return
        document = with_reason(document)
        name, content = f"id {document.id}", content_of(document)
        line = self._lines.get(name)
        if line is not None:
            if self._contents[line] not in contents_of(document):
                raise _two_documents(document)
            if document.document_id is not None or document.name_in_id:  # the id does not tell paths apart
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
        self._pages += document.estimate or len(document.pages) or 1
        return len(self._contents) - 1

    def finish(self, skipped: Mapping[str, int] | None = None, *, dry_run: bool = False) -> PlanResult:
        """Write the generation. When another planner was first, what it did not plan goes into the next one.

        With `dry_run` it is only counted. Raises `UsageError` for pages that are not in the plan of a known document.
        """
        self._file.flush()
        while True:
            found = generations(self._workspace)
            begin = found[-1].next_index if found else 0
            with known_documents(self._workspace, found) as known, KnownFiltered.of(self._workspace, found) as left_out:
                choice = Choice(self._members, known, left_out, begin, partial(check_pages, self._workspace, found))
                draft = new_draft(
                    len(found) + 1,
                    Kind.SOURCES,
                    pages_per_unit=min(self._pages_per_unit, max(self._least_per_unit, self._pages // SMALL_PLAN)),
                    next_index=begin,
                    skipped=skipped or {},
                )
                some = choice.look()
                listed = self._workspace.spool / f"filtered-{draft.attempt}.jsonl"
                draft = replace(draft, filtered=self._left_out(choice, draft, listed))
                if not some and not (draft.filtered and draft.filtered.counts):
                    return _result(choice, None)
                cut = partial(_cut, choice, draft)
                if dry_run:
                    return _result(choice, counted_generation(draft, cut()))
                standing = write_generation(self._workspace, draft, cut, listed)
                if standing.attempt == draft.attempt:
                    return _result(choice, standing)

    def _left_out(self, choice: Choice, draft: Generation, listed: Path) -> Filtered | None:
        """What filters left out newly, its list written to `listed`; None where there is nothing to say."""
        if self._filtered is None:
            return Filtered(readmitted=dict(choice.readmitted)) if choice.readmitted else None
        new = self._filtered.new(choice.is_settled, listed)
        name = f"plan/{draft.number:04d}/{draft.attempt}/filtered.jsonl" if new.counts else ""
        return replace(new, object=name, readmitted=dict(choice.readmitted))

    def _members(self) -> Iterator[list[PlannedDocument]]:
        """The documents in order, each with those of the same content behind it."""
        with self._path.open("rb") as lines:
            for number, line in enumerate(lines):
                document = document_from_json(codec.load(line, str(self._path)))
                others = self._aliases.get(number, ())
                yield [document, *(replace(document, source=source, relative=path) for source, path in others)]


def _result(choice: Choice, generation: Generation | None) -> PlanResult:
    filtered = generation.filtered if generation else None
    return PlanResult(generation, choice.known_count, choice.differing, choice.copies, tuple(choice.examples), filtered)


def _cut(choice: Choice, draft: Generation) -> Iterator[CutUnit]:
    return cut_units(choice.pieces(), generation=draft.number, pages_per_unit=draft.pages_per_unit)


def _two_documents(document: PlannedDocument) -> UsageError:
    if document.document_id is not None:
        return UsageError(
            f"the id {document.document_id} stands for two documents; the second is {shown(document.source)}",
            hint="Give each document of the manifest an id of its own.",
        )
    return UsageError(
        f"{shown(document.source)} is named twice with different pages",
        hint="Name it once, with all its pages.",
    )
