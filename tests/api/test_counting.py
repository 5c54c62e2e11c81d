"""Which documents a plan opens to count their pages, and what becomes of those that change afterwards."""

import asyncio
import random
import shutil
import time
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

import llm_ocr
from llm_ocr.documents.manifests import SourceDocument, parse_pages
from llm_ocr.documents.open_fd import version_of
from llm_ocr.errors import PageFailure, UsageError
from llm_ocr.stages.counting import CountOptions, PageCounter, counted, likely_pages
from llm_ocr.types import Reason
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.plan import Planner
from llm_ocr.workspace.planned import PlannedDocument


class Opened:
    """A renderer that knows the pages by the name, and which documents were opened."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def open(self, source: str, kind: str = "", version: str = "") -> int:
        self.names.append(source)
        return int(Path(source).stem.partition("-")[0])


def listed(pages: int, number: int, size: int, **more) -> SourceDocument:
    return SourceDocument(f"/bucket/{pages}-{number:05d}.pdf", f"{number}", "pdf", f"v{number}", size=size, **more)


def all_of(documents: list[SourceDocument], opened: Opened, **options) -> list[PlannedDocument]:
    counter = PageCounter(opened, None, options.pop("ranges", None), options.pop("most", None))

    async def run() -> list[PlannedDocument]:
        return [one async for one in counted(iter(documents), counter, CountOptions(**options))]

    return asyncio.run(run())


@pytest.mark.parametrize(("mode", "count", "opened"), [("auto", 20, 20), ("auto", 21, 5), ("estimate", 9, 5)])
def test_documents_are_opened_up_to_a_limit_then_sampled(mode, count, opened):
    seen = Opened()
    planned = all_of([listed(2, number, 2000) for number in range(count)], seen, mode=mode, exact_up_to=20, sample=5)
    assert [one.relative for one in planned] == [str(number) for number in range(count)]
    assert len(seen.names) == opened
    assert all((one.estimate or len(one.pages)) == 2 for one in planned)


def test_exact_opens_all_however_many_there_are():
    seen = Opened()
    planned = all_of([listed(3, number, 9) for number in range(50)], seen, mode="exact", exact_up_to=5)
    assert len(seen.names) == 50 and not any(one.estimate for one in planned)


def test_long_documents_are_opened_unless_few_pages_are_selected():
    documents = [*(listed(2, number, 2000) for number in range(30)), listed(300, 99, 300_000)]
    planned = all_of(documents, Opened(), mode="estimate", sample=5, pages_per_unit=16)
    assert (planned[-1].estimate, len(planned[-1].pages)) == (0, 300)
    for choice in ({"most": 16}, {"ranges": parse_pages("280-290")}):
        planned = all_of(documents, Opened(), mode="estimate", sample=5, pages_per_unit=16, **choice)
        assert 10 <= planned[-1].estimate <= 16


def test_a_kind_that_comes_late_has_a_sample_of_its_own():
    scans = [SourceDocument(f"/b/7-{n}.tiff", f"t{n}", "image", f"t{n}", size=700) for n in range(20)]
    images = [SourceDocument(f"/b/1-{n}.png", f"p{n}", "image", f"p{n}", size=10**7) for n in range(20)]
    documents = [*(listed(2, number, 2000) for number in range(30)), *images, *scans]
    seen = Opened()
    planned = all_of(documents, seen, mode="auto", exact_up_to=10, sample=4)
    assert Counter(Path(name).suffix for name in seen.names) == {".pdf": 4, ".tiff": 4}
    assert [one.estimate or len(one.pages) for one in planned] == [2] * 30 + [1] * 20 + [7] * 20


def test_a_document_of_unknown_size_is_opened():
    documents = [listed(2, number, 2000) for number in range(20)]
    documents.append(SourceDocument("/bucket/9-x.pdf", "x", "pdf", "v", size=None))
    planned = all_of(documents, Opened(), mode="estimate", sample=3)
    assert planned[-1].pages == tuple(range(1, 10))


def test_the_estimate_of_many_documents_is_near():
    """A tenth of them is the sample; the bytes of their pages vary tenfold."""
    drawn = random.Random(3)
    known = [(int(pages * 1000 * 10 ** drawn.random()), pages) for pages in [1, 2, 3, 9, 40] * 400]
    sample = sorted(drawn.sample(known, 200))
    likely = sum(likely_pages(size, sample) for size, _ in known)
    assert likely == pytest.approx(sum(pages for _, pages in known), rel=0.3)
    assert likely_pages(0, sample) == 1
    assert likely_pages(250_000, []) >= 1


@pytest.mark.slow
def test_memory_hardly_grows_with_the_number_of_documents(tmp_path):
    def peak(count: int) -> int:
        documents = (listed(2, number, 2000) for number in range(count))
        options = CountOptions(exact_up_to=200, sample=10)
        with Workspace.open(str(tmp_path / f"{count}"), create=True) as workspace:
            stream = counted(documents, PageCounter(Opened(), None), options)

            async def plan():
                with Planner(workspace, 2) as planner:
                    async for document in stream:
                        planner.add(document)
                    planner.finish()

            tracemalloc.start()
            asyncio.run(plan())
            traced = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        return traced

    few, many = 2_000, 6_000
    peak(few)  # what is made once
    most = min(peak(many), peak(many - 1))  # how many documents are in flight at once differs by run
    assert most - peak(few - 1) < 50 * (many - few)


class Closed:
    """A renderer that opens nothing, and counts how often it was asked."""

    def __init__(self):
        self.asked = 0

    async def open(self, source, kind="", version=""):
        self.asked += 1
        raise PageFailure(Reason.UNREADABLE, "opened")


def test_known_content_is_counted_without_being_opened(examples):
    paper, closed = examples / "paper.pdf", Closed()
    counter = PageCounter(closed, None, parse_pages("2-"), totals={version_of(paper): 3})
    known = asyncio.run(counter.one(SourceDocument(str(paper), "paper.pdf", "pdf")))
    assert (known.pages, known.page_total, known.reason, closed.asked) == ((2, 3), 3, None, 0)
    other = asyncio.run(counter.one(SourceDocument(str(examples / "scan.pdf"), "scan.pdf", "pdf")))
    assert (other.reason, closed.asked) == (Reason.UNREADABLE, 1)


@pytest.mark.slow
def test_a_plan_made_twice_is_the_same_plan(tmp_path, examples):
    first = llm_ocr.plan(examples / "paper.pdf", workspace=tmp_path / "w", engine="embedded").status
    before = sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "w" / "plan").rglob("*"))
    time.sleep(0.01)
    again = llm_ocr.plan(examples / "paper.pdf", workspace=tmp_path / "w").status
    assert (first.pages, first.documents) == (again.pages, again.documents)
    assert sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "w" / "plan").rglob("*")) == before


def test_page_missing_from_a_planned_document_is_an_error(examples, tmp_path):
    scan, frugal = examples / "scan.pdf", {"engine": "embedded", "workspace": tmp_path}
    llm_ocr.plan(scan, pages="1", **frugal)
    for selection in ({"pages": "2"}, {"max_pages_per_document": 2}, {}):
        with pytest.raises(UsageError, match="is in the plan with pages 1, without 2"):
            llm_ocr.plan(scan, **selection, **frugal)
    with pytest.raises(UsageError, match="`pages`: no source to select from"):
        llm_ocr.extract(pages="2", **frugal)
    assert llm_ocr.plan(scan, pages="1", **frugal).status.pages.expected == 1


@pytest.mark.slow
def test_changed_or_missing_file_after_planning_fails_by_name(tmp_path, examples):
    for name in ("same.pdf", "changed.pdf", "gone.pdf"):
        shutil.copy(examples / "paper.pdf", tmp_path / name)
        with (tmp_path / name).open("ab") as file:
            file.write(f"\n% {name}\n".encode())
    sources = [tmp_path / name for name in ("same.pdf", "changed.pdf", "gone.pdf")]
    llm_ocr.plan(sources, workspace=tmp_path / "w", pages="1", engine="embedded")
    shutil.copy(examples / "scan.pdf", tmp_path / "changed.pdf")
    (tmp_path / "gone.pdf").unlink()
    run = llm_ocr.extract(workspace=tmp_path / "w")
    reasons = {page.source.rsplit("/", 1)[-1]: page.reason for page in run.pages(images=False)}
    assert reasons == {"same.pdf": None, "changed.pdf": Reason.SOURCE_CHANGED, "gone.pdf": Reason.NOT_FOUND}
