"""The engine model gives the times of a plain step-by-step loop, and keeps its books when requests come and go."""

import math
import random
from dataclasses import replace

import pytest
import step_loop
from hypothesis import given
from hypothesis import strategies as st

from llm_ocr_simulator.engine import (
    A100,
    H100,
    H200,
    L4,
    PRESETS,
    Costs,
    EngineModel,
    Limits,
    Place,
    ends,
)

COSTS = Costs(step=4.4e-3, context=49.4e-9, token=9.2e-6, image=26.8e-3, preprocess=1 / 14)


def random_costs(rng):
    return Costs(
        step=rng.uniform(1e-3, 2e-2),
        context=rng.choice((0.0, rng.uniform(0, 1e-4))),
        token=rng.choice((0.0, rng.uniform(0, 5e-3))),
        image=rng.choice((0.0, rng.uniform(0, 5e-2))),
        preprocess=rng.choice((0.0, rng.uniform(0, 1e-1))),
        engine_step=rng.choice((0.0, rng.uniform(0, 3e-2))),
        engine_token=rng.choice((0.0, rng.uniform(0, 5e-3))),
        engine_image=rng.choice((0.0, rng.uniform(0, 1e-1))),
    )


def random_load(seed):
    """Costs, limits and (arrival, prompt, output, images): some roomy, some short of blocks or budget."""
    rng = random.Random(seed)
    number = rng.randint(1, 14)
    span = rng.choice((0.0, 0.3, 3.0))
    arrivals = sorted(rng.uniform(0, span) for _ in range(number))
    prompts = [rng.randint(1, rng.choice((10, 90))) for _ in range(number)]
    outputs = [rng.randint(1, rng.choice((3, 40, 120))) for _ in range(number)]
    size = rng.choice((1, 4, 16))
    slots = rng.randint(1, 8)
    least = max(-(-(prompt + output) // size) for prompt, output in zip(prompts, outputs, strict=True))
    limits = Limits(
        slots,
        least + rng.choice((0, 1, 5, 1000)),
        slots + rng.choice((0, 3, 30, 500)),
        size,
        rng.choice((1, 2)),
        rng.choice((1, 3)),
    )
    return (
        random_costs(rng),
        limits,
        [
            (arrival, prompt, output, rng.choice((0, 1, 1, 1)))
            for arrival, prompt, output in zip(arrivals, prompts, outputs, strict=True)
        ],
    )


def plain_times(costs, limits, load):
    requests = step_loop.run([step_loop.Request(*one) for one in load], costs, limits)
    return [(one.admitted, one.first, one.end, one.preempted) for one in requests]


def times(sequences):
    return [(one.admitted, one.first, one.end, one.preemptions) for one in sequences]


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, abs=1e-6)


@given(st.integers(0, 2**32))
def test_the_jumping_model_agrees_with_a_plain_step_loop(seed):
    costs, limits, load = random_load(seed)
    model = EngineModel(costs, limits)
    sequences = [model.submit(*one) for one in load]
    ended = model.advance(math.inf)
    assert_same(times(sequences), plain_times(costs, limits, load))
    assert [one.end for one in ended] == sorted(one.end for one in ended)
    assert (model.free, model.next_event(), model.running, model.waiting) == (limits.blocks, None, 0, 0)
    assert model.generated == sum(output for _, _, output, _ in load)


@given(st.integers(0, 2**32))
def test_a_running_clock_gives_the_same_times_as_a_jumping_one(seed):
    costs, limits, load = random_load(seed)
    rng = random.Random(seed + 1)
    model = EngineModel(costs, limits)
    sequences, ended, now = [], [], 0.0
    for arrival, prompt, output, images in load:
        while now + 0.02 < arrival:
            now += rng.uniform(0, 0.02)
            ended += model.advance(now)
        if arrival > now:
            now = arrival
            ended += model.advance(now)
        sequences.append(model.submit(now, prompt, output, images))
    while (event := model.next_event()) is not None:
        now = max(now, rng.choice((event, now + rng.uniform(0, 0.02))))
        ended += model.advance(now)
    assert len(ended) == len(load)
    assert_same(times(sequences), plain_times(costs, limits, load))


@given(st.integers(0, 2**32))
def test_aborted_requests_leave_nothing_behind(seed):
    costs, limits, load = random_load(seed)
    rng = random.Random(seed)
    model = EngineModel(costs, limits)
    sequences, now = [model.submit(0.0, *one[1:]) for one in load], 0.0
    doomed = rng.sample(sequences, rng.randint(1, len(sequences)))
    for sequence in doomed:
        now += rng.uniform(0, 0.2)
        model.advance(now)
        model.abort(sequence)
    model.advance(math.inf)
    assert (model.free, model.next_event(), model.running, model.waiting) == (limits.blocks, None, 0, 0)
    assert all(sequence.place is Place.ENDED for sequence in sequences)
    assert all(sequence.end is not None for sequence in sequences if sequence not in doomed)


def test_a_full_batch_of_long_answers_takes_few_operations():
    model = EngineModel(COSTS, Limits(128, 25_712))
    calls = 0

    class Counted(Costs):
        def on_gpu(self, *args):
            nonlocal calls
            calls += 1
            return super().on_gpu(*args)

        def decode_steps(self, *args):
            nonlocal calls
            calls += 1
            return super().decode_steps(*args)

    model.costs = Counted(4.4e-3, 49.4e-9, 9.2e-6, 26.8e-3, 0.0)
    for number in range(128):
        model.submit(0.0, 914, 1000 + number % 7)
    assert len(model.advance(math.inf)) == 128
    assert calls < 300


def test_requests_that_can_never_fit_are_refused():
    model = EngineModel(COSTS, Limits(4, 10))
    with pytest.raises(ValueError, match="do not fit"):
        model.submit(0.0, 100, 100)
    with pytest.raises(ValueError, match="at least one"):
        model.submit(0.0, 0, 1)
    with pytest.raises(ValueError, match="max_num_batched_tokens"):
        Limits(128, 10, 64)
    with pytest.raises(ValueError, match="renderer_num_workers"):
        Limits(4, 10, renderer_num_workers=0)


def test_preprocessing_is_one_image_at_a_time_ahead_of_the_queue():
    model = EngineModel(COSTS, Limits(128, 25_712))
    sequences = [model.submit(0.0, 900, 2) for _ in range(28)]
    assert [one.queued for one in sequences] == pytest.approx([(1 + number) / 14 for number in range(28)])
    model.advance(1.0)
    assert model.running + model.waiting == len([one for one in sequences if one.queued <= 1.0 and one.end is None])


def test_intake_has_a_thread_per_worker_and_api_server():
    limits = Limits(128, 25_712, api_server_count=2, renderer_num_workers=3)
    model = EngineModel(COSTS, limits)
    sequences = [model.submit(0.0, 900, 2) for _ in range(12)]
    assert [one.queued for one in sequences] == pytest.approx([1 / 14] * 6 + [2 / 14] * 6)
    model.advance(0.5 / 14)
    assert (model.running, model.waiting) == (0, 0)  # images in preparation are in neither gauge


def test_a_step_lasts_as_long_as_the_slower_of_gpu_and_core():
    gpu = Costs(0.01, 0, 0, 0, 0)
    for core, seconds in ((0.004, 0.01), (0.02, 0.02)):
        model = EngineModel(replace(gpu, engine_step=core / 2, engine_token=core / 4), Limits(2, 100))
        for _ in range(2):
            model.submit(0.0, 16, 100, 0)
        model.advance(math.inf)
        assert model.time == pytest.approx(100 * seconds)
        assert model.gpu_busy == pytest.approx(0.01 / seconds)
        assert model.core_busy == pytest.approx(core / seconds)


def h200(costs, engines=1, pages=192, **limits):
    """Read the pages of the measured run; return tokens per second, and the busy shares of GPU and core."""
    model = EngineModel(costs.sharing(engines), Limits(64, H200.kv_tokens // 16 // engines, **limits))
    for _ in range(pages // engines):
        model.submit(0.0, 906, 1000)
    model.advance(math.inf)
    return engines * model.generated / model.time, model.gpu_busy, model.core_busy


def test_the_h200_preset_reproduces_the_measured_run():
    tokens, gpu, core = h200(H200.costs())
    assert tokens == pytest.approx(4525, rel=0.1)
    assert gpu == pytest.approx(0.38, abs=0.04)
    assert core > 0.95
    steady, _, _ = h200(H200.costs(), pages=2000)
    assert steady == pytest.approx(5052, rel=0.1)


def test_two_engines_fill_a_gpu_that_one_core_left_idle():
    costs = H200.costs()
    alone, gpu_alone, _ = h200(costs)
    both, gpu_both, _ = h200(costs, engines=2)
    assert both > 1.5 * alone
    assert gpu_both > 1.5 * gpu_alone
    # No number of engines makes the GPU itself faster.
    many, gpu_many, _ = h200(costs, engines=8, pages=1920)
    assert many == pytest.approx(h200(costs, engines=4, pages=1920)[0], rel=0.1)
    assert 0.9 < gpu_many <= 1


def test_gauges_count_who_runs_and_who_waits():
    model = EngineModel(Costs(0.01, 0, 0, 0, 0), Limits(2, 100))
    sequences = [model.submit(0.0, 16, 100) for _ in range(5)]
    model.advance(0.5)
    assert (model.running, model.waiting) == (2, 3)
    assert [model.made(one) for one in sequences] == [50, 50, 0, 0, 0]
    assert model.kv_usage == pytest.approx(2 * 5 / 100)
    model.abort(sequences[0])
    model.advance(0.52)
    assert (model.running, model.waiting) == (2, 2)


def pages(number, seed=0):
    rng = random.Random(seed)
    return [(914, max(2, round(rng.lognormvariate(6.78, 0.5))), 1) for _ in range(number)]


def test_step_times_follow_from_the_data_sheets():
    costs = A100.costs()
    assert costs.step == pytest.approx(5.5e9 / (0.8 * 1555e9))
    assert costs.context == pytest.approx(61_440 / (0.8 * 1555e9))
    assert costs.image == pytest.approx(3.35e12 / (0.4 * 312e12))
    assert costs.preprocess == pytest.approx(1 / 14)
    assert costs.on_core(128, 128) == 0
    assert all(preset.kv_tokens % 16 == 0 for preset in PRESETS.values())


def seconds_of(number, preset, slots, speed=1.0):
    """How long the preset takes for so many pages."""
    return max(ends(pages(number), preset.costs().faster(speed), Limits(slots, preset.kv_tokens // 16)))


def test_faster_cards_read_faster_and_stay_under_their_ceilings():
    rates = {preset.name: 400 / seconds_of(400, preset, 256) for preset in (L4, A100, H100)}
    assert rates["l4"] < rates["a100"] < rates["h100"]
    # Ceilings for large pages; and one API server prepares 14 images a second, whatever the card.
    assert rates["l4"] < 1.5
    assert rates["a100"] < 8.2
    assert rates["h100"] < 14


def test_more_slots_and_more_speed_shorten_the_run():
    assert seconds_of(200, A100, 128) < seconds_of(200, A100, 32)
    assert seconds_of(200, A100, 128, speed=10) == pytest.approx(seconds_of(200, A100, 128) / 10)


def test_no_window_of_requests_beats_the_oracle():
    work, costs, limits = pages(100), A100.costs(), Limits(16, A100.kv_tokens // 16)
    best = max(ends(work, costs, limits))
    for window in (4, 16, 24):
        model, left, running, now = EngineModel(costs, limits), list(work), set(), 0.0
        while left or running:
            while left and len(running) < window:
                running.add(model.submit(now, *left.pop(0)))
            now = max(now, model.next_event() or now)
            running.difference_update(model.advance(now))
        assert now >= best * 0.98 or math.isclose(now, best)
        if window == 24:
            assert now < best * 1.05
