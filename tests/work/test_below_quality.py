"""retry-failed --below-quality: pages are read again, one row of each counts, and status counts just those."""

import asyncio
import io
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_ocr.results.page_status import failed_pages, scored_pages
from llm_ocr.results.schema import iter_pages, pages_to_parquet
from llm_ocr.types import Counts, PageRecord, Reason, Status, page_id
from llm_ocr.work.effective import effective_rows
from llm_ocr.work.generations import Kind, generations, plan_totals, read_units
from llm_ocr.work.items import items
from llm_ocr.work.keys import EXTRACT
from llm_ocr.work.publish import done_units, find_marker, publish, read_data
from llm_ocr.work.quality import BINS, WORST, bin_of
from llm_ocr.work.retry import Below, plan_retry
from llm_ocr.work.status import run_status
from llm_ocr.work.summary import pages_summary

FAILED = (Status.FAILED, None)
#: How a page may end: its status and its quality.
ENDS = st.sampled_from(
    [FAILED, (Status.OK, 0.1), (Status.OK, 0.3), (Status.OK, 0.97), (Status.DEGRADED, 0.2), (Status.OK, None)]
)
REASONS = {Status.OK: None, Status.DEGRADED: Reason.LOOP, Status.FAILED: Reason.RENDER_TIMEOUT}


class Runs:
    """Extract and retry over a workspace, with pages that end as they are told."""

    def __init__(self, made, workspace) -> None:
        self.made = made
        self.workspace = workspace
        self.key = made.key(workspace)

    def extract(self, end, most: int = 1000) -> None:
        """Publish units that are not done; `end` gives status and quality of each page id."""
        done = done_units(self.workspace, EXTRACT, self.key)
        for unit in itertools.islice((one for one in read_units(self.workspace) if one.id not in done), most):
            rows = [
                self.row(part, number, part.first_index + place, *end(page_id(part.document_id, number)))
                for part in unit.parts
                for place, number in enumerate(part.pages or (None,))
            ]
            publish(self.workspace, EXTRACT, self.key, unit.id, pages_to_parquet(rows), pages_summary(unit, rows))

    def row(self, part, number, index, status, quality) -> PageRecord:
        parts = {} if quality is None else {"found": quality}
        return PageRecord(
            page_id(part.document_id, number), part.document_id, part.source, number, index, status, REASONS[status],
            quality=quality, quality_parts=parts,
        )  # fmt: skip

    def retry(self, below: float | None = None):
        async def reopen(part):
            return self.made.unopened(part.relative)

        return asyncio.run(
            plan_retry(
                self.workspace,
                self.key,
                failed_rows=failed_pages,
                reopen=reopen,
                pages_per_unit=3,
                below=None if below is None else Below(below, scored_pages),
            )
        )

    def rows(self) -> list[PageRecord]:
        """The rows that count, from the data themselves."""
        found = []
        for unit in read_units(self.workspace):
            marker = find_marker(self.workspace, EXTRACT, self.key, unit.id)
            if marker is not None:
                found += iter_pages(io.BytesIO(read_data(self.workspace, marker)), images=False)
        return effective_rows(found)

    def check(self) -> None:
        """Status says what the rows say."""
        rows, status = self.rows(), run_status(self.workspace)
        ended = [row.status for row in rows]
        counted = (ended.count(Status.OK), ended.count(Status.DEGRADED), ended.count(Status.FAILED))
        assert (status.pages.ok, status.pages.degraded, status.pages.failed) == counted
        bins = [0] * BINS
        for row in rows:
            if row.quality is not None:
                bins[bin_of(row.quality)] += 1
        assert list(status.quality) == bins or (not status.quality and not any(bins))
        told = [row.reason.value for row in rows if row.reason]
        assert dict(status.reasons) == {reason: told.count(reason) for reason in set(told)}
        weak = sorted((row.quality, row.page_id) for row in rows if row.quality is not None and row.quality < 0.9)
        assert sorted((page.score, page.page_id) for page in status.worst) == weak[:WORST]
        failed = {row.page_id for row in rows if row.status is Status.FAILED}
        assert {example.page_id for example in status.examples} <= failed


@pytest.fixture
def runs(made, workspace) -> Runs:
    return Runs(made, workspace)


def ends(**given):
    """Ends of pages by number; all others are ok and good."""
    return lambda page: given.get(f"p{int(page[-5:])}", (Status.OK, 0.97))


def planned(workspace, generation: int):
    units = read_units(workspace, kinds=[Kind.RETRY])
    return [(part.pages, part.again) for unit in units if unit.generation == generation for part in unit.parts]


