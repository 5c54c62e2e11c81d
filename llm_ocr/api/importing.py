"""Taking over a dataset that the predecessor wrote: its rows become this workspace's pages, as if Extract had run here.

First a plan, a document for each row, then unit by unit the pages, and the descriptions where the dataset has some:
they stand as a Describe key of their own. Everything is published as by a stage, so that an import that was killed goes
on, and one that is done does nothing.
"""

import asyncio
import hashlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from llm_ocr.api.import_files import ID, METADATA, InputRows, Row
from llm_ocr.api.import_pages import TakenOver, described, page_of, unreadable
from llm_ocr.api.import_place import into
from llm_ocr.api.import_source import InputDataset, InputFile
from llm_ocr.api.job import Job
from llm_ocr.api.threads import stepwise
from llm_ocr.errors import UsageError
from llm_ocr.results.parquet import release_memory
from llm_ocr.results.schema import figures_to_parquet, pages_to_parquet
from llm_ocr.settings.models import InputCommand
from llm_ocr.stages import Progress
from llm_ocr.storage.local import LocalStore
from llm_ocr.types import Counts, DocumentPart, Unit
from llm_ocr.work import codec
from llm_ocr.work.generations import generations, read_units
from llm_ocr.work.keys import DESCRIBE, EXTRACT, claim_key
from llm_ocr.work.plan import PlannedDocument, Planner
from llm_ocr.work.publish import is_done, iter_markers, publish
from llm_ocr.work.summary import figures_summary, pages_summary
from llm_ocr.work.workspace import Workspace

#: Raised when the same rows give other pages.
RESULT_VERSION = 1
#: Pages of a unit.
PAGES_PER_UNIT = 64
#: Units that are written at a time while the next is read; each takes several times its images in memory.
_SIDE_BY_SIDE = 1
#: The name of it in progress and messages.
STAGE = "import"


async def take_over(job: Job[InputCommand], dataset: InputDataset) -> None:
    """Import what is missing of the dataset: this worker's share first, then what others have not done.

    Raises `WorkspaceMismatch` when the workspace holds other pages.
    """
    workspace, progress = job.workspace, job.progress
    with InputRows(dataset, workspace.spool) as rows:
        imported = await asyncio.to_thread(into, workspace, dataset)
        if imported is None:
            imported = await _planned(workspace, dataset, rows, progress)
        keys = await asyncio.to_thread(_claimed, workspace, imported)
        todo = await asyncio.to_thread(_begin, job, keys, progress)
        if todo is None:
            return
        importer = _Importer(workspace, dataset, rows, keys)
        slots = asyncio.Semaphore(_SIDE_BY_SIDE)

        async def published(unit: Unit, pages: list[TakenOver]) -> None:
            try:
                await asyncio.to_thread(importer.publish, unit, pages)
            finally:
                slots.release()
            for one in pages:
                progress.count(one.page.status)

        async with asyncio.TaskGroup() as tasks:
            async for unit in stepwise(todo):
                await slots.acquire()
                tasks.create_task(published(unit, await asyncio.to_thread(importer.read, unit)))
    progress.end()


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys under which an import is published; `describe` is empty where there are no descriptions."""

    extract: str
    describe: str

    def done(self, workspace: Workspace, unit: str) -> bool:
        # Extract's marker comes last: it says that both are there.
        return is_done(workspace, EXTRACT, self.extract, unit)


def _claimed(workspace: Workspace, imported: Mapping[str, Any]) -> _Keys:
    """Where there is no figure, nothing is left to describe: that counts as described."""
    extract = claim_key(workspace, EXTRACT, {"imported": dict(imported)})
    if imported["figures"] and not imported["described"]:
        return _Keys(extract, "")
    return _Keys(extract, claim_key(workspace, DESCRIBE, {"extract": extract, "imported": dict(imported)}))


@dataclass(slots=True)
class _Survey:
    """What the rows of a dataset are, from their texts alone."""

    dataset: InputDataset
    rows: int = 0
    figures: int = 0
    described: int = 0
    _seen: set[bytes] = field(default_factory=set)  # 8 bytes of a hash of each id

    def documents(self, file: InputFile, first: int, batch: list[dict[str, Any]]) -> list[PlannedDocument]:
        """The documents of a batch of rows, the first of which is row `first` of the file."""
        return [self._document(file, first + at, row) for at, row in enumerate(batch)]

    def _document(self, file: InputFile, number: int, row: Row) -> PlannedDocument:
        given = row.get(METADATA)
        entries = given if isinstance(given, list) else []
        self.figures += len(entries)
        self.described += sum(map(described, entries))
        given = row.get(ID)
        name = given if isinstance(given, str) and given.strip() else f"row_{self.rows:05d}"
        self.rows += 1
        plain = self._unique(f"{file.split}-{name}" if file.split else name)
        address = f"{self.dataset.name(file)}#{number}"
        relative = f"{file.split}/{name}" if file.split else name
        version = hashlib.sha256(f"{self.dataset.version}\0{file.key}\0{number}".encode()).hexdigest()[:16]
        return PlannedDocument(address, relative, version, plain, (1,), 1)

    def _unique(self, name: str) -> str:
        """The id, with a number behind it where an earlier row has the same one."""
        chosen, count = name, 1
        while (digest := hashlib.sha256(chosen.encode("utf-8", "surrogatepass")).digest()[:8]) in self._seen:
            count += 1
            chosen = f"{name}-{count}"
        self._seen.add(digest)
        return chosen


async def _planned(
    workspace: Workspace, dataset: InputDataset, rows: InputRows, progress: Progress
) -> Mapping[str, Any]:
    """Write the plan; what the keys say of the import. The key comes first: then a plan without one is not ours."""
    progress.say(f"Input: {dataset.url} (version {dataset.version[:12]})")
    survey = _Survey(dataset)
    with Planner(workspace, pages_per_unit=PAGES_PER_UNIT) as planner:
        for file in dataset.files:
            first = 0
            async for batch in stepwise(rows.texts(file)):
                for document in survey.documents(file, first, batch):
                    planner.add(document)
                first += len(batch)
        if not survey.rows:
            raise UsageError(f"--input {dataset.url} has no rows", hint="Run the predecessor's Extract first.")
        imported = {
            "from": dataset.url,
            "version": dataset.version,
            "figures": survey.figures,
            "described": survey.described,
            "result_version": RESULT_VERSION,
        }
        await asyncio.to_thread(_claimed, workspace, imported)
        if not await asyncio.to_thread(generations, workspace):
            await asyncio.to_thread(planner.finish)
    known = f"{survey.described} of {survey.figures} figures described" if survey.figures else "no figures"
    progress.say(f"Input: {survey.rows} pages, {known}")
    return imported


def _begin(job: Job[InputCommand], keys: _Keys, progress: Progress) -> Iterator[Unit] | None:
    """The units that are missing, from this worker's share on and round; None when none is."""
    workspace = job.workspace
    done = Counts()
    finished = set[str]()
    for marker in iter_markers(workspace, EXTRACT, keys.extract):
        done += marker.counts
        finished.add(marker.unit)
    expected = total = 0
    for unit in read_units(workspace):
        expected += unit.expected
        total += 1
    if len(finished) >= total:
        return None
    progress.begin(STAGE, expected, done)
    start = _start(job, total)
    return (
        unit
        for later in (False, True)
        for place, unit in enumerate(read_units(workspace))
        if (place < start) is later and unit.id not in finished and not keys.done(workspace, unit.id)
    )


