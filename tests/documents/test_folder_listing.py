"""Folders of very many files are listed in the order of their paths, without a list of all of them in memory."""

import itertools
import tracemalloc
from pathlib import Path

import pytest

from llm_ocr.documents import sources
from llm_ocr.documents.sources import files_below, find_documents

NAMES = ("b", "a.pdf", "a b", "a\n\"b'", "Z", "é.pdf", "10.pdf", "9.pdf")


@pytest.fixture
def tree(tmp_path):
    """Files and folders with names that are prefixes of one another, and hidden ones."""
    root = tmp_path / "root"
    for first, second in itertools.product(("a", "a.pdf.d", "b", ".hidden"), ("x", "x.d", ".also-hidden")):
        folder = root / first / second
        folder.mkdir(parents=True)
        for name in NAMES:
            (folder / name).touch()
            (folder.parent / f"{name}.file").touch()
    return root


@pytest.mark.parametrize("run", [1, 3, 100_000])
def test_files_come_in_the_order_of_their_paths_however_few_names_are_sorted_in_memory(tree, monkeypatch, run):
    monkeypatch.setattr(sources, "RUN", run)
    shown = [path for path in tree.rglob("*") if path.is_file() and "/." not in str(path.relative_to(tree.parent))]
    assert len(shown) == 3 * len(NAMES) * 3
    assert list(files_below(tree)) == sorted(shown)


def test_what_links_lead_to_is_listed_once_and_under_its_own_name_where_it_has_one(tree):
    plain = list(files_below(tree))
    outside = tree.parent / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep" / "z.pdf").touch()
    (tree / "0-first").symlink_to(tree / "b")
    (tree / "a" / "x" / "up").symlink_to(tree)
    (tree / "zz-again").symlink_to(outside / "deep")
    (tree / "zz").symlink_to(outside)
    found = list(files_below(tree))
    assert found == sorted(found)
    assert sorted(set(found) - set(plain)) == [tree / "zz" / "deep" / "z.pdf"]


def test_a_listing_of_one_folder_keeps_nothing_of_the_documents_that_it_gave(tmp_path):
    for number in range(3000):
        (tmp_path / f"{number:05d}.pdf").touch()
    documents = find_documents([str(tmp_path)]).documents
    next(documents)
    tracemalloc.start()
    try:
        assert sum(1 for _ in documents) == 2999
        assert tracemalloc.get_traced_memory()[1] < 3000 * 60  # bytes; a path alone takes more
    finally:
        tracemalloc.stop()


def test_a_file_that_a_list_names_twice_is_taken_once(tmp_path):
    Path(tmp_path, "a.pdf").write_bytes(b"%PDF-1.4\n")
    Path(tmp_path, "list.txt").write_text("a.pdf\na.pdf\n")
    assert len(list(find_documents([str(tmp_path / "list.txt")]).documents)) == 1
    assert len(list(find_documents([str(tmp_path), str(tmp_path / "a.pdf")]).documents)) == 1
