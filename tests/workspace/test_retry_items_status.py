"""retry-failed, Assemble's items and status: every page is counted once, over all generations."""

import asyncio
from functools import partial
from unittest.mock import Mock

import pytest

from llm_ocr.storage.local import LocalStore
from llm_ocr.types import Counts, PageRecord, Reason, Status, page_id
from llm_ocr.workspace.generations import Kind, generations, read_units, totals_of
from llm_ocr.workspace.items import items
from llm_ocr.workspace.keys import ASSEMBLE, DESCRIBE, EXTRACT, claim_key
from llm_ocr.workspace.publish import NotConserved, done_units, find_marker, marker_key, publish
from llm_ocr.workspace.published import choose
from llm_ocr.workspace.status import run_status
from llm_ocr.workspace.summaries import Extra, Summary


@pytest.fixture
def retry(made, workspace):
    return partial(made.retry, workspace)


def extract_all(made, workspace, fails=()):
    key = made.key(workspace)
    for unit in read_units(workspace):
        if unit.id not in done_units(workspace, EXTRACT, key):
            made.extract(workspace, unit, fails)


def retry_units(workspace):
    return list(read_units(workspace, kinds=[Kind.RETRY]))


def pages(document, *numbers):
    return [page_id(document.id, number) for number in numbers]


def test_failed_pages_are_retried_under_their_own_index(made, workspace, retry):
    first, second = made.document("a", 3), made.document("b", (1, 3, 5, 7, 9, 11))
    made.plan(workspace, [first, second])
    extract_all(made, workspace, [*pages(first, 2), *pages(second, 3, 5, 11)])
    generation = retry()
    assert (generation.kind, generation.expected, generation.replaces) == (Kind.RETRY, 4, 4)
    (unit,) = retry_units(workspace)
    assert (unit.id, unit.replaces) == ("0002-000000", 4)
    assert [(part.relative, part.pages, part.first_index) for part in unit.parts] == [
        ("a", (2,), 1),
        ("b", (3, 5), 4),
        ("b", (11,), 8),
    ]
    assert totals_of(generations(workspace)).expected == 9


def test_many_failed_pages_of_a_document_are_ranges_of_it_alone(made, workspace, retry):
    long = made.document("long", 20)
    made.plan(workspace, [long, made.document("b", 1)])
    extract_all(made, workspace, pages(long, *range(1, 20, 2)))
    retry()
    units = retry_units(workspace)
    assert [unit.replaces for unit in units] == [3, 3, 4]
    assert [number for unit in units for part in unit.parts for number in part.pages] == list(range(1, 20, 2))


def test_only_currently_failed_pages_are_retried(made, workspace, retry):
    document = made.document("a", 4)
    made.plan(workspace, [document])
    extract_all(made, workspace, pages(document, 1, 2, 3))
    retry()
    assert retry() is None  # all of them wait in the retry that is not done
    extract_all(made, workspace, pages(document, 2))
    retry()
    assert [part.pages for unit in retry_units(workspace)[1:] for part in unit.parts] == [(2,)]
    extract_all(made, workspace)
    assert retry() is None
    assert run_status(workspace).pages == Counts(4, 4, 0, 0)


def test_document_that_opens_now_replaces_its_row_by_its_pages(made, workspace, retry):
    made.plan(workspace, [made.document("a", 1), made.unopened("locked"), made.document("b", 1)])
    extract_all(made, workspace)
    assert retry() is None  # still locked: nothing to do
    assert run_status(workspace).pages == Counts(3, 2, 0, 1)
    generation = retry({"locked": made.document("locked", 9, version="other")})
    assert (generation.expected, generation.replaces, generation.next_index) == (9, 1, 12)
    units = retry_units(workspace)
    assert [unit.replaces for unit in units] == [1, 0, 0]
    (identity,) = {part.document_id for unit in units for part in unit.parts}
    assert identity == made.unopened("locked").id
    assert [part.first_index for unit in units for part in unit.parts] == [3, 6, 9]
    assert run_status(workspace).pages == Counts(11, 2, 0, 1)  # 8 more are to be done, 1 is failed until its unit is
    assert retry() is None
    extract_all(made, workspace, [page_id(identity, 9)])
    status = run_status(workspace)
    assert (status.pages, status.reasons) == (Counts(11, 10, 0, 1), {"render timeout": 1})
    retry()
    extract_all(made, workspace)
    assert run_status(workspace).pages == Counts(11, 11, 0, 0)


