"""Presets: one for each kind of GPU, between the profile's values and the user's own."""

from typing import get_args

import pytest

from llm_ocr.cli.models import one_model
from llm_ocr.config.groups import VllmSettings
from llm_ocr.config.models import ExtractSettings, ModelsSettings
from llm_ocr.engines.vllm.command import number_of, serve_command, value_of
from llm_ocr.models.choosing import PRESETS
from llm_ocr.models.registry import find_profile
from llm_ocr.stages.servers import Engines, serve_options


def words(model, **settings):
    profile = find_profile(model)
    return serve_command(profile, serve_options(VllmSettings(**settings), profile.model, None), 8000)


def test_the_setting_offers_what_there_is():
    choices = get_args(VllmSettings.model_fields["preset"].annotation)
    assert set(get_args(choices[0])) == PRESETS.keys() == {"l4", "a40", "l40s", "a100", "h100"}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_says_where_its_numbers_come_from(name):
    preset = PRESETS[name]
    assert preset.source.startswith(("measured: ", "not measured: "))
    assert preset.window > preset.sequences
    assert 0 < preset.memory_share < 1


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_what_the_server_is_started_with(name):
    line = words("deepseek-ocr", preset=name)
    assert number_of(line, "max-num-seqs") == PRESETS[name].sequences
    assert float(value_of(line, "gpu-memory-utilization")) == PRESETS[name].memory_share
    assert number_of(line, "max-model-len") == find_profile("deepseek-ocr").context, "the context stays the profile's"


def test_without_a_preset_nothing_is_added():
    assert value_of(words("deepseek-ocr"), "max-num-seqs") is None


def test_a_preset_replaces_the_profile_and_the_users_own_replace_the_preset():
    own = find_profile("chandra-2")
    assert number_of(own.server_args, "max-num-seqs") not in (None, PRESETS["l4"].sequences)
    assert number_of(words("chandra-2", preset="l4"), "max-num-seqs") == PRESETS["l4"].sequences
    line = words("chandra-2", preset="l4", vllm_arg=("--max-num-seqs=7",), gpu_memory_utilization=0.5)
    assert number_of(line, "max-num-seqs") == 7
    assert value_of(line, "gpu-memory-utilization") == "0.5"
    assert " ".join(line).count("max-num-seqs") == 1


def test_the_window_is_the_presets_for_each_server_unless_the_user_says_otherwise(tmp_path):
    def window(servers, **settings):
        chosen = ExtractSettings(workspace="w", preset="l4", **settings)
        return Engines("vllm", chosen, tmp_path, lambda text: None)._preset_window(servers)

    assert window(1) == PRESETS["l4"].window
    assert window(4) == 4 * PRESETS["l4"].window
    assert window(1, data_parallel_size=2) == 2 * PRESETS["l4"].window
    running = Engines("server", ExtractSettings(workspace="w", preset="l4"), tmp_path, lambda text: None)
    assert running._preset_window(1) is None, "a server of somebody else's has its own limits"


def test_the_window_reaches_the_fleet(tmp_path):
    for own, expected in (({}, PRESETS["a100"].window), ({"max_inflight_requests": 5}, 5)):
        settings = ExtractSettings(workspace="w", preset="a100", replicas=1, offline=True, **own)
        profile = find_profile("deepseek-ocr")
        fleet = Engines("vllm", settings, tmp_path, lambda text: None)._made(profile, profile.model, None)
        assert fleet._options.max_inflight == expected


def test_models_shows_the_line_with_the_preset():
    shown = one_model(ModelsSettings(name="deepseek-ocr", preset="h100"))
    assert "--max-num-seqs 256 --gpu-memory-utilization 0.9" in shown["serve"]
    assert shown["preset"]["window"] == PRESETS["h100"].window
    assert one_model(ModelsSettings(name="deepseek-ocr"))["preset"] is None


def test_the_tuning_guide_has_the_numbers(repository):
    text = (repository / "docs" / "tuning.md").read_text()
    for preset in PRESETS.values():
        values = (f"{preset.gigabytes} GB", preset.sequences, preset.window, f"{preset.memory_share:g}")
        assert f"| `{preset.name}` | {' | '.join(map(str, values))} |" in text
