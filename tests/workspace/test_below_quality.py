"""Pages that are read again: the better row of each counts, and status counts just those."""

import asyncio
import io
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import Made

from llm_ocr.cli.outcome import status_text
from llm_ocr.results.balance import MOST, has_unread_ink, has_unsupported_text
from llm_ocr.results.schema import (
    Images,
    figures_from_parquet,
    figures_to_parquet,
    iter_pages,
    pages_to_parquet,
)
from llm_ocr.stages.retry import give_up_unread
from llm_ocr.types import (
    Box,
    Counts,
    EncodedImage,
    Figure,
    FigureRecord,
    InkTotals,
    Ledger,
    PageRecord,
    Reason,
    Status,
    figure_id,
    page_id,
)
from llm_ocr.workspace.generations import Kind, generations, read_units, totals_of
from llm_ocr.workspace.items import items
from llm_ocr.workspace.keys import DESCRIBE, EXTRACT, claim_key
from llm_ocr.workspace.publish import done_units, find_marker, publish, read_data
from llm_ocr.workspace.published import extracted_pages
from llm_ocr.workspace.retry import Selection, plan_retry
from llm_ocr.workspace.status import run_status
from llm_ocr.workspace.summaries import BINS, WORST, bin_of, figures_summary, pages_summary

FAILED = (Status.FAILED, None)
#: How a page may end: its status and its quality.
ENDS = st.sampled_from(
    [FAILED, (Status.OK, 0.1), (Status.OK, 0.3), (Status.OK, 0.97), (Status.DEGRADED, 0.2), (Status.OK, None)]
)
CROP = EncodedImage(b"", "image/png", 1, 1)
#: Ledgers of pages by number and generation, so that each retry gives a page another one; a failed page has none.
LEDGERS = {0: None, 1: Ledger(0.0), 2: Ledger(0.5, 0.25), 3: Ledger(0.25, 0.0, 0.5), 4: Ledger(1.0, 0.03, 0.2)}
REASONS = {Status.OK: None, Status.DEGRADED: Reason.LOOP, Status.FAILED: Reason.RENDER_TIMEOUT}


def got_worse(new: PageRecord, old: PageRecord) -> bool:
    if new.status is not old.status:
        return list(Status).index(new.status) > list(Status).index(old.status)
    if new.ledger is not None and old.ledger is not None and new.ledger.imbalance != old.ledger.imbalance:
        return new.ledger.imbalance > old.ledger.imbalance
    return None not in (new.quality, old.quality) and new.quality < old.quality


