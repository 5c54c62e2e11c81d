"""Estimates are pages times rates plus start-up, as ranges with their basis."""

import random
from itertools import product
from statistics import fmean

import pytest

from llm_ocr.costs import Price, expected_seconds, time_limit
from llm_ocr.costs.comparison import Calibration, Comparison, SampledPage, by_threshold, calibrated, on_machines
from llm_ocr.costs.estimates import estimate, fits, machine_named, mean_span, measured_speed, share_span
from llm_ocr.costs.prices import machines, price_per_hour
from llm_ocr.launch.sagemaker.requests import gpus_of
from llm_ocr.models.registry import PROFILES
from llm_ocr.types import Status

A100 = ("hf-jobs", "a100-large")


def said(found) -> str:
    return " ".join(found.assumptions)


def test_estimate_of_10000_pages_equals_the_measurement():
    found = expected_seconds("extract", "deepseek-ocr", *A100, 10_000)
    assert found.work.likely / 3600 == pytest.approx(1.83, abs=0.01)
    assert (found.work * (2.50 / 3600)).likely == pytest.approx(4.58, abs=0.01)
    assert found.known and "predecessor" in said(found) and "2026-11" in said(found)


def test_spans_are_in_order_for_every_model_on_every_machine():
    for stage, model, machine in product(
        ("extract", "describe", "assemble"), ("embedded", *(profile.name for profile in PROFILES)), machines()
    ):
        found = estimate(stage, model, machine, 1000, machines=3)
        if found is not None:
            for span in (found.startup, found.work, found.wall, found.billed, found.rate):
                assert 0 < span.low <= span.likely <= span.high, (stage, model, machine)


@pytest.mark.parametrize(
    ("model", "platform", "hardware"),
    [
        ("someone/unheard-of", *A100),
        ("lightonocr-3", "modal", "H100"),
        ("chandra-2", *A100),
        ("deepseek-ocr", "sagemaker", "ml.unheard.of"),
        ("deepseek-ocr", "hf-jobs", "cpu-upgrade"),
        ("deepseek-ocr", "hf-jobs", "t4-small"),
    ],
)
def test_unmeasured_model_or_gpu_has_no_estimate(model, platform, hardware):
    assert expected_seconds("extract", model, platform, hardware, 1000) is None
    assert time_limit("extract", model, platform, hardware, 1000) is None


def test_relative_of_a_measured_model_does_not_count_as_measured():
    found = expected_seconds("extract", "dots.mocr", "modal", "H100", 1000)
    assert not found.known and "dots.mocr: taken as dots.ocr's" in said(found)


@pytest.mark.parametrize(
    ("model", "gpu", "pages_per_minute"),
    [
        ("deepseek-ocr", "H200", 546),
        ("lightonocr-2", "L4", 35.4),
        ("lightonocr-2", "A10G", 57.3),
        ("ovisocr2", "L4", 86.4),
        ("nanonets-ocr2", "L4", 21.6),
    ],
)
def test_measured_rates_of_servers_are_known(model, gpu, pages_per_minute):
    found = expected_seconds("extract", model, "modal", gpu, 1000)
    assert found.known and found.rate.likely == pytest.approx(pages_per_minute)


def test_a_model_that_does_not_fit_a_gpu_has_no_estimate():
    assert not fits("deepseek-ocr", "a GPU of tomorrow")
    assert not fits("qwen3-vl-32b", "L4")
    assert fits("qwen3-vl-32b", "H200")
    (option,), left_out = on_machines(
        "extract", "qwen3-vl-32b", 10, [machine_named("modal", one) for one in ("L4", "H200")]
    )
    assert (left_out, option.name, option.cost, option.estimate) == (["modal:L4"], "modal:H200", None, None)


def test_stages_without_a_gpu_take_any_machine():
    assert expected_seconds("assemble", "", "sagemaker", "ml.c5.xlarge", 1000) is not None
    found = expected_seconds("extract", "embedded", "slurm", "cpu", 1000)
    assert found.rate.low < 60 < found.rate.high  # scans, and pages with a text layer


def test_machines_share_the_pages_and_each_starts_up():
    one = expected_seconds("extract", "", *A100, 10_000)
    four = expected_seconds("extract", "", *A100, 10_000, machines=4)
    assert four.seconds == pytest.approx(one.startup.likely + one.work.likely / 4)
    assert four.billed.likely == pytest.approx(4 * one.startup.likely + one.work.likely)
    assert four.startup_share > one.startup_share
    price = price_per_hour(*A100)
    assert four.cost(price).likely > one.cost(price).likely
    assert one.cost(Price(3600, "", "")).likely == pytest.approx(one.billed.likely)


