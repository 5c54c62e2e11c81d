"""A sample is drawn evenly, and is the same for the same seed."""

import random
from collections import Counter

from llm_ocr.documents.sources import SourceDocument, sampled


def documents(count: int, root: str = "/data") -> list[SourceDocument]:
    return [SourceDocument(f"{root}/{number}.pdf", f"{number}.pdf", "pdf") for number in range(count)]


def names(found) -> list[str]:
    return [document.relative for document in found]


def test_the_sample_is_the_same_in_any_order_and_keeps_the_order_of_the_documents():
    ordered = documents(300)
    shuffled = random.Random(2).sample(ordered, 300)
    drawn = names(sampled(ordered, 40, 7))
    assert len(drawn) == 40
    assert set(drawn) == set(names(sampled(shuffled, 40, 7)))
    assert drawn == [one.relative for one in ordered if one.relative in set(drawn)]


def test_a_larger_sample_holds_the_smaller_one_and_another_seed_draws_another():
    every = documents(200)
    small, large = set(names(sampled(every, 20, 3))), set(names(sampled(every, 60, 3)))
    assert small < large
    assert small != set(names(sampled(every, 20, 4)))
    assert names(sampled(every, 500, 3)) == names(every)


def test_the_same_folder_elsewhere_gives_the_same_sample():
    assert names(sampled(documents(100), 10, 0)) == names(sampled(documents(100, "s3://bucket/x"), 10, 0))


def test_documents_of_one_name_are_drawn_by_their_whole_path():
    alike = [SourceDocument(f"/data/{number}/scan.pdf", "scan.pdf", "pdf") for number in range(100)]
    drawn = [alike.index(one) for one in sampled(alike, 20, 1)]
    assert len(set(drawn)) == 20 and drawn != list(range(20))


def test_every_document_is_as_likely_as_any_other():
    """500 samples of 5 of 20: each document is expected 125 times, with a deviation of 9.7."""
    every = documents(20)
    met = Counter(name for seed in range(500) for name in names(sampled(every, 5, seed)))
    assert len(met) == 20 and all(75 < count < 175 for count in met.values())