class Runs:
    """Extract and retry over a workspace, with pages that end as they are told."""

    def __init__(self, made, workspace) -> None:
        self.made = made
        self.workspace = workspace
        self.key = made.key(workspace)
        self.ledgers: dict[tuple[int, int], Ledger] = {}  # by generation and page number
        self.varied = False  # whether other pages have ledgers too
        self.reasons: dict[int, Reason] = {}  # by page number

    def extract(self, end, most: int = 1000) -> None:
        """Publish units that are not done; `end` gives status and quality of each page id."""
        done = done_units(self.workspace, EXTRACT, self.key)
        for unit in itertools.islice((one for one in read_units(self.workspace) if one.id not in done), most):
            rows = [
                self.row(part, number, part.first_index + place, *end(page_id(part.document_id, number)), unit)
                for part in unit.parts
                for place, number in enumerate(part.pages or (None,))
            ]
            publish(self.workspace, EXTRACT, self.key, unit.id, pages_to_parquet(rows), pages_summary(unit, rows))

    def row(self, part, number, index, status, quality, unit) -> PageRecord:
        """A page that was read has 0 to 2 figures, each time another number."""
        parts = {} if quality is None else {"found": quality}
        page = page_id(part.document_id, number)
        count = 0 if status is Status.FAILED else ((number or 0) + unit.generation) % 3
        figures = tuple(
            Figure(figure_id(page, place), "figure", Box(0, 0, 1, 1), CROP) for place in range(1, count + 1)
        )
        varied = LEDGERS[((number or 0) + 2 * unit.generation) % len(LEDGERS)] if self.varied and quality else None
        ledger = self.ledgers.get((unit.generation, number), varied)
        return PageRecord(
            page, part.document_id, part.source, number, index, status, self.reasons.get(number, REASONS[status]),
            figures=figures, quality=quality, quality_parts=parts, ledger=ledger,
        )  # fmt: skip

    def describe(self, most: int = 1000) -> None:
        """Publish figures of units that are extracted and not described; one in three fails, the next is degraded."""
        key = claim_key(self.workspace, DESCRIBE, {"extract": self.key})
        left = sorted(done_units(self.workspace, EXTRACT, self.key) - done_units(self.workspace, DESCRIBE, key))
        for unit in left[:most]:
            rows = []
            for page in self.pages_of(unit):
                for place, one in enumerate(page.figures, (page.page_number or 0) + int(unit[:4])):
                    status = (Status.FAILED, Status.DEGRADED, Status.OK)[place % 3]
                    rows.append(
                        FigureRecord(one.id, page.page_id, page.document_id, status, "describe", REASONS[status])
                    )
            publish(self.workspace, DESCRIBE, key, unit, figures_to_parquet(rows), figures_summary(len(rows), rows))

    def pages_of(self, unit: str) -> list[PageRecord]:
        marker = find_marker(self.workspace, EXTRACT, self.key, unit)
        return list(iter_pages(io.BytesIO(read_data(self.workspace, marker)), images=Images.NONE)) if marker else []

    def figures(self, rows, by_unit) -> list[FigureRecord]:
        """The figures of rows that count, as far as they are described, from the data themselves."""
        counts = {id(row) for row in rows}
        key = claim_key(self.workspace, DESCRIBE, {"extract": self.key})
        found = []
        for unit, all_rows in by_unit.items():
            marker = find_marker(self.workspace, DESCRIBE, key, unit)
            pages = {row.page_id for row in all_rows if id(row) in counts}
            described = figures_from_parquet(read_data(self.workspace, marker)) if marker else []
            found += [one for one in described if one.page_id in pages]
        return found

    def retry(self, below: float | None = None, **selection):
        async def reopen(part):
            return self.made.unopened(part.relative)

        return asyncio.run(
            plan_retry(
                self.workspace,
                self.key,
                reopen=reopen,
                pages_per_unit=3,
                selection=Selection(below=below, **selection),
            )
        )

    def give_up(self) -> int:
        """Give up unfinished retries; the rows that count stay."""
        known = {row.page_id: row for row in self.rows()}
        pages = give_up_unread(self.workspace, self.key)
        for row in self.rows():
            old = known.get(row.page_id) or known[page_id(row.document_id, None)]
            assert (row.status, row.reason, row.quality) == (old.status, old.reason, old.quality)
        self.check()
        return pages

    def rows(self, by_unit=None) -> list[PageRecord]:
        """The rows that count, from the data themselves; all rows go into `by_unit`."""
        by_unit = {} if by_unit is None else by_unit
        by_unit.update({unit.id: self.pages_of(unit.id) for unit in read_units(self.workspace)})
        better: dict[str, PageRecord] = {}
        for row in itertools.chain.from_iterable(by_unit.values()):
            if row.page_id not in better or not got_worse(row, better[row.page_id]):
                better[row.page_id] = row
        opened = {row.document_id for row in better.values() if row.page_number is not None}
        return [row for row in better.values() if row.page_number is not None or row.document_id not in opened]

    def check(self) -> None:
        """Status says what the rows say."""
        by_unit = {}
        rows, status = self.rows(by_unit), run_status(self.workspace)
        ended = [row.status for row in rows]
        counted = (ended.count(Status.OK), ended.count(Status.DEGRADED), ended.count(Status.FAILED))
        assert (status.pages.ok, status.pages.degraded, status.pages.failed) == counted
        bins = [0] * BINS
        for row in rows:
            if row.quality is not None:
                bins[bin_of(row.quality)] += 1
        assert list(status.quality) == bins or (not status.quality and not any(bins))
        ledgers = [row.ledger for row in rows if row.ledger]
        unbalanced = [row for row in rows if has_unread_ink(row.ledger, None) or has_unsupported_text(row.ledger, None)]
        assert {page.page_id for page in status.unread} == {
            row.page_id for row in unbalanced if row.ledger.unread_share
        }
        unsupported = {row.page_id for row in unbalanced if row.ledger.unsupported_share}
        assert {page.page_id for page in status.unsupported} == unsupported
        assert status.ledger == InkTotals(
            len(ledgers),
            sum(one.ink for one in ledgers),
            pytest.approx(sum(one.ink * one.unread_share for one in ledgers)),
            sum(one.unread_share > MOST[one.verified_by] for one in ledgers),
            sum(one.unsupported_share > MOST[one.verified_by] for one in ledgers),
        )
        told = [row.reason.value for row in rows if row.reason]
        assert dict(status.reasons) == {reason: told.count(reason) for reason in set(told)}
        scored = [one for one in rows if one.quality is not None]
        weak = sorted(
            (one.quality, one.page_id) for one in scored if one.quality < 0.9 or one.status is Status.DEGRADED
        )
        assert sorted((page.score, page.page_id) for page in status.worst) == weak[:WORST]
        self.check_figures(rows, self.figures(rows, by_unit), status)
        failed = {row.page_id for row in rows if row.status is Status.FAILED}
        assert {example.page_id for example in status.examples} <= failed

    def check_figures(self, rows, figures, status) -> None:
        ended = [one.status for one in figures]
        counted = (ended.count(Status.OK), ended.count(Status.DEGRADED), ended.count(Status.FAILED))
        assert (status.figures.ok, status.figures.degraded, status.figures.failed) == counted
        assert status.figures.expected == sum(len(row.figures) for row in rows)
        told = [one.reason.value for one in figures if one.reason]
        assert dict(status.figure_reasons) == {reason: told.count(reason) for reason in set(told)}


