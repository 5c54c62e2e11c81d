"""Words that differ, terms that are searched for, and the index that holds them."""

import json
import random
import sqlite3
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from llm_ocr.viewer.comparing import compare, equal_words
from llm_ocr.viewer.index import DataFiles, SearchIndex, terms, visible_text

WORDS = st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), max_size=30)


@given(WORDS, WORDS)
def test_equal_words_are_equal_and_ascend_on_both_sides(left, right):
    pairs = equal_words(left, right)
    assert all(left[one] == right[other] for one, other in pairs)
    assert all(one < two and other < another for (one, other), (two, another) in pairwise(pairs))


@given(WORDS)
def test_a_text_equals_itself(words):
    assert len(equal_words(words, words)) == len(words)


def test_a_few_changes_of_a_long_page_are_found_among_words_that_recur():
    chance = random.Random(1)
    words = [str(chance.randrange(300)) for _ in range(20_000)]
    other = list(words)
    for place in chance.sample(range(len(words)), 200):
        other[place] = "changed"
    assert len(equal_words(words, other)) >= 19_500


def test_differences_are_marked_within_tags_and_a_formula_is_one_word():
    left = '<p data-b="1">The <b>level is</b> 187</p><div data-b="2" class="math">a+b</div>'
    right = '<p>The <b>mark was</b> 187</p><div class="math">a+b</div>'
    done = compare(left, right)
    assert done.left == left.replace("level is", "<mark>level is</mark>")
    assert done.right == right.replace("mark was", "<mark>mark was</mark>")
    assert done.share == 6 / 10
    other = compare('<div class="math">a+b</div>', '<div class="math">a-b</div>')
    assert other.left == '<mark><div class="math">a+b</div></mark>'
    assert compare("", "").share == 1


def test_text_without_spaces_differs_by_characters():
    assert compare("<p>文書管理</p>", "<p>文書修理</p>").left == "<p>文書<mark>管</mark>理</p>"


def test_visible_text_reads_as_the_page_does():
    assert visible_text("<h1>A</h1><p>x <b>bo</b>ld &lt;y&gt;</p><table><tr><td>1</td><td>2</td></tr></table>") == (
        "A x bold <y> 1 2"
    )


def test_terms_are_words_without_accents_and_pairs_where_no_spaces_are():
    assert list(terms("Café, NAÏVE x_1 文書管理")) == ["cafe", "naive", "x", "1", "文書", "書管", "管理"]


def test_the_index_finds_every_page_of_every_term_in_files_of_bounded_size(tmp_path, monkeypatch):
    monkeypatch.setattr("llm_ocr.viewer.index._HELD", 50)
    monkeypatch.setattr("llm_ocr.viewer.index._FILE", 200)
    index = SearchIndex(sqlite3.connect(":memory:"))
    texts = [f"common word{page % 7} only{page}" for page in range(100)]
    for page, text in enumerate(texts):
        index.add(page, text)
    index.add(3, "late")
    count, directories = index.write(DataFiles(tmp_path))
    assert count > 5
    assert directories == 1
    found: dict[str, list[int]] = {}
    firsts = []
    for number in range(count):
        entries = json.loads((tmp_path / f"terms/{number}.js").read_text().partition(",")[2].rstrip(");\n"))
        firsts.append(entries[0][0])
        for term, steps in entries:
            found[term] = [sum(steps[: at + 1]) for at in range(len(steps))]
    assert firsts == sorted(firsts)
    assert firsts == json.loads((tmp_path / "directory/0.js").read_text().partition(",")[2].rstrip(");\n"))
    assert found["common"] == list(range(100))
    assert found["only42"] == [42]
    assert found["late"] == [3]
    assert found["word3"] == [page for page in range(100) if page % 7 == 3]