def test_two_retries_at_once_try_every_page_once(made, workspace, retry):
    document = made.document("a", 30)
    made.plan(workspace, [document])
    extract_all(made, workspace, pages(document, *range(1, 31)))

    async def both():
        return await asyncio.gather(*(made.plan_retry(made.workspace()) for _ in range(4)))

    with made.rows_in_json():  # of the four that overlap, none ends it
        results = asyncio.run(both())
    assert sum(result is not None for result in results) == 1
    assert totals_of(generations(workspace)).expected == 30
    assert sum(unit.expected for unit in retry_units(workspace)) == 30


def test_retries_and_new_sources_go_together(made, workspace, retry):
    first = made.document("a", 3)
    made.plan(workspace, [first])
    extract_all(made, workspace, pages(first, 1))
    retry()
    result = made.plan(workspace, [first, made.document("b", 2)])
    assert (result.known, result.generation.number) == (1, 3)
    assert [part.first_index for unit in read_units(workspace) for part in unit.parts] == [0, 0, 3]
    extract_all(made, workspace)
    assert run_status(workspace).pages == Counts(5, 5, 0, 0)


def test_items_are_whole_documents_with_newer_generations(made, workspace, retry):
    documents = [made.document("a", 2), made.document("b", 2), made.document("long", 9), made.document("c", 1)]
    made.plan(workspace, documents)
    extract_all(made, workspace, [*pages(documents[1], 2), *pages(documents[2], 4, 9)])
    before = list(items(workspace))
    assert [(item.id, len(item.units), item.name) for item in before] == [
        ("0001-000000", 1, "0001-000000.0001"),
        ("0001-000001", 3, "0001-000001.0001"),
        ("0001-000004", 1, "0001-000004.0001"),
    ]
    assert totals_of(generations(workspace)).items == 3
    retry()
    made.plan(workspace, [made.document("new", 1)])
    after = list(items(workspace))
    assert [item.name for item in after] == [
        "0001-000000.0002",
        "0001-000001.0002",
        "0001-000004.0001",
        "0003-000000.0003",
    ]
    assert after[1].unit_ids == ("0001-000001", "0001-000002", "0001-000003", "0002-000000")
    assert after[0].unit_ids == ("0001-000000", "0002-000000")
    assert after[1].documents == {documents[2].id}
    assert [len(part.pages) for part in after[1].parts] == [3, 3, 3]
    touched = {item.id for item in after if item.newer}
    assert set(generations(workspace)[1].touched) == touched
    every = [document for item in after for document in item.documents]
    assert len(every) == len(set(every)) == 5


def test_status_of_a_workspace_without_a_plan_is_all_zero(workspace):
    status = run_status(workspace)
    assert (status.pages, status.documents, status.generations, status.finished) == (Counts(), 0, 0, False)


def test_status_counts_what_is_done_so_far(made, workspace):
    document = made.document("a", 8)
    made.plan(workspace, [document, made.unopened("locked")])
    units = list(read_units(workspace))
    made.extract(workspace, units[0], pages(document, 2), degraded=1)
    status = run_status(workspace)
    assert status.pages == Counts(9, 2, 1, 1)
    assert status.stages["extract"].done == 1 and status.stages["extract"].total == 3
    assert not status.stages["extract"].finished
    assert (status.tokens_in, status.tokens_out, status.seconds) == (10, 5, 1.5)
    assert status.reasons == {"render timeout": 1}
    assert [example.page for example in status.examples] == [2]
    assert status.figures.expected == 2


def test_examples_and_reasons_are_of_currently_failed_pages(made, workspace, retry):
    document = made.document("a", 8)
    made.plan(workspace, [document, made.unopened("locked")])
    extract_all(made, workspace, pages(document, *range(1, 9)))
    assert run_status(workspace).reasons == {"render timeout": 8, "encrypted": 1}
    retry()
    first, second = retry_units(workspace)
    made.extract(workspace, first, pages(document, 3))
    status = run_status(workspace)
    assert status.reasons == {"render timeout": 5, "encrypted": 1}
    assert status.pages == Counts(9, 3, 0, 6)
    assert [example.page for example in status.examples] == [3, 5, 6, 7, None]
    made.extract(workspace, second)
    assert [example.page for example in run_status(workspace).examples] == [3, None]


def test_a_finished_stage_that_lost_a_page_is_an_error(made, workspace):
    made.plan(workspace, [made.document("a", 2)])
    (unit,) = read_units(workspace)
    publish(workspace, EXTRACT, made.key(workspace), unit.id, b"", Summary(Counts(1, 1, 0, 0)))
    with pytest.raises(NotConserved, match="expected 2 pages"):
        run_status(workspace)


