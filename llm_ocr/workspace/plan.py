"""Turn documents into a stored plan. The same documents in the same order give the same plan."""

import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Self

from llm_ocr.documents.remote import shown
from llm_ocr.errors import ObjectNotFound, UsageError
from llm_ocr.results.documents import name_claims
from llm_ocr.types import ALL_PAGES, DocumentPart, PageSelection, Reason
from llm_ocr.workspace import Workspace, codec, library_version
from llm_ocr.workspace.codec import document_id
from llm_ocr.workspace.generations import (
    EXAMPLES,
    Filtered,
    Generation,
    Kind,
    Piece,
    cause_of,
    filled_generation,
    generations,
    units_of,
    write_generation,
)
from llm_ocr.workspace.planned import (
    DiskDict,
    PlannedDocument,
    asked_content,
    content_of,
    contents_of,
    counted_content,
    no_such_page,
    number_of,
    wanted_pages,
)
from llm_ocr.workspace.publish import attempt_id

__all__ = ["PlanResult", "PlannedDocument", "Planner"]


class KnownFiltered(DiskDict):
    """Documents in the filter lists of a plan, with their causes. Kept on the local disk; call `close`.

    A list has one JSON object per line with id, source, relative, version, reason, kind, and detail:
    `plan/<generation>/<attempt>/filtered.jsonl`.
    """

    def __init__(self) -> None:
        super().__init__()  # place in `_causes` by document
        self._causes: list[str] = []

    @classmethod
    def of(cls, workspace: Workspace, found: Iterable[Generation], filters: Mapping[str, Any] | None = None) -> Self:
        """Read the lists of these generations; with `filters`, only where the same filters were on. Blocking.

        Raises:
            WorkspaceError: a list is missing or changed.
        """
        known = cls()
        places: dict[str, int] = {}
        for filtered in (generation.filtered for generation in found):
            if filtered is None or not filtered.object or filters not in (None, filtered.filters):
                continue
            where = f"{workspace.url}: {filtered.object}"
            path = workspace.spool / f"read-{filtered.sha256[:16]}.jsonl"
            try:
                workspace.store.download(filtered.object, path)
                with path.open("rb") as file:
                    if hashlib.file_digest(file, "sha256").hexdigest() != filtered.sha256:
                        raise codec.damaged(where, "the content has changed")
                    file.seek(0)
                    for line in file:
                        value = codec.load(line, where)
                        place = places.setdefault(cause_of(value["reason"], value["kind"]), len(places))
                        known[_key(value["id"], value["version"])] = place
            except ObjectNotFound as error:
                raise codec.damaged(where, "the object is missing") from error
            finally:
                path.unlink(missing_ok=True)
        known._causes = list(places)
        return known

    def __bool__(self) -> bool:
        return bool(self._causes)

    def cause(self, document_id: str, version: str) -> str:
        """Return why the document with this content was excluded; empty if it was not."""
        place = self.get(_key(document_id, version)) if self._causes else None
        return "" if place is None else self._causes[place]


class FilteredSpool:
    """Documents excluded during one planning run, spooled to the local disk. Not thread-safe."""

    def __init__(self, path: Path, filters: Mapping[str, Any]) -> None:
        self._path = path
        self._filters = filters
        self._file = path.open("xb")
        self._met = DiskDict()

    def add(self, document: PlannedDocument) -> None:
        """Add a document, unless a document with the same id and content was added before."""
        key = _key(document.id, document.version)
        if self._met.get(key) is not None:
            return
        self._met[key] = 1
        reason, _, kind = document.filtered.partition(" ")
        value = {
            "id": document.id,
            "source": document.source,
            "relative": document.relative,
            "version": document.version,
            "reason": reason,
            "kind": kind,
            "detail": document.detail,
        }
        self._file.write(codec.dump(value))

    def new(self, is_known: Callable[[str, str], bool], list_path: Path) -> Filtered:
        """Write the documents that are not known by id and version to `list_path`, and return their counts."""
        self._file.flush()
        counts: Counter[str] = Counter()
        examples: list[Mapping[str, str]] = []
        digest, size = hashlib.sha256(), 0
        with list_path.open("wb") as out:
            for line in self._path.open("rb"):
                value = codec.load(line, str(self._path))
                if is_known(value["id"], value["version"]):
                    continue
                counts[cause_of(value["reason"], value["kind"])] += 1
                if len(examples) < EXAMPLES:
                    source = shown(value["source"])
                    examples.append({"reason": value["reason"], "detail": value["detail"], "source": source})
                out.write(line)
                digest.update(line)
                size += len(line)
        return Filtered(dict(self._filters), dict(counts), {}, tuple(examples), "", digest.hexdigest(), size)

    def close(self) -> None:
        """Remove the spool."""
        self._file.close()
        self._path.unlink(missing_ok=True)
        self._met.close()


