"""Prices have a source and a date; live prices come from the platform, or a message has the reason."""

import re

import pytest

from llm_ocr.costs.estimates import gpu_named, machine_named
from llm_ocr.costs.prices import live_prices, machines, price_per_hour, providers
from llm_ocr.launch import launcher_for
from tests.fakes.hub import running


def test_providers_have_the_prices_of_olmocrs_readme():
    assert {one.name: (one.price_in, one.price_out) for one in providers()} == {
        "Cirrascale": (0.07, 0.15),
        "DeepInfra": (0.09, 0.19),
        "Parasail": (0.10, 0.20),
    }
    assert {one.date for one in providers()} == {"2025-10-30"}


def test_every_price_has_a_source_and_a_date():
    assert machines()
    for machine in machines():
        assert machine.price is not None and machine.price.per_hour > 0
        assert machine.price.source and re.search(r"20\d\d-\d\d", machine.price.date), machine


def test_every_gpu_of_the_price_list_is_known():
    assert {gpu_named(machine.gpu) for machine in machines() if machine.gpu} == {
        machine.gpu for machine in machines() if machine.gpu
    }


def test_machine_without_stored_price_has_none():
    assert price_per_hour("sagemaker", "ml.p5en.48xlarge") is None
    assert price_per_hour("cloud-run", "nvidia-rtx-pro-6000") is None
    assert price_per_hour("runpod", "gpu") is None
    assert price_per_hour("cloud-run", "core_second") is None


def test_the_default_machines_of_rented_platforms_have_a_price():
    for platform in ("hf-jobs", "sagemaker", "cloud-run", "modal"):
        for stage in ("extract", "describe", "assemble"):
            assert price_per_hour(platform, launcher_for(platform).hardware(stage)) is not None, (platform, stage)


def test_machines_that_are_not_compared_have_a_price_as_well():
    assert price_per_hour("sagemaker", "ml.p5.48xlarge").per_hour == 63.296
    assert machine_named("sagemaker", "ml.g7e.2xlarge").price.date == "2026-06-19"
    assert "ml.p5.48xlarge" not in {one.name for one in machines()}


def test_modal_bills_each_gpu_and_app_cores_and_memory():
    rest = 8 * 0.0000131 + 32 * 0.00000222
    assert price_per_hour("modal", "L40S").per_hour == pytest.approx(3600 * (0.000542 + rest), rel=1e-3)
    assert price_per_hour("modal", "H100:2").per_hour == pytest.approx(3600 * (2 * 0.001097 + rest), rel=1e-3)
    assert price_per_hour("modal", "H100:x") is None


def test_cloud_run_bills_the_parts_of_a_task():
    usual = price_per_hour("cloud-run", "nvidia-l4")
    small = price_per_hour("cloud-run", "nvidia-l4", cores=4, gib=16)
    assert usual.per_hour == pytest.approx(3600 * (0.0001867 + 8 * 0.000018 + 32 * 0.000002), rel=1e-3)
    assert small.per_hour == pytest.approx(3600 * (0.0001867 + 4 * 0.000018 + 16 * 0.000002), rel=1e-3)
    # The predecessor paid 0.61 dollars for 1,024 pages at 39 a minute.
    assert usual.per_hour * 1024 / 39 / 60 == pytest.approx(0.61, abs=0.02)


def test_the_hub_tells_its_prices():
    with running() as (hub, _):
        prices, words = live_prices("hf-jobs", endpoint=hub.url)
    price = prices["a100-large"]
    assert price.live and price.per_hour > 0 and "current prices" in words
    assert not prices["l40sx8"].live  # the file's, where the list has none


def test_without_the_hub_stored_prices_are_used_and_noted():
    with running() as (hub, _):
        url = hub.url
    prices, words = live_prices("hf-jobs", endpoint=url)
    assert prices["a100-large"] == price_per_hour("hf-jobs", "a100-large")
    assert "cannot read" in words and "2026-08" in words


def test_a_platform_without_a_list_says_so():
    prices, words = live_prices("sagemaker")
    assert prices["ml.g6e.2xlarge"].per_hour == 2.80
    assert "no list" in words