def _start(job: Job[InputCommand], total: int) -> int:
    """Where this worker begins: workers that start together shall not do the same units."""
    index, count = job.settings.shard_index, job.settings.shard_count
    if count > 1 or isinstance(job.workspace.store, LocalStore):
        return int(total * index // count)
    return random.randrange(total)


class _Importer:
    """From units to published rows."""

    def __init__(self, workspace: Workspace, dataset: InputDataset, rows: InputRows, keys: _Keys) -> None:
        self._workspace = workspace
        self._rows = rows
        self._keys = keys
        self._files = {dataset.name(file): file for file in dataset.files}
        self._url = dataset.url

    def read(self, unit: Unit) -> list[TakenOver]:
        """The unit's pages. For one thread at a time."""
        return [page for run in self._runs(unit) for page in self._pages(*run)]

    def publish(self, unit: Unit, pages: list[TakenOver]) -> None:
        """Publish the pages, and before them their descriptions."""
        records = [one.page for one in pages]
        summary = pages_summary(unit, records)
        if self._keys.describe:
            figures = [record for one in pages for record in one.descriptions]
            about = figures_summary(summary.figures.expected, figures)
            publish(self._workspace, DESCRIBE, self._keys.describe, unit.id, figures_to_parquet(figures), about)
        publish(self._workspace, EXTRACT, self._keys.extract, unit.id, pages_to_parquet(records), summary)
        release_memory()

    def _runs(self, unit: Unit) -> Iterator[tuple[InputFile, int, list[DocumentPart]]]:
        """Parts whose rows stand one behind the other in a file, with the first row's number."""
        places = [(*self._place(part), part) for part in unit.parts]
        for (file, offset), group in groupby(enumerate(places), key=lambda one: (one[1][0], one[1][1] - one[0])):
            members = list(group)
            yield file, offset + members[0][0], [part for _, (_, _, part) in members]

    def _place(self, part: DocumentPart) -> tuple[InputFile, int]:
        name, _, row = part.source.rpartition("#")
        if name not in self._files or not row.isdecimal():
            raise codec.damaged(f"the plan of {self._workspace.url}", f"{self._url} has no row {part.source}")
        return self._files[name], int(row)

    def _pages(self, file: InputFile, first: int, parts: list[DocumentPart]) -> Iterator[TakenOver]:
        rows = self._rows.rows(file, first, first + len(parts))
        for part in parts:
            row = next(rows, None)
            index = part.index_of(0)
            yield unreadable(part, index, "no such row") if row is None else page_of(part, index, row)
