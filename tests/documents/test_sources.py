"""Documents that users name are found in a fixed order; faults are named."""

import itertools
import json
import os
import random
import tempfile
import tracemalloc
from collections import Counter
from itertools import islice
from pathlib import Path

import pypdfium2
import pytest
from pdf_writing import pages, pdf, text, written
from PIL import Image
from test_rendering import rendered, with_renderer

from llm_ocr.documents import sources
from llm_ocr.documents.manifests import SourceDocument, parse_pages
from llm_ocr.documents.sources import files_below, find_documents, sampled
from llm_ocr.errors import PageFailure, UsageError
from llm_ocr.types import Reason

PDF = pages(text("Hello"))


def names(found):
    return [document.relative for document in found.documents]


@pytest.fixture
def folder(tmp_path):
    for name in ("b.pdf", "a.PDF", "sub/c.pdf", ".hidden.pdf", ".git/d.pdf"):
        written(tmp_path / name, PDF)
    written(tmp_path / "notes.docx", b"PK")
    written(tmp_path / "sub/more.docx", b"PK")
    return tmp_path


def test_folder_lists_documents_in_order_and_counts_the_rest(folder):
    found = find_documents([str(folder)])
    assert names(found) == ["a.PDF", "b.pdf", "sub/c.pdf"]
    assert found.skipped == Counter({".docx": 2})


def _bad_links(folder):
    """Links in a circle, to nothing, and to where no path may lead; and one that is fine."""
    (folder / "circle").symlink_to("circle")
    (folder / "bad.pdf").symlink_to("bad.pdf")
    (folder / "gone.pdf").symlink_to("nothing.pdf")
    (folder / "gone.txt").symlink_to("nothing.txt")
    (folder / "long").symlink_to("x" * 300)
    (folder / "good.pdf").symlink_to("b.pdf")


@pytest.mark.parametrize("source", ["", "*", "**", "**/*"])
def test_bad_link_fails_alone_and_rest_of_folder_is_read(folder, source):
    _bad_links(folder)
    documents = list(find_documents([str(folder / source)]).documents)
    assert [one.relative for one in documents if not one.reason] == ["a.PDF", "b.pdf", "good.pdf", "sub/c.pdf"]
    assert {one.relative: (one.reason, one.detail) for one in documents if one.reason} == {
        "bad.pdf": (Reason.UNREADABLE, "link cannot be followed: Too many levels of symbolic links"),
        "circle": (Reason.UNREADABLE, "link cannot be followed: Too many levels of symbolic links"),
        "gone.pdf": (Reason.NOT_FOUND, "broken link"),
        "long": (Reason.UNREADABLE, "link cannot be followed: File name too long"),
    }


def test_unmatched_links_are_named_only_if_they_may_hide_matches(folder):
    _bad_links(folder)
    documents = find_documents([str(folder / "**" / "b.pdf")]).documents
    assert [one.relative for one in documents] == ["b.pdf", "bad.pdf", "circle", "long"]


@pytest.fixture
def unprivileged():
    """An empty folder, and a user who is bound by permissions, even where the tests run as root."""
    root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as name:
        if root:
            os.chown(name, 65534, -1)
            os.seteuid(65534)
        try:
            yield Path(name)
        finally:
            if root:
                os.seteuid(0)
            for folder in Path(name).iterdir():
                folder.chmod(0o755)


def test_a_link_to_where_its_reader_may_not_look_fails_alone(unprivileged):
    folder, locked = unprivileged / "in", unprivileged / "locked"
    written(folder / "a.pdf", PDF)
    (locked / "inside").mkdir(parents=True)
    (folder / "link").symlink_to(locked / "inside")
    locked.chmod(0)
    documents = list(find_documents([str(folder)]).documents)
    assert [(one.relative, one.reason) for one in documents] == [("a.pdf", None), ("link", Reason.UNREADABLE)]
    assert documents[1].detail == "link cannot be followed: Permission denied"


def test_pattern_reads_files_in_a_link_cycle_once(folder):
    for name in ("up", "again"):
        (folder / "sub" / name).symlink_to(folder)
    assert names(find_documents([str(folder / "**" / "*.pdf")])) == ["b.pdf", "sub/c.pdf"]


def test_globs_match_and_keep_the_path_below_their_fixed_part(folder):
    assert names(find_documents([str(folder / "*.pdf")])) == ["b.pdf"]
    assert names(find_documents([str(folder / "**" / "*.pdf")])) == ["b.pdf", "sub/c.pdf"]
    assert names(find_documents([str(folder / "s*")])) == ["sub/c.pdf"]


