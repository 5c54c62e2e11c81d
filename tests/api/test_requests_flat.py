"""What is asked of a store for a unit does not depend on how many units there are; nor do its files."""

from collections import Counter
from pathlib import Path

import pytest
from pdf_writing import pdf, stream

import llm_ocr
from llm_ocr.stages import sharing
from llm_ocr.storage import opening, register_store
from llm_ocr_simulator import running
from tests.fakes.memory_store import MemoryStore

SIZES = (4, 12, 28)


def document(number: int) -> bytes:
    """A PDF of one page with a line of text."""
    text = f"BT /F1 14 Tf 12 120 Td (document {number}) Tj ET".encode()
    return pdf(
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Count 1/Kids[3 0 R]>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 90 120]/Resources<</Font<</F1 5 0 R>>>>/Contents 4 0 R>>",
        stream(text),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    )


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """By the number of units: requests of each stage, and how many objects stand in the store at the end."""
    found, before = {}, dict(opening._USERS)
    patch = pytest.MonkeyPatch()
    patch.setattr(sharing, "LEAST", 1)  # markers are copied in small plans as well
    try:
        with running(speed=1000, mean_tokens=600, preprocess_seconds=0) as server:
            for size in SIZES:
                folder = tmp_path_factory.mktemp(f"units-{size}")
                for number in range(size):
                    Path(folder, f"{number:03d}.pdf").write_bytes(document(number))
                store = MemoryStore()
                register_store(f"counted{size}", lambda url, options, store=store: store)
                found[size] = stages(folder, f"counted{size}://store", server.url, store)
    finally:
        patch.undo()
        opening._USERS.clear()
        opening._USERS.update(before)
    return found


def stages(folder, workspace, url, store):
    requests = {}
    read = {"workspace": workspace, "server_url": [url], "fallback": "none"}
    small = {"image_size": 64, "render_workers": 1, "pages_per_unit": 1}
    for name, stage in (
        ("extract", lambda: llm_ocr.extract(str(folder), **read, **small)),
        ("describe", lambda: llm_ocr.describe(workspace=workspace, server_url=[url])),
        ("assemble", lambda: llm_ocr.assemble(workspace=workspace)),
    ):
        store.calls.clear()
        stage()
        requests[name] = Counter(store.calls)
        store.calls.clear()
        stage()
        requests[f"{name} again"] = Counter(store.calls)
    return requests, sum(1 for _ in store.list(""))


@pytest.mark.parametrize(("stage", "most"), [("extract", 6.0), ("describe", 9.0), ("assemble", 17.0)])
def test_requests_per_unit_do_not_grow_with_the_number_of_units(asked, stage, most):
    few, some, many = (asked[size][0][stage].total() for size in SIZES)
    early, late = (some - few) / (SIZES[1] - SIZES[0]), (many - some) / (SIZES[2] - SIZES[1])
    assert late <= early + 0.5  # how many figures a page has is not the same for all
    assert late <= most + 0.2


def test_nothing_to_do_costs_the_same_for_any_number_of_units(asked):
    for stage in ("extract", "describe", "assemble"):
        assert {asked[size][0][f"{stage} again"].total() for size in SIZES} == {asked[4][0][f"{stage} again"].total()}


def test_listings_do_not_become_more_with_the_units(asked):
    for stage in ("extract", "describe", "assemble"):
        assert {asked[size][0][stage]["list"] for size in SIZES} == {asked[SIZES[0]][0][stage]["list"]}


def test_each_unit_is_leased_once_however_quickly_it_is_done(asked):
    for size in SIZES:
        for stage in ("extract", "describe", "assemble"):
            requests = asked[size][0][stage]
            assert requests["stat"] == size  # whether the unit was done before its lease came


def test_a_page_leaves_the_same_number_of_objects(asked):
    few, some, many = (asked[size][1] for size in SIZES)
    assert (many - some) / (SIZES[2] - SIZES[1]) == pytest.approx((some - few) / (SIZES[1] - SIZES[0]), abs=0.5)
