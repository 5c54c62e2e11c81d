"""Status of large runs needs few requests: markers are copied, and the markers themselves alone decide."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_runs import Made

from llm_ocr.errors import StorageError
from llm_ocr.scheduling.scanner import PlannedItems, PlannedUnits
from llm_ocr.stages.clean import clean
from llm_ocr.stages.sharing import copy_markers
from llm_ocr.storage import ObjectInfo
from llm_ocr.types import Counts
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import read_units
from llm_ocr.workspace.items import ViewsNote, end_views, items, note_beside, note_key
from llm_ocr.workspace.keys import ASSEMBLE, DESCRIBE, EXTRACT, VIEW_NOTES, claim_key
from llm_ocr.workspace.publish import CompactedMarkers, done_units, find_marker, marker_key, markers, publish
from llm_ocr.workspace.status import Worked, known_status, run_status
from llm_ocr.workspace.summaries import Summary
from tests.fakes.memory_store import PAGE, MemoryStore

UNITS = 250


class Lazy(MemoryStore):
    """Counts the pages of a listing that are read, as a store's client requests them."""

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        before = self.calls["list"]
        found = list(super().list(prefix, start_after=start_after))
        self.calls["list"] = before
        for place, info in enumerate(found):
            self.calls["list"] += place % PAGE == 0
            yield info
        self.calls["list"] += not found


@pytest.fixture(scope="module")
def once() -> tuple[Lazy, dict[str, str]]:
    """Return the store of a finished workspace of 250 units whose markers are copied, and the keys of its stages."""
    made = Made(Path())  # writes to the store only
    workspace = Workspace.on(Lazy(), create=True)
    made.plan(workspace, (made.document(f"{number:04d}.pdf") for number in range(UNITS)), pages_per_unit=1)
    keys = {EXTRACT: made.key(workspace)}
    keys[DESCRIBE] = claim_key(workspace, DESCRIBE, {"extract": keys[EXTRACT]})
    keys[ASSEMBLE] = claim_key(workspace, ASSEMBLE, keys | {})
    for unit in read_units(workspace):
        made.extract(workspace, unit)
        publish(workspace, DESCRIBE, keys[DESCRIBE], unit.id, b"x", Summary(figures=Counts(2, 2)))
    for item in items(workspace):
        end_views(workspace, item, ViewsNote(keys[ASSEMBLE], "a" * 64, 12))
        publish(workspace, ASSEMBLE, keys[ASSEMBLE], item.name, b"x", Summary(counts=Counts(1, 1)))
    for stage in (EXTRACT, DESCRIBE):
        copy_markers(workspace, stage, keys[stage], PlannedUnits(workspace))
    planned = PlannedItems(workspace)
    assert len(list(planned.read())) == UNITS
    copy_markers(workspace, ASSEMBLE, keys[ASSEMBLE], planned, note_beside)
    assert isinstance(workspace.store, Lazy)
    return workspace.store, keys


@pytest.fixture
def finished(once) -> tuple[Workspace, dict[str, str]]:
    """Return a copy of that workspace, which the test may change."""
    store, keys = once
    return Workspace.on(store.copy()), dict(keys)


def copies(workspace: Workspace) -> list[str]:
    return [info.key for info in workspace.store.list("") if "/markers/" in info.key]


def test_status_needs_few_requests_and_is_the_same(finished):
    workspace, _ = finished
    workspace.store.calls.clear()
    status = run_status(workspace)
    assert workspace.store.calls.total() < 30
    for name in copies(workspace):
        workspace.store.delete(name)
    assert run_status(workspace) == status
    assert (status.pages, status.figures) == (Counts(UNITS, UNITS), Counts(2 * UNITS, 2 * UNITS))
    assert {stage.done for stage in status.stages.values()} == {UNITS}


def notes(workspace: Workspace) -> dict[str, str]:
    return {info.key: info.version for info in workspace.store.list(VIEW_NOTES)}


def test_notes_on_views_need_one_request_for_many(finished):
    workspace, keys = finished
    versions = notes(workspace)
    workspace.store.calls.clear()
    found = CompactedMarkers(workspace.store, ASSEMBLE, keys[ASSEMBLE]).among(versions)
    assert workspace.store.calls.total() == 2
    assert found == {key: workspace.get_json(key) for key in versions}
    assert len(found) == UNITS


def test_a_rewritten_note_and_a_removed_one_have_no_copy(finished):
    workspace, keys = finished
    changed, gone = list(items(workspace))[:2]
    end_views(workspace, changed, ViewsNote("other", "b" * 64, 13))
    workspace.store.delete(note_key(gone.id))
    found = CompactedMarkers(workspace.store, ASSEMBLE, keys[ASSEMBLE]).among(notes(workspace))
    assert len(found) == UNITS - 2
    assert {note_key(changed.id), note_key(gone.id)}.isdisjoint(found)


