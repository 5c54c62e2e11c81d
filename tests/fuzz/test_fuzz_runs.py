"""Whole runs over mutated files and hostile names: they end by themselves, and nothing is lost or left behind."""

import random

import pytest
from fuzz_counts import COUNTS
from fuzz_folders import Pools, case, put
from fuzz_runs import put_good, run_over
from hostile_names import any_id, file_name, twins
from mutated_pdfs import plain_pdf

from llm_ocr.results.documents import safe_segment

LIMITS = ("--image-size", "300", "--render-memory", "512", "--render-timeout", "20", "--pages", "1-2")


@pytest.mark.slow
def test_run_accounts_for_mutated_files_and_reads_good_ones(tmp_path):
    documents = tmp_path / "documents"
    documents.mkdir()
    pools = Pools([plain_pdf(random.Random(seed), 2) for seed in range(3)], [])
    good = put_good(documents, random.Random("good"), 3)
    put([case(2, number, pools) for number in range(COUNTS["files of a run"])], documents)
    ran = run_over(tmp_path, good, *LIMITS)
    assert ran.faults == []
    assert ran.pages["failed"] > 10
    assert ran.pages["ok"] > 10


@pytest.mark.slow
def test_run_reads_hostile_names_and_writes_only_in_workspace(tmp_path):
    documents = tmp_path / "documents"
    documents.mkdir()
    chance = random.Random("names")
    names = {name for number in range(COUNTS["names"] // 5) for name in (file_name(chance), *twins(chance))}
    pages = [plain_pdf(random.Random(number)) for number in range(len(names))]
    for name, data in zip(sorted(names), pages, strict=True):
        (documents / name).write_bytes(data)
    assert len(names) > COUNTS["names"] // 2
    ran = run_over(tmp_path, {}, "--image-size", "300", command="run")
    assert ran.faults == []
    assert ran.pages["ok"] > COUNTS["names"] // 2
    written = [path for path in (tmp_path / "w" / "documents").rglob("*") if path.is_file()]
    assert len([path for path in written if path.suffix == ".md"]) == sum(ran.pages.values())
    assert all(len(path.name.encode()) <= 255 for path in written)


def test_text_of_any_kind_makes_a_safe_name():
    for number in range(COUNTS["made names"]):
        name = safe_segment(any_id(random.Random(f"id {number}")))
        assert "/" not in name
        assert "\0" not in name
        assert name.strip(".")
        assert len(name.encode()) <= 255
