"""Plans in which some documents are not counted: what is expected of them is an estimate until they are read."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass

import pytest

from llm_ocr.documents.manifests import parse_pages
from llm_ocr.errors import PageFailure, UsageError
from llm_ocr.stages.extract import counted_units, failed_page
from llm_ocr.types import RESERVED, Counts, DocumentPart, PageRecord, PageSelection, Reason, Status, Unit
from llm_ocr.workspace import codec
from llm_ocr.workspace.generations import generations, read_units, totals_of
from llm_ocr.workspace.items import items
from llm_ocr.workspace.keys import EXTRACT
from llm_ocr.workspace.planned import place_of, wanted_of, wanted_pages
from llm_ocr.workspace.publish import done_units, publish
from llm_ocr.workspace.status import run_status
from llm_ocr.workspace.summaries import pages_summary


@dataclass(frozen=True, slots=True)
class Reading:
    """Reads documents by name, that have so many pages or cannot be opened; pages in `fails` are failed."""

    totals: Mapping[str, int | Reason]
    fails: frozenset[str] = frozenset()

    async def count(self, part: DocumentPart) -> int:
        total = self.totals[part.relative]
        if isinstance(total, Reason):
            raise PageFailure(total, "cannot be opened")
        return total

    def units(self, units: list[Unit]) -> list[Unit]:
        async def given():
            for unit in units:
                yield unit

        async def all_of_them():
            async with aclosing(counted_units(given(), self.count)) as counted:
                return [unit async for unit in counted]

        return asyncio.run(all_of_them())

    def rows(self, unit: Unit) -> list[PageRecord]:
        failure = PageFailure(Reason.RENDER_TIMEOUT, "")
        made = []
        for part in unit.parts:
            for place in range(part.expected):
                row = failed_page(part, place, failure, engine="none")
                made.append(row if self._fails(row) else _read(row))
        return made

    def _fails(self, row: PageRecord) -> bool:
        return row.page_number is None or row.page_id in self.fails


def _read(row: PageRecord) -> PageRecord:
    return PageRecord(row.page_id, row.document_id, row.source, row.page_number, row.dataset_index, Status.OK)


@pytest.fixture
def read(made, workspace):
    """Extracts the units that are not done, at most so many; the rows."""

    def run(reading: Reading, most: int | None = None) -> list[PageRecord]:
        key = made.key(workspace)
        done = done_units(workspace, EXTRACT, key)
        rows = []
        for unit in reading.units([unit for unit in read_units(workspace) if unit.id not in done][:most]):
            found = reading.rows(unit)
            failed = [
                (row.page_id, row.document_id, row.page_number, str(row.reason))
                for row in found
                if row.status is Status.FAILED
            ]
            publish(workspace, EXTRACT, key, unit.id, json.dumps(failed).encode(), pages_summary(unit, found))
            rows += found
        return rows

    return run


def uncounted(made, name, estimate, **other):
    return made.document(name, 0, estimate=estimate, **other)


def test_estimate_fills_units_and_holds_until_document_is_read(made, workspace, read):
    documents = [uncounted(made, "a", 3), uncounted(made, "b", 3), made.document("c", 1), uncounted(made, "d", 9)]
    made.plan(workspace, documents, pages_per_unit=4)
    units = list(read_units(workspace))
    assert [[part.relative for part in unit.parts] for unit in units] == [["a"], ["b", "c"], ["d"]]
    totals = totals_of(generations(workspace))
    assert (totals.documents, totals.units, totals.items, totals.expected, totals.estimated) == (4, 3, 3, 16, 3)
    status = run_status(workspace)
    assert status.estimated and status.pages == Counts(16)
    assert status.to_json()["pages"] == {"expected": 16, "ok": 0, "degraded": 0, "failed": 0, "estimated": True}

    reading = Reading({"a": 5, "b": 1, "d": 2})
    read(reading, 1)
    status = run_status(workspace)
    assert status.estimated and status.pages == Counts(18, 5)
    read(reading)
    status = run_status(workspace)
    assert not status.estimated and status.pages == Counts(9, 9)
    assert status.stages["extract"].finished
    assert "estimated" not in status.to_json()["pages"]


def test_pages_have_unique_indices_in_plan_order(made, workspace, read):
    made.plan(workspace, [made.document("first", 2), uncounted(made, "a", 1), uncounted(made, "b", 1)])
    made.plan(workspace, [made.document("last", 2)])
    rows = read(Reading({"a": 70, "b": 3}))
    indices = [row.dataset_index for row in rows]
    assert indices == sorted(set(indices)) and len(indices) == 77
    assert indices[:3] == [0, 1, 2] and indices[72] == 2 + RESERVED


def test_pages_beyond_the_reservation_have_unique_indices(made, workspace):
    made.plan(workspace, [uncounted(made, "a", 1), uncounted(made, "b", 1), made.document("c", 1)])
    (unit,) = read_units(workspace)
    places = (0, 1, RESERVED - 1, RESERVED, RESERVED + 1, 3 * RESERVED)
    indices = [part.index_of(place) for part in unit.parts[:2] for place in places] + [unit.parts[2].index_of(0)]
    assert len(set(indices)) == len(indices)
    assert all(0 <= index < 1 << 63 for index in indices)


def test_unopenable_document_is_one_failed_row_as_in_exact_plan(made, workspace, read):
    made.plan(workspace, [uncounted(made, "a", 3), uncounted(made, "locked", 5), uncounted(made, "empty", 1)])
    rows = read(Reading({"a": 2, "locked": Reason.ENCRYPTED, "empty": 0}))
    assert [(row.source, row.page_number) for row in rows[2:]] == [("/data/locked", None), ("/data/empty", None)]
    assert rows[2].page_id.endswith("-p00000")
    status = run_status(workspace)
    assert status.pages == Counts(4, 2, 0, 2) and not status.estimated


def test_selected_pages_are_kept_until_the_document_is_counted(made, workspace, read):
    wanted = wanted_of(parse_pages("2-4,6-"), None, 4)
    made.plan(workspace, [uncounted(made, "a", 4, wanted=wanted), uncounted(made, "short", 4, wanted=wanted)])
    rows = read(Reading({"a": 9, "short": 1}))
    assert [row.page_number for row in rows] == [2, 3, 4, 6, None]
    assert [row.dataset_index for row in rows] == [0, 1, 2, 3, RESERVED]


@pytest.mark.parametrize(
    ("wanted", "total", "pages"),
    [
        (wanted_of(), 3, (1, 2, 3)),
        (wanted_of(parse_pages("1-")), 2, (1, 2)),
        (wanted_of(parse_pages("2-3,1")), 9, (1, 2, 3)),
        (wanted_of(parse_pages("8-,3")), 9, (3, 8, 9)),
        (wanted_of(None, (7, 2, 2)), 3, (2, 7)),  # a manifest fixes its pages: one beyond the end fails
        (wanted_of(parse_pages("2-"), (1, 2, 7)), 3, (2,)),
        (wanted_of(parse_pages("2-"), (1, 2, 7), 1), 9, (2,)),
        (wanted_of(None, None, 2), 9, (1, 2)),
        (wanted_of(parse_pages("5")), 3, ()),
    ],
)
def test_selection_gives_its_pages_when_document_is_counted(wanted, total, pages):
    assert wanted_pages(wanted, total) == pages
    assert [place_of(wanted, page) for page in pages] == list(range(len(pages)))


def test_equal_selections_have_equal_forms():
    assert wanted_of(parse_pages("1-")) == PageSelection()
    assert wanted_of(parse_pages("5-9, 1-5")) == wanted_of(parse_pages("-9"))
    assert wanted_of(None, (3, 1, 2)) == wanted_of(None, (1, 2, 3))


def test_failed_pages_are_tried_again_and_counted_once(made, workspace, read):
    documents = [
        uncounted(made, "a", 2, wanted=wanted_of(parse_pages("3-"))),
        made.document("b", 2),
        uncounted(made, "locked", 2, wanted=wanted_of(None, None, 2)),
    ]
    made.plan(workspace, documents, pages_per_unit=10)
    fifth = f"{documents[0].id}-p00005"
    rows = read(Reading({"a": 6, "locked": Reason.ENCRYPTED}, frozenset([fifth])))
    assert run_status(workspace).pages == Counts(7, 5, 0, 2)

    wanted = documents[2].wanted
    assert wanted == PageSelection(most=2)
    opened = {"locked": made.document("locked", wanted_pages(wanted, 4), page_total=4)}
    assert made.retry(workspace, opened, pages_per_unit=10).expected == 3
    assert run_status(workspace).pages == Counts(8, 5, 0, 2)
    (item,) = items(workspace)
    assert len(item.newer) == 1
    retried = read(Reading({}))
    assert [row.page_number for row in retried] == [5, 1, 2]
    assert retried[0].dataset_index == next(row.dataset_index for row in rows if row.page_id == fifth)
    assert not {row.dataset_index for row in retried[1:]} & {row.dataset_index for row in rows}
    status = run_status(workspace)
    assert status.pages == Counts(8, 8) and not status.reasons and not status.estimated


def test_copies_are_read_once(made, workspace, read):
    original = uncounted(made, "a", 3)
    selection = uncounted(made, "d", 3, version=original.version, wanted=wanted_of(None, None, 1))
    result = made.plan(workspace, [original, uncounted(made, "b/a", 3, version=original.version), selection])
    assert result.copies == 1
    first, second = (part for unit in read_units(workspace) for part in unit.parts)
    assert (first.aliases, second.relative) == (("b/a",), "d")
    assert len(read(Reading({"a": 2, "d": 2}))) == 3


def test_known_document_stays_as_planned_despite_a_new_count(made, workspace):
    documents = [uncounted(made, "a", 3), made.document("b", 2), made.unopened("c")]
    made.plan(workspace, documents)
    now = [made.document("a", 7), uncounted(made, "c", 2)]
    result = made.plan(workspace, [*documents, *now])
    assert (result.generation, result.differing) == (None, 0)
    other = uncounted(made, "a", 2, wanted=wanted_of(parse_pages("2-")))
    assert made.plan(workspace, [other]).differing == 1


def test_unplanned_pages_of_uncounted_document_are_wrong_usage(made, workspace):
    made.plan(workspace, [uncounted(made, "a", 3, wanted=wanted_of(parse_pages("1-2")))])
    with pytest.raises(UsageError, match="without 3"):
        made.plan(workspace, [uncounted(made, "a", 3)])


def test_one_id_for_two_documents_is_always_wrong_usage(made, workspace):
    with pytest.raises(UsageError, match="two documents have the id x"):
        made.plan(workspace, [uncounted(made, "a", 1, document_id="x"), uncounted(made, "b", 1, document_id="x")])
    other = wanted_of(None, (2,))
    with pytest.raises(UsageError, match="given twice with different pages"):
        made.plan(workspace, [uncounted(made, "a", 1), uncounted(made, "a", 1, wanted=other)])
    assert generations(workspace) == []


def test_a_plan_without_estimates_is_stored_as_before(made, workspace):
    made.plan(workspace, [made.document("a", 2, wanted=wanted_of(parse_pages("1-2"))), made.unopened("b")])
    (unit,) = read_units(workspace)
    for part in codec.unit_to_json(unit)["parts"]:
        assert not {"estimate", "wanted"} & set(part)
    assert "estimated" not in json.loads((made.root / "plan" / "0001.done").read_text())
    made.extract(workspace, unit)
    (marker,) = (json.loads(path.read_text()) for path in (made.root / EXTRACT).rglob("*.done"))
    assert marker["extra"] == {}


def test_plan_stores_estimates_as_given(made, workspace):
    wanted = wanted_of(parse_pages("2-"), (1, 2, 3), 5)
    made.plan(workspace, [uncounted(made, "a", 2, wanted=wanted)])
    (unit,) = read_units(workspace)
    (part,) = unit.parts
    assert (part.pages, part.page_total, part.estimate, part.wanted, part.counted) == ((), 0, 2, wanted, False)
    assert (unit.expected, unit.planned, unit.estimated) == (2, 2, 1)


def test_the_next_unit_is_counted_ahead_and_may_be_given_up(made, workspace):
    made.plan(workspace, [uncounted(made, name, 4) for name in "abc"], pages_per_unit=4)

    async def run():
        asked, begun, ended = [], asyncio.Event(), asyncio.Event()

        async def count(part):
            asked.append(part.relative)
            if part.relative == "b":
                begun.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.set()
            return 1

        async def given():
            for unit in read_units(workspace):
                yield unit

        async with aclosing(counted_units(given(), count)) as units:
            await anext(units)
            await asyncio.wait_for(begun.wait(), 30)
            assert asked == ["a", "b"]
        assert ended.is_set()

    asyncio.run(run())
