"""The oracle and the presets: ceilings that follow from data sheets, and a makespan that is the best."""

import math
import random

import pytest

from llm_ocr.simulator.engine import A100, H100, L4, PRESETS, EngineModel, Limits, Work, ends, makespan


def pages(number, seed=0):
    rng = random.Random(seed)
    return [Work(914, max(2, round(rng.lognormvariate(6.78, 0.5)))) for _ in range(number)]


def test_step_times_follow_from_the_data_sheets():
    costs = A100.costs()
    assert costs.step == pytest.approx(5.5e9 / (0.8 * 1555e9))
    assert costs.context == pytest.approx(61_440 / (0.8 * 1555e9))
    assert costs.image == pytest.approx(3.35e12 / (0.4 * 312e12))
    assert costs.preprocess == pytest.approx(1 / 14)
    assert all(preset.kv_tokens % 16 == 0 for preset in PRESETS.values())


def test_faster_cards_are_faster_and_all_stay_under_their_ceilings():
    rates = {preset.name: 400 / makespan(pages(400), preset, 256) for preset in (L4, A100, H100)}
    assert rates["l4"] < rates["a100"] < rates["h100"]
    # Ceilings for large pages; and one API server prepares 14 images a second, whatever the card.
    assert rates["l4"] < 1.5
    assert rates["a100"] < 8.2
    assert rates["h100"] < 14


def test_more_slots_and_more_speed_shorten_the_makespan():
    work = pages(200)
    assert makespan(work, A100, 128) < makespan(work, A100, 32)
    assert makespan(work, A100, 128, speed=10) == pytest.approx(makespan(work, A100, 128) / 10)
    assert makespan([], A100, 128) == 0


def test_no_window_of_requests_beats_the_oracle():
    work, costs, limits = pages(100), A100.costs(), Limits(16, A100.kv_tokens // 16)
    best = max(ends(work, costs, limits))
    for window in (4, 16, 24):
        model, left, running, now = EngineModel(costs, limits), list(work), set(), 0.0
        while left or running:
            while left and len(running) < window:
                one = left.pop(0)
                running.add(model.submit(now, one.prompt, one.output, one.images))
            now = max(now, model.next_event() or now)
            running.difference_update(model.advance(now))
        assert now >= best * 0.98 or math.isclose(now, best)
        if window == 24:
            assert now < best * 1.05