def test_status_follows_figures_and_items_to_the_end(made, workspace, retry):
    document = made.document("a", 2)
    made.plan(workspace, [document, made.document("long", 9)])
    extract_all(made, workspace, pages(document, 1))
    describe = claim_key(workspace, DESCRIBE, {"mode": "describe"})
    for unit in read_units(workspace):
        publish(workspace, DESCRIBE, describe, unit.id, b"", Summary(figures=Counts(2, 1, 0, 1), reasons={"x": 1}))
    status = run_status(workspace)
    assert (status.figures, status.figure_reasons) == (Counts(8, 4, 0, 4), {"x": 4})
    assemble = claim_key(workspace, ASSEMBLE, {"extract": "e", "describe": describe})
    for item in items(workspace):
        publish(workspace, ASSEMBLE, assemble, item.name, b"", Summary())
    assert run_status(workspace).finished
    retry()
    status = run_status(workspace)
    assert not status.finished
    assert (status.stages["describe"].done, status.stages["describe"].total) == (4, 5)
    assert (status.stages["assemble"].done, status.stages["assemble"].total) == (1, 2)
    (unit,) = retry_units(workspace)
    made.extract(workspace, unit)
    publish(workspace, DESCRIBE, describe, unit.id, b"", Summary(figures=Counts(2, 2, 0, 0)))
    for item in items(workspace):
        if find_marker(workspace, ASSEMBLE, assemble, item.name) is None:
            publish(workspace, ASSEMBLE, assemble, item.name, b"", Summary())
    assert run_status(workspace).finished


class StaleStore(LocalStore):
    """Lists only what was there when it was opened, as stores do for a while after a write."""

    def __init__(self, root):
        super().__init__(root)
        self._listed = {info.key for info in super().list()}

    def list(self, prefix="", *, start_after=""):
        return (info for info in super().list(prefix, start_after=start_after) if info.key in self._listed)


def test_units_a_command_published_count_before_they_are_listed(made, workspace):
    made.plan(workspace, [made.document(name, 4) for name in "abc"])
    first, *units = read_units(workspace)
    made.extract(workspace, first)
    stale = made.workspace(StaleStore(made.root))
    extract = made.key(workspace)
    for unit in units:
        made.extract(stale, unit)
    describe = claim_key(stale, DESCRIBE, {"extract": extract})
    for unit in (first, *units):
        publish(stale, DESCRIBE, describe, unit.id, b"x", Summary(figures=Counts(2, 1, 1)))
    status = run_status(stale)
    assert (status.pages, status.figures) == (Counts(12, 12), Counts(6, 3, 3))
    assert status.stages[EXTRACT].finished and status.stages[DESCRIBE].finished
    assert run_status(made.workspace(stale.store)).pages == Counts(12, 4)  # another command knows the listing only

    (made.root / marker_key(EXTRACT, extract, units[0].id)).unlink()  # what is gone does not count
    assert done_units(stale, EXTRACT, extract) == {first.id, units[1].id}
    assert run_status(stale).pages == Counts(12, 8)


def test_a_lost_figure_is_an_error(made, workspace):
    made.plan(workspace, [made.document("a", 2)])
    extract_all(made, workspace)
    describe = claim_key(workspace, DESCRIBE, {"mode": "describe"})
    for unit in read_units(workspace):
        publish(workspace, DESCRIBE, describe, unit.id, b"", Summary(figures=Counts(1, 1, 0, 0)))
    with pytest.raises(NotConserved, match="expected 2 figures"):
        run_status(workspace)


def row(page, number, status):
    return PageRecord(page, page.partition("-")[0], "source", number, 0, status, reason=Reason.UNREADABLE)


def test_the_last_good_row_counts_else_the_last_failed_one():
    rows = [
        row("d-p1", 1, Status.FAILED),
        row("d-p2", 2, Status.OK),
        row("e-p0", None, Status.FAILED),
        row("f-p0", None, Status.FAILED),
        row("d-p1", 1, Status.DEGRADED),
        row("d-p2", 2, Status.FAILED),
        row("e-p1", 1, Status.FAILED),
        row("d-p1", 1, Status.FAILED),
        row("e-p1", 1, Status.FAILED),
    ]
    units = {str(number): row for number, row in enumerate(rows)}
    summary = Mock(extra=Extra())
    markers = {unit: Mock(unit=unit, summary=summary) for unit in units}
    chosen = choose(units, {"d", "e", "f"}, lambda unit, _: [units[unit]], markers.get)
    assert chosen == {"d-p1": "4", "d-p2": "1", "f-p0": "3", "e-p1": "8"}
