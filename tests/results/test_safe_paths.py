"""Every document gets a name of its own that every store and file system takes."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import ANY_TEXT

from llm_ocr.results.documents import DocumentNames, safe_path

PARTS = st.one_of(
    st.sampled_from(["..", ".", "", "a", "A", "con", "NUL.pdf", "a.pdf", "a.pdf.md", "b. ", "x:y", "é", "e\u0301"]),
    ANY_TEXT,
    st.text("a文.", min_size=150, max_size=400),
)
PATHS = st.lists(PARTS, max_size=6).map("/".join)


@pytest.mark.parametrize(
    ("given_path", "safe"),
    [
        ("reports/a.pdf", "reports/a.pdf"),
        ("../../etc/passwd", "_/_/etc/passwd"),
        ("/absolute//a.pdf", "absolute/a.pdf"),
        ("a:b?.pdf", "a_b_.pdf"),
        ("dir. /trailing. . ", "dir/trailing"),
        ("aux/con.pdf", "_aux/_con.pdf"),
        ("back\\slash.pdf", "back_slash.pdf"),
        ("Prüfung 文书 [v1], final.pdf", "Prüfung 文书 [v1], final.pdf"),
        ("-rf.pdf", "-rf.pdf"),
        ("bidi\u202efdp.exe", "bidi_fdp.exe"),
        ("", "_"),
    ],
)
def test_reserved_names_and_characters_are_replaced(given_path, safe):
    assert safe_path(given_path) == safe


@given(PATHS)
def test_any_path_becomes_one_that_can_be_stored(relative):
    path = safe_path(relative)
    assert safe_path(path) == path
    assert len(f"documents/{path}.figures/".encode()) < 900
    for segment in path.split("/"):
        assert 0 < len(f"{segment}.figures".encode()) <= 255
        assert segment not in (".", "..")
        assert segment == segment.strip(" ").rstrip(".")
        assert not set(segment) & set('<>:"|?*\\\0\n')


def test_long_names_are_cut_keep_their_extension_and_stay_apart():
    one, two = (safe_path(f"{'long ' * 100}{end}.pdf") for end in "ab")
    assert one != two
    assert one.endswith(".pdf")
    assert len(one) <= 180


def names_of(claims):
    """Return the names of documents from different source roots."""
    return DocumentNames.of_plan((number, path, f"/{number}/{path}", "v1") for number, path in claims)


def test_names_that_do_not_clash_stay_plain():
    names = names_of([("1", "a.pdf"), ("2", "sub/a.pdf"), ("1", "a.pdf")])
    assert not names.renamed
    assert names.of("2", "sub/a.pdf") == "sub/a.pdf"


def test_the_later_one_gets_its_id_also_where_only_case_differs():
    names = names_of([("1", "a.pdf"), ("2", "A.PDF"), ("3", "b:.pdf"), ("4", "b?.pdf"), ("5", "a.pdf")])
    claims = [("1", "a.pdf"), ("2", "A.PDF"), ("3", "b:.pdf"), ("4", "b?.pdf"), ("5", "a.pdf")]
    assert [names.of(*claim) for claim in claims] == ["a.pdf", "A-2.PDF", "b_.pdf", "b_-4.pdf", "a-5.pdf"]


def test_newest_version_of_a_file_owns_its_name():
    versions = [(number, "a.pdf", "/in/a.pdf", f"v{number}") for number in "123"]
    names = DocumentNames.of_plan([versions[0], *versions, versions[0]])
    assert [names.of(number, "a.pdf") for number in "123"] == ["a-1.pdf", "a-2.pdf", "a.pdf"]


def test_two_documents_of_one_file_keep_their_names():
    names = DocumentNames.of_plan([(number, "a.pdf", "/in/a.pdf", "v1") for number in "12"])
    assert [names.of(number, "a.pdf") for number in "12"] == ["a.pdf", "a-2.pdf"]


def test_a_document_never_stands_where_a_folder_must():
    claims = [("1", "a.pdf"), ("2", "a.pdf.md/x.pdf"), ("3", "b.pdf.md/x.pdf"), ("4", "b.pdf")]
    names = names_of(claims)
    assert [names.of(*claim) for claim in claims] == ["a.pdf", "_2/x.pdf", "b.pdf.md/x.pdf", "b-4.pdf"]


@given(st.lists(st.tuples(st.sampled_from("12345"), PATHS), max_size=12), st.integers(0, 12))
def test_names_differ_and_later_generations_change_none(claims, first):
    names = names_of(claims)
    taken = {claim: names.of(*claim) for claim in claims}
    folded = {unicodedata.normalize("NFC", name.casefold()) for name in taken.values()}
    cleaned = {
        (document, path.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")) for document, path in taken
    }
    assert len(folded) == len(cleaned)
    earlier = names_of(claims[:first])
    assert all(earlier.of(*claim) == taken[claim] for claim in claims[:first])