@pytest.fixture
def runs(made, workspace) -> Runs:
    return Runs(made, workspace)


def ends(**given):
    """Ends of pages by number; all others are ok and good."""
    return lambda page: given.get(f"p{int(page[-5:])}", (Status.OK, 0.97))


def planned(workspace, generation: int):
    units = read_units(workspace, kinds=[Kind.RETRY])
    return [(part.pages, part.again) for unit in units if unit.generation == generation for part in unit.parts]


def test_pages_below_the_score_are_retried_with_failed_ones(made, workspace, runs):
    made.plan(workspace, [made.document("a", 6)])
    runs.extract(ends(p2=(Status.OK, 0.3), p3=FAILED, p5=(Status.DEGRADED, 0.49), p6=(Status.OK, 0.5)))
    generation = runs.retry(below=0.5)
    assert (generation.expected, generation.replaces) == (3, 3)
    assert planned(workspace, 2) == [((2,), True), ((3,), False), ((5,), True)]
    assert totals_of(generations(workspace)).expected == 6
    runs.check()
    runs.extract(ends())
    assert run_status(workspace).pages == Counts(6, 6, 0, 0)
    runs.check()


def test_page_that_got_worse_is_retried_by_its_better_score(made, workspace, runs):
    made.plan(workspace, [made.document("a", 2)])
    runs.extract(ends(p1=(Status.OK, 0.3)))
    runs.retry(below=0.5)
    runs.extract(ends(p1=(Status.OK, 0.1)))
    assert runs.retry(below=0.25) is None
    assert runs.retry(below=0.5).expected == 1
    runs.extract(ends())
    runs.check()


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        ((Status.OK, 0.3), (Status.DEGRADED, 0.9), 0.3),
        ((Status.DEGRADED, 0.3), (Status.OK, 0.1), 0.1),
        ((Status.OK, 0.3), (Status.OK, 0.2), 0.3),
        ((Status.OK, 0.3), (Status.OK, 0.4), 0.4),
        ((Status.OK, 0.3), (Status.OK, None), None),
    ],
)
def test_better_row_counts_by_status_then_by_quality(made, workspace, runs, before, after, counts):
    made.plan(workspace, [made.document("a", 2)])
    runs.extract(ends(p1=before))
    runs.retry(below=0.5)
    runs.extract(ends(p1=after))
    assert [row.quality for row in runs.rows()] == [counts, 0.97]
    (item,) = items(workspace)
    assert [row.quality for row in extracted_pages(workspace, runs.key, item, Images.NONE)] == [counts, 0.97]
    runs.check()


def test_less_unaccounted_ink_counts_more_than_quality(made, workspace, runs):
    made.plan(workspace, [made.document("a", 2)])
    runs.ledgers = {(1, 1): Ledger(0.1, 0.4), (1, 2): Ledger(0.1, 0.1, 0.1), (2, 1): Ledger(0.1, 0.2)}
    runs.ledgers[2, 2] = Ledger(0.1, 0.3)
    runs.extract(lambda page: (Status.OK, 0.4))
    runs.retry(below=0.5)
    runs.extract(lambda page: (Status.OK, 0.3 if page.endswith("1") else 0.9))
    assert [row.quality for row in runs.rows()] == [0.3, 0.4]
    runs.check()


