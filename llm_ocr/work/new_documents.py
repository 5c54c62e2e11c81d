"""Which documents are new to a plan: not in it under their id, whatever their content was then."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from llm_ocr.documents.remote.urls import shown
from llm_ocr.errors import UsageError
from llm_ocr.types import DocumentPart
from llm_ocr.work import codec
from llm_ocr.work.filtered_lists import KnownFiltered
from llm_ocr.work.generations import Generation, Kind, units_of
from llm_ocr.work.ids import document_id
from llm_ocr.work.numbers import Numbers, number_of
from llm_ocr.work.planned import PlannedDocument, asked_content, contents_of, counted_content, part_of
from llm_ocr.work.units import Piece
from llm_ocr.work.wanted import wanted_pages
from llm_ocr.work.workspace import Workspace

_MOST_EXAMPLES = 5


@dataclass(slots=True)
class Choice:
    """Those of the documents that a generation is to hold; the counts are of the last pass over `pieces`."""

    members: Callable[[], Iterator[list[PlannedDocument]]]
    known: Numbers  # by id: the number of the content
    left_out: KnownFiltered
    begin: int
    check: Callable[[Mapping[str, PlannedDocument]], None]  # refuses what `differing` documents ask for in vain
    known_count: int = 0
    copies: int = 0
    differing: int = 0
    examples: list[str] = field(default_factory=list)
    readmitted: Counter[str] = field(default_factory=Counter)  # that are in older lists of what filters left out
    _differing: dict[str, PlannedDocument] = field(default_factory=dict)  # by id

    def look(self) -> bool:
        """Whether there is any piece; looks at all of them where readmitted ones must be counted."""
        pieces = self.pieces()
        some = next(pieces, None) is not None
        if self.left_out:
            for _ in pieces:
                pass
        return some

    def is_settled(self, document_id: str, version: str) -> bool:
        """Whether a document needs no place in a list of what is left out: it is planned, or in one."""
        return self.known.get(document_id) is not None or bool(self.left_out.cause(document_id, version))

    def pieces(self) -> Iterator[Piece]:
        """What is to be cut, in order. Raises `UsageError` at the end for pages that a known document does not have."""
        self.known_count = self.copies = self.differing = 0
        self.examples.clear()
        self.readmitted.clear()
        self._differing.clear()
        index = self.begin
        for members in self.members():
            new = [document for document in members if not self._is_known(document)]
            if not new:
                continue
            first = new[0]
            causes = [self.left_out.cause(one.id, one.version) for one in new]
            self.readmitted.update(cause for cause in causes if cause)
            aliases = tuple(dict.fromkeys(other.relative for other in new[1:] if other.relative != first.relative))
            self.copies += len(aliases)
            part = part_of(first, aliases)
            yield Piece(part, range(index, index + part.reserved))
            index += part.reserved
        if self._differing:
            self.check(self._differing)

    def _is_known(self, document: PlannedDocument) -> bool:
        content = self.known.get(document.id)
        if content is None:
            return False
        self.known_count += 1
        if content not in contents_of(document):
            self.differing += 1
            self._differing.setdefault(document.id, document)
            if len(self.examples) < _MOST_EXAMPLES:
                self.examples.append(document.source)
        return True


def check_pages(workspace: Workspace, found: Iterable[Generation], asked: Mapping[str, PlannedDocument]) -> None:
    """Refuse pages of documents that are in the plan without them: the plan keeps the pages it was made with.

    Args:
        workspace: that of the plan.
        found: its generations.
        asked: documents with the same ids and other pages, as they are named now.

    Raises:
        UsageError: some of the pages are in no generation; names the first such document.
    """
    planned: dict[str, set[int]] = {}
    wanted: dict[str, set[int]] = {}
    for part in (part for one in found for unit in units_of(workspace, one) for part in unit.parts):
        document = asked.get(part.document_id)
        if document is None or document.version != part.version:
            continue  # with other content it stays as it is planned, and that is said
        total = max(document.page_total, part.page_total, document.estimate, part.estimate)
        pages = wanted_pages(part.wanted, total) if part.estimate else part.pages
        planned.setdefault(part.document_id, set()).update(pages)
        wanted[part.document_id] = set(document.pages or wanted_pages(document.wanted, total))
    for name, pages_there in planned.items():
        if missing := sorted(wanted[name] - pages_there):
            raise UsageError(
                f"{shown(asked[name].source)} is in the plan with pages {codec.pages_to_text(sorted(pages_there))}, "
                f"without {codec.pages_to_text(missing)}",
                hint="A workspace keeps the pages that a document was planned with: read others in another one (-w).",
            )


def known_documents(workspace: Workspace, found: Iterable[Generation]) -> Numbers:
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
