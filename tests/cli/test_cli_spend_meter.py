"""What a stage costs while it runs, in the words of the progress line."""

import io

import pytest

from llm_ocr.cli.progress import PlainProgress, SpendMeter
from llm_ocr.types import Counts, Status


@pytest.mark.parametrize(
    ("spent", "ended", "expected", "words"),
    [
        (1.0, 0, 10, "$1.00"),
        (1.5, 5, 10, "$1.50 of about $2.00"),
        (1.0, 5, 10, "$1.00 of about $1.00"),
        (1.001, 1, 4, "$1.00 of about $1.00"),
        (1234.5, 1, 1, "$1,234.50 of about $1,234.50"),
    ],
)
def test_what_a_stage_will_cost_is_what_its_pages_have_cost_on_top_of_what_was_spent_before(
    spent, ended, expected, words
):
    now = [1.0]
    meter = SpendMeter(lambda: now[0])
    now[0] = spent
    assert meter.words(ended, expected) == words


def test_less_than_a_cent_has_more_digits():
    now = [0.0]
    meter = SpendMeter(lambda: now[0])
    now[0] = 0.0012
    assert meter.words(1, 2) == "$0.0012 of about $0.0024"


def test_pages_of_earlier_runs_are_not_paid_again():
    moment, now, out = [0.0], [5.0], io.StringIO()
    progress = PlainProgress(out, clock=lambda: moment[0])
    progress.price(lambda: now[0])
    progress.begin("extract", 100, Counts(ok=90))
    moment[0], now[0] = 20.0, 5.5
    progress.count(Status.OK)
    assert "91/100 pages" in out.getvalue() and "$5.50 of about $10.00" in out.getvalue()
