"""Manifests and lists of any content: documents, or a message with exit code 2 that names the list."""

import json
import os
import random
from pathlib import Path

import pytest
from fuzz_counts import COUNTS
from mutated_manifests import _PAGES, manifest_case
from mutated_pdfs import plain_pdf
from running import FRUGAL, cli, said

import llm_ocr
from llm_ocr.documents.manifests import entry_of, is_folder, parse_pages
from llm_ocr.documents.sources import find_documents
from llm_ocr.errors import UsageError
from llm_ocr.types import Reason


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "good.pdf").write_bytes(plain_pdf(random.Random(0), 3))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_manifest_of_any_content_is_read_or_refused_in_words(folder):
    ends = []
    for number in range(COUNTS["manifests"]):
        suffix, data = manifest_case(random.Random(f"manifest {number}"))
        file = folder / f"list.{suffix}"
        file.write_bytes(b"\n".join(line for line in data.split(b"\n") if not leads_away(line, folder)))
        try:
            found = list(find_documents([str(file)]).documents)
        except UsageError as error:
            assert str(error).strip(), number
            assert "secret-word" not in str(error), number
            ends.append("refused")
            continue
        for one in found:
            assert one.source and one.relative, number
            assert one.reason is None or one.detail, number
            assert one.reason is not None or max(one.pages or (1,)) <= 1_000_000, number
        ends.append("read")
    assert min(ends.count("read"), ends.count("refused")) > COUNTS["manifests"] // 10


def leads_away(line: bytes, folder) -> bool:
    """Whether a line of a list has become a folder of this machine, or a pattern over one: a test lists none."""
    text = os.fsdecode(line.strip()).removeprefix("file://")
    return text.startswith(("/", "~")) and (is_folder(Path(text)) or any(one in text for one in "*?["))


@pytest.mark.slow
def test_pages_of_any_kind_are_read_or_refused(folder):
    for number in range(COUNTS["lists of pages"]):
        chance = random.Random(f"pages {number}")
        text = "".join(chance.choices("0123456789-, \n٣x", k=chance.choice((1, 3, 12))))
        given = chance.choice((*_PAGES, text, [chance.choice((1, 0, 10**6, 10**6 + 1, -1)) for _ in range(3)]))
        try:
            entry = entry_of(json.dumps({"pdf_path": "a", "pages": given}), "line 1", {})
            assert entry.pages is None or all(1 <= page <= 1_000_000 for page in entry.pages)
            if isinstance(given, str):
                assert parse_pages(given).select(100)[:1] <= (100,)
        except UsageError as error:
            assert "line 1" in str(error)


def test_page_number_over_a_million_is_refused_before_reading(folder):
    """It ended runs in their middle: no column of the results holds such a number."""
    for page in (1_000_001, 2**31, 2**63):
        with pytest.raises(UsageError, match="line 3: pages is neither"):
            entry_of(json.dumps({"pdf_path": "good.pdf", "pages": [1, page]}), "line 3", {})
    (folder / "list.jsonl").write_text(json.dumps({"pdf_path": "good.pdf", "pages": [1, 2**31]}))
    run = cli("extract", "list.jsonl", "-w", "w", *FRUGAL, cwd=folder)
    assert run.returncode == 2, said(run)
    assert "list.jsonl line 1" in run.stderr


def test_paths_that_no_system_can_have_cost_their_own_line_alone(folder):
    bad = [
        "a" * 300,
        "/a" * 3000,
        "good.pdf\0",
        "\ud800.pdf",
        "~nobody-of-this-name/a.pdf",
        "good.pdf/x",
        "/proc/self/mem",
    ]
    lines = [{"pdf_path": path, "document_id": f"bad {number}"} for number, path in enumerate(bad)]
    (folder / "list.jsonl").write_text("\n".join(map(json.dumps, [*lines, {"pdf_path": "good.pdf", "pages": [2]}])))
    run = llm_ocr.extract("list.jsonl", workspace=folder / "w", engine="embedded", render_workers=1, ocr_workers=1)
    rows = list(run.pages(images=False))
    assert [row.reason for row in rows].count(None) == 1
    assert {row.reason for row in rows} == {None, Reason.NOT_FOUND, Reason.UNREADABLE}
    assert run.status.pages.failed == len(bad)


def test_a_list_may_be_deep_or_have_numbers_of_any_length(folder):
    for line in ("[" * 100_000, '{"pdf_path": "good.pdf", "pages": [' + "9" * 5000 + "]}"):
        with pytest.raises(UsageError, match="line 7: not readable JSON"):
            entry_of(line, "line 7", {})