@pytest.mark.parametrize(
    "name",
    ["a,b.pdf", "a [1].pdf", "x*?.pdf", "-rf.pdf", " two  words .pdf", "Ünïcode 文書 عربي.pdf", "50%.pdf", "#1.pdf"],
)
def test_odd_names_work_alone_in_folders_and_in_lists(tmp_path, name):
    path = written(tmp_path / "docs[1]" / name, PDF)
    written(tmp_path / "docs[1]" / "a 1.pdf", PDF)  # what the pattern "a [1].pdf" would match
    assert [document.source for document in find_documents([path]).documents] == [path]
    assert name in names(find_documents([str(tmp_path / "docs[1]")]))
    assert name in names(find_documents([str(tmp_path / "docs[1]" / "*.pdf")]))
    listing = tmp_path / "list.txt"
    listing.write_text(f"# comment\n\n./docs[1]/{name}\r\n", encoding="utf-8")
    assert names(find_documents([str(listing)])) == [f"docs[1]/{name}"]


def test_a_relative_name_with_a_leading_dash_is_a_file(tmp_path, monkeypatch):
    written(tmp_path / "-x.pdf", PDF)
    monkeypatch.chdir(tmp_path)
    assert names(find_documents(["-x.pdf"])) == ["-x.pdf"]


def test_a_file_url_is_a_path(tmp_path):
    path = written(tmp_path / "a b#.pdf", PDF)
    assert next(find_documents([(tmp_path / "a b#.pdf").as_uri()]).documents).source == path


def test_content_decides_when_the_name_lies(tmp_path):
    Image.new("RGB", (20, 20)).save(tmp_path / "really-png.pdf", "PNG")
    written(tmp_path / "really-pdf.png", PDF)
    written(tmp_path / "no suffix", PDF)
    written(tmp_path / "list.txt", PDF)
    found = {document.relative: document.kind for document in find_documents([str(tmp_path)]).documents}
    assert found == {"really-png.pdf": "image", "really-pdf.png": "pdf", "no suffix": "pdf"}
    assert next(find_documents([str(tmp_path / "list.txt")]).documents).kind == "pdf"


def test_the_same_file_named_twice_is_one_document(folder):
    assert len(names(find_documents([str(folder), str(folder / "b.pdf"), str(folder / "*.pdf")]))) == 3
    (folder / "list.txt").write_text("b.pdf\nb.pdf\n")
    (document,) = find_documents([str(folder / "list.txt")]).documents
    assert document.size == len(PDF)


def test_missing_or_unknown_input_fails_alone_and_rest_continues(folder):
    found = find_documents([str(folder / "no.pdf"), str(folder / "notes.docx"), str(folder / "b.pdf")])
    assert [document.reason for document in found.documents] == [Reason.NOT_FOUND, Reason.UNKNOWN_TYPE, None]


@pytest.mark.parametrize("name", ["no.pdf", "notes.docx", "empty", "*.tiff"])
def test_no_document_names_the_source_and_accepted_types(folder, name):
    (folder / "empty").mkdir()
    with pytest.raises(UsageError) as caught:
        find_documents([str(folder / name)])
    assert name in str(caught.value)
    assert "TIFF" in str(caught.value)


def test_other_urls_are_refused_by_name():
    with pytest.raises(UsageError, match="mean gs://"):
        find_documents(["gcs://bucket/x"])


def test_only_takes_names_and_patterns(folder):
    assert names(find_documents([str(folder)], only=["b.pdf"])) == ["b.pdf"]
    assert names(find_documents([str(folder)], only=["[ac].*"])) == ["a.PDF", "sub/c.pdf"]
    with pytest.raises(UsageError, match=r"z\.pdf"):
        find_documents([str(folder)], only=["z.pdf"])


def test_max_samples_takes_the_first(folder):
    assert names(find_documents([str(folder)], max_samples=2)) == ["a.PDF", "b.pdf"]


def test_no_more_is_looked_for_than_is_asked_for(folder):
    """The first document is looked for at once, so that there is something to do; all others one by one."""
    found = find_documents([str(folder / "b.pdf"), str(folder / "c.pdf")], rows=iter([SourceDocument("row", "row")]))
    written(folder / "c.pdf", PDF)  # it would be missing if it had been looked for
    assert [(document.relative, document.reason) for document in found.documents] == [
        ("b.pdf", None),
        ("c.pdf", None),
        ("row", None),
    ]


def manifest(folder, *lines):
    path = folder / "m.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return str(path)


