"""What must be true of a finished workspace, whatever died while it was made. Each breach is a line of words."""

import io
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping

import pyarrow.parquet

from llm_ocr.errors import LlmOcrError
from llm_ocr.runs import Run
from llm_ocr.stages.clean import OLD, clean
from llm_ocr.storage import ObjectStore
from llm_ocr.types import page_id
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import Kind, generations, read_units
from llm_ocr.workspace.items import items
from llm_ocr.workspace.keys import ASSEMBLE, DESCRIBE, EXTRACT, STAGES, stage_keys
from llm_ocr.workspace.publish import markers, read_data
from tests.fakes.memory_store import MemoryStore

_MARK = re.compile(r"^<!-- page (\d+) -->$", re.MULTILINE)

#: By stage and unit, whose attempt stands.
Attempts = Mapping[tuple[str, str], str]


def attempts(store: ObjectStore) -> Attempts:
    """The finished units, of a workspace that may be in any state."""
    if store.stat("run.json") is None:
        return {}
    with Workspace.on(store) as workspace:
        return {
            (stage, unit): marker.attempt
            for stage in STAGES
            for one in stage_keys(workspace, stage)
            for unit, marker in markers(workspace, stage, one.key).items()
        }


def problems(
    store: ObjectStore, *, pages: int, before: Attempts, figures: int | None = None, tidy: bool = True
) -> list[str]:
    """Breaches of what is promised: all done, counts conserved, each page once, nothing published twice.

    `pages` and `figures` (None: one a page) are expected; `before` is what stood while the work was under way. With
    `tidy`, leftovers are cleaned away afterwards, as if a day had passed: all that counts must stay, and nothing else.
    """
    copy = copied(store)  # one request an object, however often it is looked at
    try:
        with Workspace.on(copy) as workspace:
            found = [
                *_undone(workspace, pages, pages if figures is None else figures),
                *_published(workspace, before),
                *_rows(workspace, pages),
            ]
            wanted = set(_wanted(workspace))
        if tidy:
            with Workspace.on(store) as workspace:
                clean(workspace, now=time.time() + OLD + 3600)
            left = {info.key for info in (*store.list(), *store.unfinished())}
            found += [f"left over after clean: {key}" for key in sorted(left - wanted)]
            found += [f"removed by clean: {key}" for key in sorted(wanted - left)]
    except LlmOcrError as error:
        return [f"cannot be read: {error}"]
    return found


def copied(store: ObjectStore) -> ObjectStore:
    """All objects, in memory."""
    copy = MemoryStore()
    for info in store.list():
        copy.put(info.key, store.get(info.key))
    return copy


def _undone(workspace: Workspace, pages: int, figures: int) -> Iterator[str]:
    status = Run(workspace).status
    for name, stage in status.stages.items():
        if not stage.finished:
            yield f"{name} is not done: {stage.done} of {stage.total}"
    for what, counts, expected in (("pages", status.pages, pages), ("figures", status.figures, figures)):
        if counts.expected != expected or counts.expected != counts.ok + counts.degraded + counts.failed:
            yield f"{what} are not conserved: {counts}, of {expected}"


def _published(workspace: Workspace, before: Attempts) -> Iterator[str]:
    """One marker a unit, the same as before, and whole data behind each."""
    after = attempts(workspace.store)
    for place, attempt in before.items():
        if after.get(place) != attempt:
            yield f"published twice: {place} was of attempt {attempt}, and is of {after.get(place)}"
    wanted = {
        EXTRACT: Counter(unit.id for unit in read_units(workspace)),
        DESCRIBE: Counter(unit.id for unit in read_units(workspace)),
        ASSEMBLE: Counter(item.name for item in items(workspace)),
    }
    for stage, units in wanted.items():
        standing = {}
        for one in stage_keys(workspace, stage):
            standing |= markers(workspace, stage, one.key)
        if Counter(list(standing)) != units:
            yield f"{stage}: the markers are {sorted(standing)}, the units {sorted(units)}"
        for marker in standing.values():
            read_data(workspace, marker)


def _rows(workspace: Workspace, pages: int) -> Iterator[str]:
    """Each page once: in the rows that count, in the dataset, in the documents."""
    planned = Counter(
        page_id(part.document_id, number)
        for unit in read_units(workspace, kinds=[Kind.SOURCES])
        for part in unit.parts
        for number in part.pages
    )
    rows = list(Run(workspace).pages(images=False))
    unopened = Counter(page.page_id for page in rows if page.page_number is None)  # no page of theirs has a text
    planned += unopened
    found = {
        "the plan": planned,
        "the rows": Counter(page.page_id for page in rows),
        "the dataset": Counter(_dataset(workspace.store)),
        "the documents": Counter(_in_documents(workspace)) + unopened,
    }
    for where, ids in found.items():
        if len(ids) != pages or ids.total() != pages or ids != planned:
            yield f"{where}: {ids.total()} pages, {len(ids)} different ones, of {pages}"


def _in_documents(workspace: Workspace) -> Iterator[str]:
    """The page ids of the marks in the texts; a long document's ranges are parts of one text."""
    for document in {document.path: document for document in Run(workspace).documents()}.values():
        for number in _MARK.findall(document.markdown):
            yield page_id(document.document_id, int(number))


def _dataset(store: ObjectStore) -> Iterator[str]:
    for info in store.list("dataset/"):
        table = pyarrow.parquet.read_table(io.BytesIO(store.get(info.key)), columns=["sample_id"])
        yield from table.column("sample_id").to_pylist()


def unnamed_data(store: ObjectStore) -> list[str]:
    """Data of units that no marker names: of attempts that died before theirs, or were not the first."""
    with Workspace.on(store) as workspace:
        wanted = set(_wanted(workspace))
    return [info.key for stage in STAGES for info in store.list(f"{stage}/") if info.key not in wanted]


def _wanted(workspace: Workspace) -> Iterator[str]:
    """The keys of all that a marker names or a reader looks for."""
    yield from (part.object for generation in generations(workspace) for part in generation.parts)
    for stage in STAGES:
        for one in stage_keys(workspace, stage):
            yield from (marker.object for marker in markers(workspace, stage, one.key).values())
    yield from (info.key for info in workspace.store.list() if _counts(info.key))


def _counts(key: str) -> bool:
    """Whether it is of a kind that stays: settings, markers, notes on views, views, the workers' numbers."""
    if key in ("run.json", f"{EXTRACT}/key.json") or key.startswith(("dataset/", "documents/", "metrics/", "logs/")):
        return True
    return key.endswith((".done", "/settings.json")) or key.startswith(f"{ASSEMBLE}/views/")
