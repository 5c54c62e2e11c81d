"""The report's time axis shows every page and omits pauses."""

import pytest

from llm_ocr.workspace.metrics import Sample, Series
from llm_ocr_outputs.report.timeline import levels, rates, timeline


def _series(began, *counts, seconds=10.0, **gauges):
    return Series("w", "extract", began=began, samples=tuple(Sample(seconds, ok=ok, **gauges) for ok in counts))


def test_every_page_is_in_the_bins():
    found = [_series(1000.0, 3, 0, 8), _series(1003.7, 5, 5), _series(90_000.0, 2)]
    line = timeline(found)
    assert sum(rates(line, found, lambda one: one.items)) * line.width == pytest.approx(23)


def test_pauses_are_omitted_and_marked():
    found = [_series(1000.0, 1, 1), _series(8200.0, 1)]
    line = timeline(found)
    assert line.seconds == pytest.approx(30.0)
    assert line.pauses == ((20.0, 7180.0),)
    assert line.at(8205.0) == pytest.approx(25.0)
    assert line.at(0.0) == 0.0


def test_short_gaps_are_kept():
    line = timeline([_series(1000.0, 1), _series(1030.0, 1)])
    assert line.seconds == pytest.approx(40.0)
    assert line.pauses == ()


def test_gauges_of_workers_at_the_same_time_are_added():
    found = [_series(0.0, 1, 1, in_flight=4.0), _series(0.0, 1, 1, in_flight=6.0), _series(0.0, 1, 1)]
    line = timeline(found)
    assert levels(line, found, lambda one: one.in_flight) == pytest.approx([10.0, 10.0])


def test_without_a_sample_there_is_no_line():
    assert timeline([]) is None
    assert timeline([Series("w", "extract")]) is None
