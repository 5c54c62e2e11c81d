"""Stand-ins for documents, rows and data that need no PDF, and what a run would make of them."""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from unittest import mock

from llm_ocr.results.schema import PageStatus
from llm_ocr.storage import ObjectStore
from llm_ocr.types import Counts, DocumentPart, Reason, Status, Unit, page_id
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import Generation, Repair
from llm_ocr.workspace.keys import EXTRACT, claim_key
from llm_ocr.workspace.plan import PlannedDocument
from llm_ocr.workspace.publish import Marker, publish
from llm_ocr.workspace.retry import plan_retry
from llm_ocr.workspace.summaries import Example, Summary
from tests.fakes.crash import CrashingLocalStore, CrashPoint
from tests.fakes.planning import plan_documents

SETTINGS = {"engine": "embedded", "image_size": 1540}


def failed_row(page: str, document: str, number: int | None, reason: str) -> PageStatus:
    """A failed row as it is read back."""
    return PageStatus(page, document, number, Status.FAILED, Reason(reason))


class Made:
    """Makes what a run would make."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def workspace(self, store: ObjectStore | None = None) -> Workspace:
        return Workspace.on(store or self.store(), create=True)

    def store(self) -> ObjectStore:
        """A local store that does not wait for the disk."""
        return CrashingLocalStore(self.root, CrashPoint())

    def document(self, name: str, pages: int | Sequence[int] = 1, **other) -> PlannedDocument:
        selected = tuple(range(1, pages + 1)) if isinstance(pages, int) else tuple(pages)
        values = {
            "source": f"/data/{name}",
            "relative": name,
            "version": f"sha of {name}",
            "document_id": None,
            "pages": selected,
            "page_total": max(selected, default=0),
        }
        return PlannedDocument(**{**values, **other})

    def unopened(self, name: str, reason: Reason = Reason.ENCRYPTED) -> PlannedDocument:
        return self.document(name, 0, reason=reason, detail="cannot be opened")

    def plan(self, workspace: Workspace, documents: Iterable[PlannedDocument], pages_per_unit: int = 4):
        return plan_documents(workspace, documents, pages_per_unit=pages_per_unit)

    def key(self, workspace: Workspace) -> str:
        return claim_key(workspace, EXTRACT, SETTINGS)

    def extract(self, workspace: Workspace, unit: Unit, fails: Iterable[str] = (), degraded: int = 0) -> Marker:
        """Publish the unit; pages whose id is in `fails` fail, and so does every document that could not be opened."""
        rows = [row for part in unit.parts for row in _rows(part, frozenset(fails))]
        reasons: dict[str, int] = {}
        for _, _, _, reason in rows:
            reasons[reason] = reasons.get(reason, 0) + 1
        counts = Counts(unit.expected, unit.expected - len(rows) - degraded, degraded, len(rows))
        examples = tuple(Example(row[0], "source", row[2], row[3]) for row in rows)
        summary = Summary(counts, Counts(expected=2), 10, 5, 1.5, reasons, examples, unit.replaces)
        return publish(workspace, EXTRACT, self.key(workspace), unit.id, json.dumps(rows).encode(), summary)

    async def plan_retry(
        self,
        workspace: Workspace,
        opened: Mapping[str, PlannedDocument] = MappingProxyType({}),
        pages_per_unit: int = 4,
        repair: Repair | None = None,
    ) -> Generation | None:
        """retry-failed, with documents that `opened` has by name; all others stay locked."""

        async def reopen(part: DocumentPart) -> PlannedDocument:
            return opened.get(part.relative) or self.unopened(part.relative)

        with self.rows_in_json():
            key = self.key(workspace)
            return await plan_retry(workspace, key, reopen=reopen, pages_per_unit=pages_per_unit, repair=repair)

    def rows_in_json(self) -> AbstractContextManager[object]:
        """Failed rows are read as `extract` writes them."""
        return mock.patch("llm_ocr.workspace.retry.page_statuses", _failed_rows)

    def retry(self, *given, **others) -> Generation | None:
        return asyncio.run(self.plan_retry(*given, **others))


def _failed_rows(data: bytes) -> list[PageStatus]:
    return [failed_row(*row) for row in json.loads(data)]


def _rows(part: DocumentPart, fails: frozenset[str]) -> list[tuple[str, str, int | None, str]]:
    if not part.pages:
        reason = part.reason.value if part.reason else "unreadable"
        return [(page_id(part.document_id, None), part.document_id, None, reason)]
    pages = [(page_id(part.document_id, number), number) for number in part.pages]
    return [(page, part.document_id, number, "render timeout") for page, number in pages if page in fails]
