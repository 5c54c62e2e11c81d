"""Ranges from samples: how often the truth lies in them, and what widens them."""

import random
from statistics import fmean

import pytest

from llm_ocr.costs.throughput import mean_span, measured_speed


def test_the_mean_of_all_lies_in_the_range_about_as_often_as_it_says():
    draw = random.Random(1)
    everything = [draw.lognormvariate(6, 0.6) for _ in range(5000)]
    truth, hits = fmean(everything), 0
    for _ in range(400):
        span = mean_span(draw.sample(everything, 40), 40 / 5000, least=0.0)
        hits += span.low <= truth <= span.high
    assert 0.90 <= hits / 400 <= 0.98


def test_a_sample_that_is_everything_leaves_only_the_least():
    assert mean_span([1.0, 3.0], 1.0, least=0.0).high == 2.0
    span = mean_span([1.0, 3.0], 1.0, least=0.1)
    assert (span.low, span.likely, span.high) == pytest.approx((1.8, 2.0, 2.2))


def test_few_values_say_little():
    assert mean_span([], 0.5, least=0.1).high == 0
    one = mean_span([10.0], 0.01, least=0.1)
    assert (one.low, one.high) == (5.0, 20.0)
    assert mean_span([8.0, 12.0], 0.01, least=0.1).high > 30


def test_a_range_never_begins_at_nothing():
    assert mean_span([0.1, 0.1, 50.0], 0.01, least=0.1).low > 0


def test_the_speed_is_that_of_the_middle_and_begin_and_end_are_counted_once():
    # Eight pages at a time, four seconds each; the first ones come after 20 seconds, the last one 10 seconds late.
    ends = [20 + 4 * (1 + number // 8) for number in range(400)] + [20 + 4 * 51 + 10]
    speed = measured_speed(ends, 8, 0.1, least=0.0)
    assert speed.each.likely == pytest.approx(0.5, rel=0.05)
    assert speed.once == pytest.approx(30, abs=4)
    assert speed.each.low <= 0.5 <= speed.each.high


def test_a_short_sample_is_taken_whole():
    speed = measured_speed([4.0] * 8 + [8.0] * 8, 8, 0.1, least=0.1)
    assert speed.each.likely == pytest.approx(0.5) and speed.once == 0
    assert speed.each.low < 0.5 < speed.each.high


def test_two_pages_may_be_half_or_twice_as_fast():
    speed = measured_speed([1.0, 2.0], 8, 0.1, least=0.1)
    assert (speed.each.low, speed.each.likely, speed.each.high) == (0.5, 1.0, 2.0)
