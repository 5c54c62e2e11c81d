"""How many commits are made in an hour."""

import pytest

from llm_ocr.storage.hf.commits import RATE, Rate, RateLimiter


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands until it is set."""
    now = [1000.0]
    monkeypatch.setattr("llm_ocr.storage.hf.commits.time.monotonic", lambda: now[0])
    return now


def commits_in_an_hour(pace: RateLimiter, clock: list[float]) -> int:
    """As many as the pace allows, one when it is due."""
    made, end = 0, clock[0] + 3600
    while True:
        clock[0] += pace.due_in()
        if clock[0] >= end:
            return made
        pace.spend()
        made += 1


@pytest.mark.parametrize("workers", [1, 2, 5, 18])
def test_all_workers_together_make_less_than_a_hundred_commits_in_any_hour(clock, workers):
    pace = RateLimiter(RATE)
    pace.share(workers)
    assert 70 <= workers * commits_in_an_hour(pace, clock) < 100
    assert 70 <= workers * commits_in_an_hour(pace, clock) < 100
    clock[0] += 24 * 3600
    assert 70 <= workers * commits_in_an_hour(pace, clock) < 100


def test_a_small_run_does_not_wait(clock):
    pace = RateLimiter(RATE)
    for _ in range(15):
        assert pace.due_in() == 0
        pace.spend()


def test_a_commit_out_of_turn_is_made_up_for(clock):
    pace = RateLimiter(Rate(per_hour=60, at_once=1))
    for _ in range(3):
        pace.spend()
    assert pace.due_in() == pytest.approx(180)
    clock[0] += 180
    assert pace.due_in() == pytest.approx(0, abs=1e-6)