def test_a_manifest_gives_ids_and_pages(folder):
    path = manifest(
        folder,
        {"document_id": "x1", "pdf_path": "b.pdf", "pages": [3, 1, 1]},
        {"id": 7, "pdf_path": "sub/c.pdf", "pages": "2-4,9"},
        "",
        {"pdf_path": str(folder / "a.PDF")},
        {"id": "gone", "pdf_path": "gone.pdf"},
    )
    found = [(d.document_id, d.relative, d.pages, d.reason) for d in find_documents([path]).documents]
    assert found == [
        ("x1", "b.pdf", (1, 3), None),
        ("7", "sub/c.pdf", (2, 3, 4, 9), None),
        (None, "a.PDF", None, None),
        ("gone", "gone.pdf", None, Reason.NOT_FOUND),
    ]


def test_other_pages_of_an_already_named_file_are_not_skipped(folder):
    lines = [{"pdf_path": "b.pdf", "pages": pages} for pages in ([1], [2], [2])]
    assert [document.pages for document in find_documents([manifest(folder, *lines)]).documents] == [(1,), (2,)]


@pytest.mark.parametrize(
    ("line", "sign"),
    [
        ("{", "JSON"),
        ("[1]", "object"),
        ({"id": "a"}, "pdf_path"),
        ({"pdf_path": "b.pdf", "pages": [0]}, "pages"),
        ({"pdf_path": "b.pdf", "pages": "3-x"}, "3-x"),
        ({"pdf_path": "b.pdf", "pages": "3-"}, "no end"),
        ({"pdf_path": "b.pdf", "id": " "}, "empty"),
        ({"pdf_path": "b.pdf", "id": [1]}, "id"),
        ({"pdf_path": "b.pdf", "id": "one"}, "line 1"),
    ],
)
def test_a_bad_manifest_line_is_named(folder, line, sign):
    path = manifest(folder, {"id": "one", "pdf_path": "b.pdf"}, line)
    with pytest.raises(UsageError, match="line 2") as caught:
        names(find_documents([path]))
    assert sign in str(caught.value)


def test_names_that_are_no_text_fail_with_a_reason(tmp_path):
    try:
        (tmp_path / os.fsdecode(b"b\xff.pdf")).write_bytes(PDF)
    except OSError:
        pytest.skip("this file system takes no such names")
    written(tmp_path / "a.pdf", PDF)
    good, bad = find_documents([str(tmp_path)]).documents
    assert (good.reason, bad.reason) == (None, Reason.UNREADABLE)
    bad.source.encode("utf-8")


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
def test_files_come_in_path_order_for_any_size_of_sorted_run(tree, monkeypatch, run):
    monkeypatch.setattr(sources, "RUN", run)
    shown = [path for path in tree.rglob("*") if path.is_file() and "/." not in str(path.relative_to(tree.parent))]
    assert len(shown) == 3 * len(NAMES) * 3
    assert list(files_below(tree)) == sorted(shown)


def test_link_targets_are_listed_once_by_own_name_if_any(tree):
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


def test_folder_listing_retains_no_documents_already_returned(tmp_path):
    for number in range(1000):
        (tmp_path / f"{number:05d}.pdf").touch()
    documents = find_documents([str(tmp_path)]).documents
    next(documents)
    tracemalloc.start()
    try:
        assert sum(1 for _ in islice(documents, 900)) == 900
        ours = tracemalloc.Filter(inclusive=True, filename_pattern="*/llm_ocr/*")  # not Python's table of names
        held = tracemalloc.take_snapshot().filter_traces([ours]).statistics("filename")
        assert sum(one.size for one in held) < 1000 * 60  # bytes; a path alone takes more
    finally:
        tracemalloc.stop()


def documents(count: int, root: str = "/data") -> list[SourceDocument]:
    return [SourceDocument(f"{root}/{number}.pdf", f"{number}.pdf", "pdf") for number in range(count)]


def drawn_names(found) -> list[str]:
    return [document.relative for document in found]


def test_sample_ignores_input_order_and_keeps_document_order():
    ordered = documents(300)
    shuffled = random.Random(2).sample(ordered, 300)
    drawn = drawn_names(sampled(ordered, 40, 7))
    assert len(drawn) == 40
    assert set(drawn) == set(drawn_names(sampled(shuffled, 40, 7)))
    assert drawn == [one.relative for one in ordered if one.relative in set(drawn)]