def test_pages_below_the_score_come_again_with_those_that_failed(made, workspace, runs):
    made.plan(workspace, [made.document("a", 6)])
    runs.extract(ends(p2=(Status.OK, 0.3), p3=FAILED, p5=(Status.DEGRADED, 0.49), p6=(Status.OK, 0.5)))
    generation = runs.retry(below=0.5)
    assert (generation.expected, generation.replaces) == (3, 3)
    assert planned(workspace, 2) == [((2,), True), ((3,), False), ((5,), True)]
    assert plan_totals(workspace).expected == 6
    runs.check()
    runs.extract(ends())
    assert run_status(workspace).pages == Counts(6, 6, 0, 0)
    runs.check()


def test_a_page_that_came_out_worse_comes_again_below_a_score_that_its_first_row_had_reached(made, workspace, runs):
    made.plan(workspace, [made.document("a", 2)])
    runs.extract(ends(p1=(Status.OK, 0.3)))
    runs.retry(below=0.5)
    runs.extract(ends(p1=(Status.OK, 0.1)))
    assert runs.retry(below=0.25).expected == 1
    runs.extract(ends())
    runs.check()


def test_the_new_row_counts_even_where_it_is_no_better(made, workspace, runs):
    made.plan(workspace, [made.document("a", 2)])
    runs.extract(ends(p1=(Status.OK, 0.3)))
    runs.retry(below=0.5)
    runs.extract(ends(p1=(Status.DEGRADED, 0.1)))
    assert run_status(workspace).pages == Counts(2, 1, 1, 0)
    assert [row.quality for row in runs.rows()] == [0.1, 0.97]
    runs.check()


def test_a_page_that_then_fails_keeps_its_old_row_and_is_not_failed(made, workspace, runs):
    made.plan(workspace, [made.document("a", 2)])
    runs.extract(ends(p1=(Status.OK, 0.3)))
    runs.retry(below=0.5)
    runs.extract(ends(p1=FAILED))
    status = run_status(workspace)
    assert (status.pages, status.reasons, status.examples) == (Counts(2, 2, 0, 0), {}, ())
    assert [page.score for page in status.worst] == [0.3]
    runs.check()
    assert runs.retry() is None
    assert runs.retry(below=0.5).expected == 1  # it may be tried once more
    runs.extract(ends())
    runs.check()


def test_pages_that_wait_in_a_retry_are_not_planned_twice(made, workspace, runs):
    made.plan(workspace, [made.document("a", 4)])
    runs.extract(ends(p1=(Status.OK, 0.3), p2=FAILED))
    runs.retry()
    assert [pages for pages, _ in planned(workspace, 2)] == [(2,)]
    runs.retry(below=0.5)
    assert planned(workspace, 3) == [((1,), True)]
    assert runs.retry(below=0.5) is None
    runs.extract(ends(p2=(Status.OK, 0.2)))
    runs.check()
    runs.retry(below=0.5)
    assert planned(workspace, 4) == [((2,), True)]


def test_without_the_setting_only_failed_pages_come_again(made, workspace, runs):
    made.plan(workspace, [made.document("a", 4)])
    runs.extract(ends(p1=(Status.OK, 0.0)))
    assert runs.retry() is None


def test_results_without_a_score_are_left_as_they_are(made, workspace, runs):
    made.plan(workspace, [made.document("a", 4)])
    runs.extract(lambda page: (Status.OK, None))
    assert runs.retry(below=1.0) is None
    status = run_status(workspace)
    assert (status.quality, status.worst) == ((), ())


def test_items_that_hold_such_pages_are_assembled_anew(made, workspace, runs):
    made.plan(workspace, [made.document("a", 3), made.document("b", 3)], pages_per_unit=3)
    runs.extract(lambda page: (Status.OK, 0.97 if page.startswith(made.document("a").id) else 0.1))
    runs.retry(below=0.5)
    assert [item.generation for item in items(workspace)] == [1, 2]
    assert generations(workspace)[1].touched == ("0001-000001",)


@given(st.data())
@settings(max_examples=8)
def test_whatever_comes_of_any_number_of_retries_every_page_counts_once(tmp_path_factory, data):
    from conftest import Made

    made = Made(tmp_path_factory.mktemp("retries") / "w")
    with made.workspace() as workspace:
        runs = Runs(made, workspace)
        documents = [made.document("a", 3), made.document("long", 9), made.unopened("locked"), made.document("b", 1)]
        made.plan(workspace, documents)

        def end(page: str):
            return FAILED if page.endswith("p00000") else data.draw(ENDS)

        runs.extract(end)
        runs.check()
        for _ in range(data.draw(st.integers(1, 4))):
            runs.retry(below=data.draw(st.sampled_from([None, 0.25, 0.5])))
            runs.extract(end, most=data.draw(st.integers(0, 9)))
            runs.check()
        runs.extract(end)
        runs.check()
        status = run_status(workspace)
        assert status.stages["extract"].finished
        assert status.pages.expected == 14