def test_unbalanced_pages_are_chosen_by_their_shares(made, workspace, runs):
    made.plan(workspace, [made.document("a", 6), made.document("b", 6)], pages_per_unit=6)
    pages = {
        1: Ledger(0.125, 0.3),
        2: Ledger(0.125),
        3: Ledger(0.125, 0.02, 0.01),
        4: Ledger(0.125, 0.0, 0.4),
        6: Ledger(0.125, 0.01),
    }
    runs.ledgers = {(1, number): ledger for number, ledger in pages.items()}
    runs.reasons = {1: Reason.LOOP, 2: Reason.LOOP, 6: Reason.UNREAD}
    bad = (Status.DEGRADED, 0.9)
    runs.extract(lambda page: {1: bad, 2: bad, 5: FAILED, 6: bad}.get(int(page[-1]), (Status.OK, 0.9)))
    units = [unit.id for unit in read_units(workspace)]
    unbalanced = Selection(frozenset(), unbalanced=True)
    assert all(unbalanced.may_have(find_marker(workspace, EXTRACT, runs.key, unit).summary) for unit in units)
    runs.retry(statuses=frozenset(), unbalanced=True)
    assert [pages for pages, _ in planned(workspace, 2)] == [(1,), (4,), (6,)] * 2
    runs.ledgers |= {(2, 1): Ledger(0.125), (2, 4): Ledger(0.125, 0.0, 0.3), (2, 6): Ledger(0.125)}
    runs.reasons = {}
    runs.extract(lambda page: (Status.OK, 0.9))
    assert [row.ledger.imbalance for row in runs.rows() if row.page_number in (1, 4, 6)] == [0.0, 0.3, 0.0] * 2
    runs.retry(statuses=frozenset(), unbalanced=True)
    assert [pages for pages, _ in planned(workspace, 3)] == [(4,), (4,)]
    runs.check()


def test_the_worst_pages_are_first_if_their_number_is_limited(made, workspace, runs):
    made.plan(workspace, [made.document("a", 6)])
    runs.extract(ends(p1=(Status.OK, 0.3), p2=(Status.DEGRADED, 0.4), p4=FAILED, p5=(Status.OK, 0.1)))
    assert runs.retry(below=0.5, most=3).expected == 3
    assert [pages for pages, _ in planned(workspace, 2)] == [(2,), (4,), (5,)]


def test_degraded_pages_are_among_the_worst_at_any_score(made, workspace, runs):
    made.plan(workspace, [made.document("a", 3)])
    runs.extract(ends(p1=(Status.OK, 0.3), p2=(Status.DEGRADED, 1.0)))
    assert [(page.page, page.score, bool(page.wrong)) for page in run_status(workspace).worst] == [
        (2, 1.0, True),
        (1, 0.3, False),
    ]


def test_page_failing_on_retry_keeps_old_row_and_is_not_failed(made, workspace, runs):
    made.plan(workspace, [made.document("a", 2)])
    runs.extract(ends(p1=(Status.OK, 0.3)))
    runs.retry(below=0.5)
    runs.extract(ends(p1=FAILED))
    runs.describe()
    status = run_status(workspace)
    assert (status.pages, status.reasons, status.examples) == (Counts(2, 2, 0, 0), {}, ())
    assert [page.score for page in status.worst] == [0.3]
    runs.check()
    assert runs.retry() is None
    assert runs.retry(below=0.5).expected == 1  # it may be tried once more
    runs.extract(ends())
    runs.check()


def test_given_up_pages_keep_their_rows_and_may_be_chosen_again(made, workspace, runs):
    made.plan(workspace, [made.document("a", 4), made.document("b", 3)])
    ends_before = ends(p1=(Status.OK, 0.3), p2=FAILED, p3=(Status.DEGRADED, 0.2))
    runs.extract(ends_before)
    runs.retry(below=0.5)
    runs.extract(ends(p1=(Status.OK, 0.4), p2=FAILED), most=1)  # three pages of document a
    assert runs.give_up() == 3
    assert run_status(workspace).stages["extract"].finished
    assert run_status(workspace).reasons == {"render timeout": 2, "repetition loop": 1}
    assert runs.give_up() == 0
    assert runs.retry(below=0.5).expected == 5  # page 3 of document a was read well
    runs.extract(ends())
    runs.check()


def test_worker_that_reads_a_given_up_unit_changes_nothing(made, workspace, runs):
    made.plan(workspace, [made.document("a", 2)])
    runs.extract(ends(p1=(Status.OK, 0.3)))
    runs.retry(below=0.5)
    (unit,) = [unit for unit in read_units(workspace) if unit.generation == 2]
    runs.give_up()
    (part,) = unit.parts
    late = [runs.row(part, 1, part.first_index, Status.OK, 0.97, unit)]
    publish(workspace, EXTRACT, runs.key, unit.id, pages_to_parquet(late), pages_summary(unit, late))
    assert [row.quality for row in runs.rows()] == [0.3, 0.97]
    runs.check()


