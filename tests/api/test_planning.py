"""Planning again is cheap: a document whose content is in the plan is not opened to count its pages."""

import asyncio
import time

import pytest

import llm_ocr
from llm_ocr.documents.manifests import parse_pages
from llm_ocr.documents.sources import SourceDocument, version_of
from llm_ocr.errors import PageFailure, UsageError
from llm_ocr.stages.counting import PageCounter
from llm_ocr.types import Reason


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


def test_a_plan_made_twice_is_the_same_plan(tmp_path, examples):
    first = llm_ocr.plan(examples / "paper.pdf", workspace=tmp_path / "w", engine="embedded").status
    before = sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "w" / "plan").rglob("*"))
    time.sleep(0.01)
    again = llm_ocr.plan(examples / "paper.pdf", workspace=tmp_path / "w").status
    assert (first.pages, first.documents) == (again.pages, again.documents)
    assert sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "w" / "plan").rglob("*")) == before


def test_a_page_that_a_document_was_planned_without_is_not_left_out_silently(examples, tmp_path):
    scan, frugal = examples / "scan.pdf", {"engine": "embedded", "workspace": tmp_path}
    llm_ocr.plan(scan, pages="1", **frugal)
    for selection in ({"pages": "2"}, {"max_pages_per_document": 2}, {}):
        with pytest.raises(UsageError, match="is in the plan with pages 1, without 2"):
            llm_ocr.plan(scan, **selection, **frugal)
    with pytest.raises(UsageError, match="`pages`: no source to select from"):
        llm_ocr.extract(pages="2", **frugal)
    assert llm_ocr.plan(scan, pages="1", **frugal).status.pages.expected == 1