def test_several_gpus_of_a_machine_read_at_once():
    one, four = (expected_seconds("extract", "", "hf-jobs", name, 1000) for name in ("l4x1", "l4x4"))
    assert four.rate.likely == pytest.approx(4 * one.rate.likely)


@pytest.mark.parametrize("name", ["L40S", "l40s", "H100:2", "A100-80GB", "NVIDIA-L4"])
def test_machines_of_unlisted_platforms_are_known_by_gpu(name):
    assert machine_named("modal", name) is not None


def test_sagemakers_machines_are_known_by_family_and_size():
    assert (machine_named("sagemaker", "ml.p5.48xlarge").gpu, machine_named("sagemaker", "ml.p5.48xlarge").gpus) == (
        "H100",
        8,
    )
    assert machine_named("sagemaker", "ml.g6e.9xlarge") is None
    assert gpus_of("ml.g6.12xlarge") == machine_named("sagemaker", "ml.g6.12xlarge").gpus


def test_a_platform_with_a_list_of_its_own_has_no_other_machines():
    assert machine_named("hf-jobs", "a100") is None


def test_time_limit_exceeds_slowest_estimate_and_shards_share_it():
    for pages, shards in product((0, 10, 1000, 100_000), (1, 8)):
        found = expected_seconds("extract", "", *A100, pages, machines=shards)
        limit = time_limit("extract", "", *A100, pages, shards=shards)
        assert limit >= max(found.wall.high, 1800) and limit % 300 == 0
    assert time_limit("extract", "", *A100, 100_000, shards=8) < time_limit("extract", "", *A100, 100_000) / 4


def test_mean_lies_in_its_range_about_as_often_as_claimed():
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


def test_speed_is_from_the_middle_and_start_and_end_count_once():
    # Eight pages at a time, four seconds each; the first ones come after 20 seconds, the last one 10 seconds late.
    ends = [20 + 4 * (1 + number // 8) for number in range(400)] + [20 + 4 * 51 + 10]
    each, once = measured_speed(ends, 8, 0.1, least=0.0)
    assert each.likely == pytest.approx(0.5, rel=0.05)
    assert once == pytest.approx(30, abs=4)
    assert each.low <= 0.5 <= each.high


def test_a_short_sample_is_taken_whole():
    each, once = measured_speed([4.0] * 8 + [8.0] * 8, 8, 0.1, least=0.1)
    assert each.likely == pytest.approx(0.5) and once == 0
    assert each.low < 0.5 < each.high


def test_two_pages_may_be_half_or_twice_as_fast():
    each, _ = measured_speed([1.0, 2.0], 8, 0.1, least=0.1)
    assert (each.low, each.likely, each.high) == (0.5, 1.0, 2.0)


@pytest.fixture(scope="module")
def shares():
    """Shares of 1,000 pages for a model, by 20 pages of which 4 need it surely and 4 perhaps."""
    gains = [0.9] * 4 + [0.4] * 4 + [0.0] * 12
    pages = tuple(SampledPage(0.5 * place, 0, 0, 0, Status.OK, gain) for place, gain in enumerate(gains, 1))
    here = calibrated(Comparison("extract", "embedded", 1000, ()), Calibration(pages, 1, 2, 1000, "this machine", 0))
    (alone,), _ = on_machines("extract", "deepseek-ocr", 1000, [machine_named(*A100)])
    return here.options[0], alone, by_threshold(here, alone, gains, {0.8: "", 0.2: " (more)"}).options


def test_shares_lie_between_the_cpu_engine_and_the_model(shares):
    here, alone, found = shares
    assert [option.share.likely for option in found] == [0, 0.2, 0.4, 1]
    assert [option.threshold for option in found] == [None, 0.8, 0.2, None]
    assert (found[0].cost.likely, found[0].estimate) == (0, here.estimate)
    assert (found[-1].cost, found[-1].estimate) == (alone.cost, alone.estimate)


def test_the_model_is_rented_while_the_cpu_engine_reads(shares):
    here, alone, found = shares
    for option in found[1:-1]:
        assert option.estimate.work.likely >= here.estimate.work.likely
        per_second = alone.cost.likely / alone.estimate.billed.likely
        assert option.cost.likely == pytest.approx(option.estimate.billed.likely * per_second)


def test_a_share_of_a_sample_has_a_range_that_all_pages_end():
    for found in (0, 5, 24):
        share = share_span(found, 24, 0.01)
        assert 0 <= share.low <= share.likely == found / 24 <= share.high <= 1
        assert share.high - share.low > 0.1
        assert share_span(found, 24, 1.0).high == pytest.approx(found / 24)