def test_larger_sample_contains_smaller_and_other_seed_differs():
    every = documents(200)
    small, large = set(drawn_names(sampled(every, 20, 3))), set(drawn_names(sampled(every, 60, 3)))
    assert small < large
    assert small != set(drawn_names(sampled(every, 20, 4)))
    assert drawn_names(sampled(every, 500, 3)) == drawn_names(every)


def test_the_same_folder_elsewhere_gives_the_same_sample():
    assert drawn_names(sampled(documents(100), 10, 0)) == drawn_names(sampled(documents(100, "s3://bucket/x"), 10, 0))


def test_documents_of_one_name_are_drawn_by_their_whole_path():
    alike = [SourceDocument(f"/data/{number}/scan.pdf", "scan.pdf", "pdf") for number in range(100)]
    drawn = [alike.index(one) for one in sampled(alike, 20, 1)]
    assert len(set(drawn)) == 20 and drawn != list(range(20))


def test_every_document_is_as_likely_as_any_other():
    """500 samples of 5 of 20: each document is expected 125 times, with a deviation of 9.7."""
    every = documents(20)
    met = Counter(name for seed in range(500) for name in drawn_names(sampled(every, 5, seed)))
    assert len(met) == 20 and all(75 < count < 175 for count in met.values())


@pytest.mark.parametrize(
    ("text", "total", "pages"),
    [
        ("1-5,9,12-", 14, (1, 2, 3, 4, 5, 9, 12, 13, 14)),
        ("1-5,9,12-", 4, (1, 2, 3, 4)),
        ("-2", 9, (1, 2)),
        (" 3 , 1 - 2,3 ", 9, (1, 2, 3)),
        ("7", 5, ()),
    ],
)
def test_ranges_select_pages_in_order_and_once(text, total, pages):
    assert parse_pages(text).select(total) == pages


@pytest.mark.parametrize(
    ("text", "part"), [("1-5,x", "'x'"), ("0", "'0'"), ("5-2", "'5-2'"), ("1,,2", "''"), ("-", "'-'"), ("", "no page")]
)
def test_the_wrong_part_is_named(text, part):
    with pytest.raises(UsageError, match=part):
        parse_pages(text)


def opened(path) -> int:
    return with_renderer(lambda renderer: renderer.open(str(path)))


def claiming(pages: int) -> bytes:
    """A PDF of one page whose tree says another number."""
    tree = b"<</Type/Pages/Kids[3 0 R]/Count %d>>" % pages
    return pdf(b"<</Type/Catalog/Pages 2 0 R>>", tree, b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]>>")


@pytest.mark.parametrize("pages", [100_000, 1_000_000])
def test_small_file_claiming_many_pages_is_one_failed_document(tmp_path, pages):
    (tmp_path / "mad.pdf").write_bytes(claiming(pages))
    with pytest.raises(PageFailure, match=f"declares {pages:,} pages") as caught:
        opened(tmp_path / "mad.pdf")
    assert caught.value.reason is Reason.UNREADABLE


def counting(kids: bytes, count: int) -> bytes:
    """A PDF with the pages 5 and 7, and 4, a part of its tree that contains the whole tree."""
    data = pages(
        text("First page"), text("Second page, Items/Count 4821"), extra=(b"<</Type/Pages/Kids[2 0 R]/Count 1>>",)
    )
    return data.replace(b"/Kids[5 0 R 7 0 R]/Count 2", b"/Kids[%s]/Count %d" % (kids, count))


def test_pages_beyond_the_count_of_the_page_tree_are_read(tmp_path):
    file = written(tmp_path / "few.pdf", counting(b"5 0 R 7 0 R", 1))
    assert opened(file) == 2
    (drawn,) = rendered(file, 2)
    assert [words for words, _ in drawn.evidence.lines] == ["Second page, Items/Count 4821"]


@pytest.mark.parametrize(
    ("kids", "count", "damaged"),
    [
        (b"5 0 R 4 0 R 7 0 R", 3, True),
        (b"5 0 R 7 0 R 99 0 R", 3, False),  # a page is missing
        (b"5 0 R 5 0 R", 2, False),
    ],
)
def test_pages_of_a_tree_that_contains_itself_are_damaged(tmp_path, kids, count, damaged):
    (drawn,) = rendered(written(tmp_path / "loop.pdf", counting(kids, count)), 1)
    assert ("contains itself" in drawn.damage) is damaged


def test_a_document_that_has_many_pages_is_believed(tmp_path):
    document = pypdfium2.PdfDocument.new()
    for _ in range(1500):
        document.new_page(100, 100)
    document.save(tmp_path / "long.pdf")
    assert opened(tmp_path / "long.pdf") == 1500
