"""How many pages documents have, from a few parts of the stored plan."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from llm_ocr.work.generations import Generation, Kind, PlanPart, generations, units_of
from llm_ocr.work.workspace import Workspace

#: Bytes of the plan that are read at most, one part at least: about a second's work.
_MOST_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class PageCounts:
    """`pages`: how many documents have so many pages. `documents` were looked at, of `planned`."""

    documents: int = 0
    planned: int = 0
    pages: Mapping[int, int] = field(default_factory=dict)


def pages_of_documents(workspace: Workspace) -> PageCounts:
    """Of documents that the plan has counted; of a large plan those of parts that are spread over it.

    Raises `WorkspaceError` for a damaged part.
    """
    found = [one for one in generations(workspace) if one.kind is Kind.SOURCES]
    totals: dict[str, int] = {}
    for generation, part in _spread([(one, part) for one in found for part in one.parts]):
        for unit in units_of(workspace, replace(generation, parts=(part,))):
            totals.update({one.document_id: one.page_total for one in unit.parts if one.page_total > 0})
    counts = Counter(totals.values())
    return PageCounts(len(totals), sum(one.documents for one in found), dict(sorted(counts.items())))


def _spread(parts: Sequence[tuple[Generation, PlanPart]]) -> Iterator[tuple[Generation, PlanPart]]:
    size = sum(part.size for _, part in parts)
    every = max(1, -(-size // _MOST_BYTES))
    yield from parts[every // 2 :: every] if every < len(parts) else parts[:1] if every > 1 else parts
