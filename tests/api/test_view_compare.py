"""Two workspaces side by side."""

from dataclasses import replace
from pathlib import Path

import pytest
from view_workspaces import Wanted, make, text
from viewer_browser import Browser

import llm_ocr
from llm_ocr.types import Reason, Status


def first(name: str, number: int) -> Wanted:
    return text(f"The level of page {number} is 187 cm and it rises.", "The same words in both.")


def second(name: str, number: int) -> Wanted:
    if name == "same.pdf":
        return first(name, number)
    if name == "a.pdf" and number == 2:
        return Wanted(status=Status.FAILED, reason=Reason.EMPTY)
    return replace(text(f"The level of page {number} is 137 cm and it rises.", "The same words in both."), quality=0.5)


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> Path:
    """The same names, by other ids: documents meet by their paths."""
    folder = tmp_path_factory.mktemp("compare")
    one = make(str(folder / "one"), {"a.pdf": 2, "same.pdf": 1, "gone.pdf": 1}, first)
    other = make(str(folder / "other"), {"new.pdf": 1, "same.pdf": 1, "a.pdf": 2}, second, ids="id of ")
    return llm_ocr.view(workspace=one, compare=other, output=folder / "site").index


@pytest.fixture
def home(browser, compared) -> Browser:
    browser.size(1400, 900)
    browser.open(compared.as_uri())
    return browser


def test_pages_meet_by_document_and_number_and_stand_in_the_order_of_likeness(home):
    rows = [" ".join(one.split()) for one in home.texts("#rows .row")]
    assert sorted(rows[:2]) == [row for row in sorted(rows) if "only in" in row]
    assert {row.split()[0] for row in rows[:2]} == {"gone.pdf", "new.pdf"}
    assert [row.split()[0] + row.split()[2] for row in rows[2:]] == ["a.pdf2", "a.pdf1", "same.pdf1"]
    assert rows[-1].endswith("100")
    assert "there failed" in rows[2]


def test_words_that_differ_are_marked_on_both_sides(home):
    home.run("document.querySelectorAll('.row')[3].click()")
    home.wait("document.querySelector('.panes.of-2')")
    assert home.texts(".text.pane > h2") == ["one", "other"]
    assert [one.split() for one in home.texts("article mark")] == [["187"], ["137"]]
    home.press("n")
    home.press("n")
    assert home.texts("mark.here") == ["137"]
    assert "93.8 % of words equal" in home.texts(".page-bar")[0]
    assert home.log == []


def test_pages_that_only_one_has_can_be_listed(home):
    home.go("side=second")
    home.wait("document.querySelector('#found').textContent.startsWith('1 of 5')")
    home.run("document.querySelector('.row').click()")
    home.wait("document.querySelector('.panes.of-2')")
    assert home.texts(".text.pane .message") == ["This workspace does not have the page."]
    home.go("below=95&side=both")
    home.wait("document.querySelector('#found')?.textContent.startsWith('2 of 5')")


def test_a_page_image_that_both_have_is_kept_once(compared):
    images = sorted(path.name for path in compared.parent.glob("site-*/images/0/*"))
    assert images == ["0.png", "1.png", "2.png", "3.png", "4-b.png"]


def test_words_of_both_readings_are_found(home):
    for word in ("187", "137"):
        home.go(f"q={word}")
        home.wait("/^[1-9] of 5/.test(document.querySelector('#found').textContent)")
        assert any("a.pdf" in row for row in home.texts("#rows .row"))