def _key(document_id: str, version: str) -> str:
    return f"{document_id}\0{version}"


_MOST_EXAMPLES = 5


@dataclass(slots=True)
class PlanResult:
    """Result of planning. `generation` is None if there was nothing new.

    `known` documents were in the plan already and did not change. Of these, `differing` documents have another content
    or page selection now; `examples` lists some of their sources. `changed` documents are new, because the content of
    their file differs from the plan; `changed_examples` lists some of their sources. `unopened` counts new documents
    that cannot be read, by reason; `unopened_examples` lists some of their sources with details.
    """

    generation: Generation | None = None
    known: int = 0
    differing: int = 0
    copies: int = 0  # documents with the content of another document, stored as its aliases
    examples: list[str] = field(default_factory=list)
    filtered: Filtered | None = None  # documents that filters excluded for the first time
    changed: int = 0
    changed_examples: list[str] = field(default_factory=list)
    unopened: Counter[str] = field(default_factory=Counter)
    unopened_examples: list[tuple[str, str]] = field(default_factory=list)
    elsewhere: int = 0  # known documents that the plan has under another relative path
    elsewhere_examples: list[str] = field(default_factory=list)


def check_pages(workspace: Workspace, found: Iterable[Generation], asked: Mapping[str, PlannedDocument]) -> None:
    """Refuse pages of planned documents that the plan does not contain: a plan keeps its page selection.

    Args:
        workspace: the workspace of the plan.
        found: the generations of the plan.
        asked: documents with the same ids and other pages, as requested now.

    Raises:
        UsageError: a requested page is in no generation; the message names the first such document.
    """
    planned: dict[str, set[int]] = {}
    wanted: dict[str, set[int]] = {}
    units = (unit for generation in found for unit in units_of(workspace, generation))
    for part in (part for unit in units for part in unit.parts):
        document = asked.get(part.document_id)
        if document is None or document.version != part.version:
            continue  # a document with other content stays as planned, and the command reports it
        total = max(document.page_total, part.page_total, document.estimate, part.estimate)
        pages = wanted_pages(part.wanted, total) if part.estimate else part.pages
        planned.setdefault(part.document_id, set()).update(pages)
        wanted[part.document_id] = set(document.pages or wanted_pages(document.wanted, total))
    for name, pages_there in planned.items():
        if missing := sorted(wanted[name] - pages_there):
            raise UsageError(
                f"{shown(asked[name].source)} is in the plan with pages {codec.pages_to_text(sorted(pages_there))}, "
                f"without {codec.pages_to_text(missing)}",
                hint="The pages of a planned document are fixed. Read other pages in another `workspace`.",
            )


def known_documents(workspace: Workspace, found: Iterable[Generation]) -> DiskDict:
    """Return the contents of all planned documents by id, including the ids that their aliases would have.

    A document that could not be opened, and was read by a retry, keeps its id. The id that a plan would give it now is
    included.
    """
    known = DiskDict()
    unopened: set[str] = set()
    for generation in found:
        is_retry = generation.kind is Kind.RETRY
        if is_retry and not unopened:
            continue
        parts = (part for unit in units_of(workspace, generation) for part in unit.parts)
        for document, group in groupby(parts, key=lambda part: part.document_id):
            ranges = list(group)
            first = ranges[0]
            if first.estimate:
                content = number_of(asked_content(first.version, first.wanted))
            else:
                content = number_of(counted_content(first.version, (page for part in ranges for page in part.pages)))
            if is_retry:
                if document in unopened and known.get(now := id_by_content(first)) is None:
                    known[now] = content
                continue
            known[document] = content
            if first.reason is not None and document == id_by_content(first):  # no id of a manifest
                unopened.add(document)
            for claim in name_claims(first):
                known[_file_entry(claim.source, claim.relative)] = number_of(first.version)
                if document == id_by_content(first):  # another source may have the file under another relative path
                    known[_file_entry(claim.source)] = content
            for alias in first.aliases:
                known[document_id(None, relative=alias, version=first.version, source="")] = content
    return known


def id_by_content(part: DocumentPart) -> str:
    """Return the id of a document whose manifest, if any, gives none."""
    return document_id(None, relative=part.relative, version=part.version, source=part.source)