def test_one_of_many_workers_reads_totals_only_if_copied(finished, monkeypatch):
    workspace, _ = finished
    monkeypatch.setattr("llm_ocr.workspace.status._FEW", 10)
    whole = run_status(workspace)
    assert known_status(workspace, Worked(shared=True)) == whole
    for name in copies(workspace):
        if name.startswith(DESCRIBE):
            workspace.store.delete(name)
    workspace.store.calls.clear()
    assert known_status(workspace, Worked(shared=True)) is None
    assert workspace.store.calls.total() < 30
    assert known_status(workspace, Worked()) == whole


def test_copying_again_costs_two_requests_for_a_stage(finished):
    workspace, keys = finished
    before, units = copies(workspace), PlannedUnits(workspace)
    workspace.store.calls.clear()
    copy_markers(workspace, EXTRACT, keys[EXTRACT], units)
    assert workspace.store.calls.total() <= 2
    assert copies(workspace) == before


def test_a_removed_marker_is_gone_and_a_new_one_counts(finished):
    workspace, keys = finished
    unit, other = list(read_units(workspace))[:2]
    old = find_marker(workspace, EXTRACT, keys[EXTRACT], unit.id)
    workspace.store.delete(marker_key(EXTRACT, keys[EXTRACT], unit.id))
    assert unit.id not in markers(workspace, EXTRACT, keys[EXTRACT])
    assert unit.id not in done_units(workspace, EXTRACT, keys[EXTRACT])
    new = publish(workspace, EXTRACT, keys[EXTRACT], unit.id, b"other", Summary(counts=Counts(1, 0, 1)))
    found = markers(Workspace.on(workspace.store), EXTRACT, keys[EXTRACT])
    assert found[unit.id] == new != old
    assert found[other.id] == find_marker(workspace, EXTRACT, keys[EXTRACT], other.id)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"format": 2, "markers": {}}', b'{"format": 1, "markers": 3}'])
def test_copies_of_other_forms_are_not_read(finished, content):
    workspace, _ = finished
    status = run_status(workspace)
    for name in copies(workspace):
        workspace.store.put(name, content)
    assert run_status(workspace) == status


@pytest.mark.parametrize(
    ("version", "other"),
    [("other", {"attempt": "other"}), (None, {"unit": "other"}), (None, {"counts": {}}), (None, {"object": 3})],
    ids=["of another marker", "of another unit", "damaged", "of another form"],
)
def test_other_and_damaged_copies_are_replaced_by_the_markers(finished, version, other):
    workspace, keys = finished
    before = markers(workspace, EXTRACT, keys[EXTRACT])
    (name,) = (name for name in copies(workspace) if name.startswith(EXTRACT) and name.endswith(".json"))
    value = json.loads(workspace.store.get(name))
    for copied in value["markers"].values():
        copied[0] = version or copied[0]
        copied[1] |= other
    workspace.store.put(name, json.dumps(value).encode())
    assert markers(workspace, EXTRACT, keys[EXTRACT]) == before


def test_a_full_store_keeps_the_run_without_copies(finished, monkeypatch):
    workspace, keys = finished
    for name in copies(workspace):
        workspace.store.delete(name)
    create = workspace.store.create

    def full(name, data):
        if name.endswith(".json"):
            raise StorageError("no space left")
        return create(name, data)

    monkeypatch.setattr(workspace.store, "create", full)
    copy_markers(workspace, EXTRACT, keys[EXTRACT], PlannedUnits(workspace))
    assert not [name for name in copies(workspace) if name.endswith(".json")]
    assert len(markers(workspace, EXTRACT, keys[EXTRACT])) == UNITS


def test_unfinished_and_small_runs_have_no_copies(made, finished):
    workspace, keys = finished
    for name in copies(workspace):
        workspace.store.delete(name)
    unit = next(iter(read_units(workspace)))
    workspace.store.delete(marker_key(EXTRACT, keys[EXTRACT], unit.id))
    copy_markers(workspace, EXTRACT, keys[EXTRACT], PlannedUnits(workspace))
    small = Workspace.on(MemoryStore(), create=True)
    made.plan(small, [made.document("a.pdf", 3)], pages_per_unit=1)
    key = made.key(small)
    for unit in read_units(small):
        made.extract(small, unit)
    copy_markers(small, EXTRACT, key, PlannedUnits(small))
    assert copies(workspace) == copies(small) == []


def test_a_second_worker_does_not_copy_what_another_copies(finished):
    workspace, keys = finished
    for name in copies(workspace):
        if name.endswith(".json"):
            workspace.store.delete(name)
    workspace.store.calls.clear()
    copy_markers(workspace, EXTRACT, keys[EXTRACT], PlannedUnits(workspace))
    assert workspace.store.calls["fetch"] == 0
    assert [name for name in copies(workspace) if name.endswith(".json")] == []


def test_clean_removes_claims_and_older_copies(finished):
    workspace, keys = finished
    older = f"{EXTRACT}/{keys[EXTRACT]}/markers/all-0000100.json"
    workspace.store.put(older, b"{}")
    before = copies(workspace)
    cleaned = clean(workspace, now=float("inf"), older_than=1.0)
    kept = [name for name in before if name.endswith(".json") and name != older]
    assert copies(workspace) == kept
    assert len(kept) == 3
    assert {info.key for info in cleaned.objects} == set(before) - set(kept)