def test_pages_of_a_pending_retry_are_not_planned_twice(made, workspace, runs):
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


def test_figures_of_a_repeated_page_count_once(made, workspace, runs):
    made.plan(workspace, [made.document("a", 4)])
    runs.extract(ends(p1=(Status.OK, 0.3), p2=(Status.OK, 0.3)))
    runs.describe()
    assert run_status(workspace).figures == Counts(2 + 0 + 1 + 2, 2, 1, 2)
    runs.retry(below=0.5)
    runs.extract(ends())
    assert run_status(workspace).figures.expected == 0 + 1 + 1 + 2
    runs.check()
    runs.describe()
    runs.check()
    status = run_status(workspace)
    assert status.stages["describe"].finished
    assert status.figures == Counts(4, 1, 2, 1)


def test_status_accounts_for_the_ink_of_current_rows(made, workspace, runs):
    runs.varied = True
    made.plan(workspace, [made.document("a", 5)])
    runs.extract(ends(p5=(Status.OK, 0.3)))  # p5 has the ledger 2, and 4 when it is read again
    text = str(run_status(workspace).ledger)
    assert text == "ink accounted for: 91.1 %; 2 pages with unread ink, 2 with unsupported text"
    assert f"ledger     {text}" in status_text(run_status(workspace))
    runs.retry(below=0.5)
    runs.extract(ends())
    status = run_status(workspace)
    shown = status.to_json()["ledger"]
    worst = shown.pop("worst_unread"), shown.pop("worst_unsupported")
    assert shown == {"ink_accounted": 0.973333, "pages": 4, "unread_pages": 2, "unsupported_pages": 3}
    assert [[(page["page"], page["unread"], page["unsupported"]) for page in side] for side in worst] == [
        [(2, 0.03, 0.2), (5, 0.03, 0.2)],
        [(1, 0.0, 0.5), (2, 0.03, 0.2), (5, 0.03, 0.2)],
    ]


def test_status_of_older_results_has_no_ledger(made, workspace, runs):
    made.plan(workspace, [made.document("a", 4)])
    runs.extract(lambda page: (Status.OK, None))
    status = run_status(workspace)
    assert status.to_json()["ledger"] is None
    assert "ink" not in status_text(status)


def test_without_the_setting_only_failed_pages_are_retried(made, workspace, runs):
    made.plan(workspace, [made.document("a", 4)])
    runs.extract(ends(p1=(Status.OK, 0.0)))
    assert runs.retry() is None


def test_results_without_a_score_are_not_retried(made, workspace, runs):
    made.plan(workspace, [made.document("a", 4)])
    runs.extract(lambda page: (Status.OK, None))
    assert runs.retry(below=1.0) is None
    status = run_status(workspace)
    assert (status.quality, status.worst) == ((), ())


def test_items_with_repeated_pages_are_assembled_again(made, workspace, runs):
    made.plan(workspace, [made.document("a", 3), made.document("b", 3)], pages_per_unit=3)
    runs.extract(lambda page: (Status.OK, 0.97 if page.startswith(made.document("a").id) else 0.1))
    runs.retry(below=0.5)
    assert [item.generation for item in items(workspace)] == [1, 2]
    assert generations(workspace)[1].touched == ("0001-000001",)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=8)
def test_every_page_counts_once_after_any_number_of_retries(tmp_path_factory, data):
    made = Made(tmp_path_factory.mktemp("retries") / "w")
    with made.workspace() as workspace:
        runs = Runs(made, workspace)
        documents = [made.document("a", 3), made.document("long", 9), made.unopened("locked"), made.document("b", 1)]
        made.plan(workspace, documents)

        def end(page: str):
            return FAILED if page.endswith("p00000") else data.draw(ENDS)

        runs.varied = True
        runs.extract(end)
        runs.check()
        for _ in range(data.draw(st.integers(1, 4))):
            runs.retry(below=data.draw(st.sampled_from([None, 0.25, 0.5])))
            runs.extract(end, most=data.draw(st.integers(0, 9)))
            runs.describe(data.draw(st.integers(0, 9)))
            runs.check()
            if data.draw(st.booleans()):
                runs.give_up()
        runs.extract(end)
        runs.check()
        runs.describe()
        runs.check()
        status = run_status(workspace)
        assert status.stages["extract"].finished
        assert status.pages.expected == 14
