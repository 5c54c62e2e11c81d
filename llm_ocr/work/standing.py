"""Which retry stands for a page: what older markers say of the page is then no longer so."""

from collections.abc import Collection, Iterable, Iterator

from llm_ocr.types import Unit, page_id
from llm_ocr.work.generations import Generation, Kind, units_of
from llm_ocr.work.workspace import Workspace


def newest_units(
    workspace: Workspace,
    found: Iterable[Generation],
    done: Collection[str],
    kept: Collection[tuple[str, str]],
    pages: Collection[str],
) -> dict[str, str]:
    """The newest retry in `done`, by its unit's id, that stands for each of these pages; pages without one are missing.

    `kept` has retries and the pages that they have read again without success: there the older row counts.
    """
    newest: dict[str, str] = {}
    for generation in found if pages else ():
        if generation.kind is Kind.RETRY:
            for unit in units_of(workspace, generation):
                if unit.id in done:
                    stands = (page for page in _pages(unit) if page in pages and (unit.id, page) not in kept)
                    newest.update(dict.fromkeys(stands, unit.id))
    return newest


def _pages(unit: Unit) -> Iterator[str]:
    """The document itself among them: it stands for its pages when it could not be opened."""
    return (page_id(part.document_id, number) for part in unit.parts for number in (None, *part.pages))
