"""The router: pages that a model would read better, told from the stored row alone."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_ocr.results.quality import CONFIDENT
from llm_ocr.results.routing import THRESHOLD, WEIGHTS, evidence, gain_probability
from llm_ocr.types import Block, BlockKind, Box, Ledger, PageRecord, Reason, Status

CLEAN = PageRecord(
    page_id="0123456789abcdef-p00001",
    document_id="0123456789abcdef",
    source="/in/a.pdf",
    page_number=1,
    dataset_index=0,
    status=Status.OK,
    engine="embedded",
    text_source="text-layer",
    blocks=(Block(BlockKind.TEXT, Box(0.1, 0.1, 0.9, 0.9), "A paragraph."),),
    quality=1.0,
    quality_parts={"read": 1.0, "supported": 1.0},
    ledger=Ledger(0.05, verified_by="layer"),
)
SCAN = replace(CLEAN, text_source="ocr", quality=0.6, quality_parts={CONFIDENT: 0.93}, ledger=Ledger(0.06, 0.01))
SHARES = st.floats(0, 1)


def test_clean_digital_text_stays_with_the_cpu_engine():
    assert gain_probability(CLEAN) < THRESHOLD


def test_a_failed_page_always_goes_to_the_model():
    assert gain_probability(replace(CLEAN, status=Status.FAILED, reason=Reason.ENGINE_ERROR, blocks=())) == 1


@pytest.mark.parametrize("reason", [Reason.SCRIPT_NOT_SUPPORTED, Reason.EMPTY])
def test_a_page_that_was_not_read_goes_to_the_model(reason):
    assert gain_probability(replace(SCAN, status=Status.DEGRADED, reason=reason)) == 1


def test_a_blank_page_never_goes_to_the_model():
    blank = replace(CLEAN, blocks=(), blank=True, ledger=Ledger(0))
    assert gain_probability(blank) == 0
    assert gain_probability(replace(blank, ledger=Ledger(0.03))) > 0
    assert gain_probability(replace(blank, ledger=None)) > 0


def test_a_row_of_an_older_version_has_a_probability():
    assert 0 < gain_probability(replace(CLEAN, quality=None, quality_parts={}, ledger=None)) < THRESHOLD


@given(SHARES, SHARES, SHARES, SHARES)
def test_more_unread_or_unsupported_never_lowers_it(unread, more_unread, unsupported, more_unsupported):
    for row in (CLEAN, SCAN):
        less, more = (
            replace(row, ledger=Ledger(0.05, choose(unread, more_unread), choose(unsupported, more_unsupported)))
            for choose in (min, max)
        )
        assert gain_probability(less) <= gain_probability(more)


@given(SHARES, SHARES)
def test_less_quality_or_confidence_never_lowers_it(share, other):
    better, worse = (
        replace(SCAN, quality=choose(share, other), quality_parts={CONFIDENT: choose(share, other)})
        for choose in (max, min)
    )
    assert gain_probability(better) <= gain_probability(worse)


def test_formulas_and_tables_of_scans_raise_it():
    formula = Block(BlockKind.FIGURE, Box(0.3, 0.4, 0.7, 0.5), label="formula")
    table = Block(BlockKind.TABLE, Box(0.1, 0.2, 0.9, 0.6), "|a|b|\n|-|-|\n|1|2|")
    for block in (formula, table):
        assert gain_probability(replace(SCAN, blocks=(*SCAN.blocks, block))) > gain_probability(SCAN)


def test_a_fault_of_the_picture_itself_does_not_raise_it():
    damaged = replace(CLEAN, status=Status.DEGRADED, reason=Reason.UNREADABLE)
    assert gain_probability(damaged) == gain_probability(CLEAN)


def test_every_evidence_has_a_weight_and_is_a_share():
    found = evidence(SCAN)
    assert set(found) == set(WEIGHTS)
    assert all(0 <= value <= 1 for value in found.values())
    assert min(WEIGHTS.values()) >= 0