def planned_among(workspace: Workspace, found: Iterable[Generation], ids: Set[str]) -> set[str]:
    """Return those of the ids that documents of a plan have."""
    plans = (generation for generation in found if generation.kind is Kind.SOURCES)
    parts = (part for generation in plans for unit in units_of(workspace, generation) for part in unit.parts)
    return {part.document_id for part in parts if part.document_id in ids}


def _file_entry(source: str, relative: str = "") -> str:
    """Return the entry of a file among the known documents. No document id contains a null character."""
    return f"\0{source}\0{relative}"


_FIELDS = tuple(column.name for column in fields(PlannedDocument))
#: Pages up to which a plan that may have smaller units has the smallest ones. Units of larger plans grow with the plan.
SMALL_PLAN = 512


class Planner:
    """Collects documents, then writes them as a generation. Not thread-safe.

    Documents are spooled to the local disk first: the last of a million documents may be a copy (an alias) of the
    first. Memory holds eight bytes per document, and the names of copies.

    Args:
        workspace: The workspace to write to.
        pages_per_unit: Upper limit of pages in a unit.
        least_per_unit: A small plan has smaller units than `pages_per_unit`, with at least this many pages.
        filters: The active filters; empty or None for none.
    """

    def __init__(
        self,
        workspace: Workspace,
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
        self._lines = DiskDict()  # line number by document id and by content
        self._contents = array("Q")  # content number of each line
        self._aliases: dict[int, list[tuple[str, str]]] = {}  # source and relative path, by line
        self._filters = filters or {}
        self._result = PlanResult()
        self._readmitted: Mapping[str, int] = {}  # documents in older lists of excluded documents, by cause
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
        """Add a document.

        Raises:
            UsageError: another document has the same id.
        """
        if document.filtered and self._filtered is not None:
            self._filtered.add(document)
            return
        if not document.pages and document.reason is None and not document.estimate:  # the selection has no page
            detail = document.detail or no_such_page(document.page_total)
            document = replace(document, reason=Reason.NO_SUCH_PAGE, detail=detail)
        name, content = f"id {document.id}", content_of(document)
        line = self._lines.get(name)
        if line is not None:
            if self._contents[line] not in contents_of(document):
                if document.document_id is not None:
                    raise UsageError(
                        f"two documents have the id {document.document_id}; the second is {shown(document.source)}",
                        hint="Give each document of the manifest a different id. For a dataset, name an `id_column` "
                        "without repeated ids, or none: ids then consist of commit, file, and row.",
                    )
                raise UsageError(
                    f"{shown(document.source)} is given twice with different pages",
                    hint="Give the document once, with all its pages.",
                )
            if document.document_id is not None or document.name_in_id:  # the id does not distinguish paths
                self._aliases.setdefault(line, []).append((document.source, document.relative))
            return
        may_be_copy = document.document_id is None and document.reason is None and bool(document.version)
        line = self._lines.get(f"content {content}") if may_be_copy else None
        if line is not None:
            self._aliases.setdefault(line, []).append((document.source, document.relative))
        else:
            line = len(self._contents)
            value = {name: getattr(document, name) for name in _FIELDS}  # `asdict` would copy all pages
            texts = {"pages": codec.pages_to_text(document.pages), "wanted": codec.wanted_to_json(document.wanted)}
            self._file.write(codec.dump(value | texts))
            self._contents.append(number_of(content))
            self._pages += document.estimate or len(document.pages) or 1
            if may_be_copy:
                self._lines[f"content {content}"] = line
        self._lines[name] = line

    def finish(self, skipped: Mapping[str, int] | None = None, *, dry_run: bool = False) -> PlanResult:
        """Write the generation. If another planner wrote first, the remaining documents go into the next generation.

        Args:
            skipped: number of files left out, by suffix.
            dry_run: count only.

        Raises:
            UsageError: a known document was requested with pages that are not in the plan.
        """
        self._file.flush()
        least = self._least_per_unit
        pages_per_unit = min(self._pages_per_unit, max(least, least * self._pages // SMALL_PLAN))
        while True:
            found = generations(self._workspace)
            begin = found[-1].next_index if found else 0
            with known_documents(self._workspace, found) as known, KnownFiltered.of(self._workspace, found) as left_out:
                draft = Generation(
                    len(found) + 1,
                    Kind.SOURCES,
                    attempt_id(),
                    pages_per_unit,
                    begin,
                    skipped=dict(sorted((skipped or {}).items())),
                    created_by=library_version(),
                )
                pieces = partial(self._pieces, found, known, left_out, begin)
                first = pieces()
                any_piece = next(first, None) is not None
                if left_out:  # count all readmitted documents
                    for _ in first:
                        pass
                readmitted = self._readmitted
                listed = self._workspace.spool / f"filtered-{draft.attempt}.jsonl"
                filtered = Filtered(readmitted=readmitted) if readmitted else None
                if self._filtered is not None:

                    def is_settled(document_id: str, version: str) -> bool:
                        return known.get(document_id) is not None or bool(left_out.cause(document_id, version))

                    filtered = self._filtered.new(is_settled, listed)
                    name = f"plan/{draft.number:04d}/{draft.attempt}/filtered.jsonl" if filtered.counts else ""
                    filtered = replace(filtered, object=name, readmitted=readmitted)
                draft = replace(draft, filtered=filtered)
                if not any_piece and not (filtered and filtered.counts):
                    return self._result
                if dry_run:
                    filled = filled_generation(draft, pieces())
                    return replace(self._result, generation=filled, filtered=filtered)
                published = write_generation(self._workspace, draft, pieces, listed)
                if published.attempt == draft.attempt:
                    return replace(self._result, generation=published, filtered=published.filtered)

    def _pieces(
        self, found: Sequence[Generation], known: DiskDict, left_out: KnownFiltered, begin: int
    ) -> Iterator[Piece]:
        """Yield the pieces to cut: documents whose id is not in the plan, whatever its content was.

        `_result` and `_readmitted` are of the last complete pass.

        Args:
            found: The generations of the plan.
            known: Number of the content by document id; number of the version by `_file_entry`.
            left_out: Documents in older lists of excluded documents.
            begin: First dataset index.

        Raises:
            UsageError: A known document was requested with pages that are not in the plan. Raised at the end.
        """
        result = PlanResult()
        readmitted: Counter[str] = Counter()
        differing_by_id: dict[str, PlannedDocument] = {}
        index = begin
        for members in self._members():
            new: list[PlannedDocument] = []
            for document in members:
                content = known.get(document.id)
                if content is None and document.document_id is None:
                    content = known.get(_file_entry(document.source))
                    if content in contents_of(document):
                        result.elsewhere += 1
                        result.elsewhere_examples.append(document.source)
                    else:
                        content = None
                if content is None:
                    new.append(document)
                    continue
                result.known += 1
                if content not in contents_of(document):
                    result.differing += 1
                    differing_by_id.setdefault(document.id, document)
                    result.examples.append(document.source)
            for document in new:
                planned = known.get(_file_entry(document.source, document.relative))
                if planned is not None and document.version and planned != number_of(document.version):
                    result.changed += 1
                    result.changed_examples.append(document.source)
                if cause := left_out.cause(document.id, document.version):
                    readmitted[cause] += 1
            for examples in (result.examples, result.changed_examples, result.elsewhere_examples):
                del examples[_MOST_EXAMPLES:]
            if not new:
                continue
            first = new[0]
            aliases = tuple(dict.fromkeys(other.relative for other in new[1:] if other.relative != first.relative))
            result.copies += len(aliases)
            part = DocumentPart(
                document_id=first.id,
                source=first.source,
                relative=first.relative,
                version=first.version,
                pages=first.pages,
                page_total=first.page_total,
                first_index=0,
                aliases=aliases,
                reason=first.reason,
                detail=first.detail,
                estimate=first.estimate,
                wanted=ALL_PAGES if first.pages else first.wanted,
            )
            if first.reason is not None:
                result.unopened[first.reason.value] += 1
                if len(result.unopened_examples) < _MOST_EXAMPLES:
                    result.unopened_examples.append((first.source, first.detail))
            yield Piece(part, range(index, index + part.reserved))
            index += part.reserved
        self._readmitted, self._result = dict(readmitted), result
        if differing_by_id:
            check_pages(self._workspace, found, differing_by_id)

    def _members(self) -> Iterator[list[PlannedDocument]]:
        """Yield the documents in order, each followed by its copies with the same content."""
        with self._path.open("rb") as lines:
            for number, line in enumerate(lines):
                value = codec.load(line, str(self._path))
                value |= {
                    "pages": codec.pages_from_text(value["pages"]),
                    "wanted": PageSelection(**value["wanted"]),
                }
                document = PlannedDocument(**{**value, "reason": Reason(value["reason"]) if value["reason"] else None})
                others = self._aliases.get(number, ())
                yield [document, *(replace(document, source=source, relative=path) for source, path in others)]
