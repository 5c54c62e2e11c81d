"""Settings without effect: refused where the caller named them, told where a variable did."""

import pytest

from llm_ocr.config.fields import settings_of
from llm_ocr.config.groups import ALL, EMBEDDED, HYBRID, SERVER, VLLM
from llm_ocr.config.loading import Stored, check_effect, load
from llm_ocr.config.models import ExtractSettings, LaunchSettings, RunSettings
from llm_ocr.errors import UsageError

#: One value for each kind of setting.
VALUES = {bool: True, int: 3, float: 0.5, str: "x"}


def loaded(tmp_path, flags, environ=None, stored=None, model=RunSettings):
    return load(
        model, {"workspace": "w", **flags}, config=None, environ=environ or {}, dotenv=tmp_path / ".env", stored=stored
    ).settings


def test_every_setting_of_models_is_refused_with_the_cpu_engine(tmp_path):
    idle = [one for one in settings_of(RunSettings).values() if EMBEDDED not in one.engines]
    assert {"model", "prompt", "guided", "anchor_text", "layout_first", "mode", "temperature", "describe_model"} <= {
        one.name for one in idle
    }
    for one in idle:
        value = (
            one.choices[0] if one.choices else "auto" if one.name == "detector_device" else VALUES.get(one.kind, "x")
        )
        settings = loaded(tmp_path, {one.name: [value] if one.many else value})
        with pytest.raises(UsageError, match=f"{one.flag} has no effect with the CPU engine, which it is") as refused:
            check_effect(settings, EMBEDDED, "which it is")
        assert ("`engine=hybrid`" if one.engines == (HYBRID,) else "`server_url=URL`") in refused.value.hint


@pytest.mark.parametrize(
    ("engine", "flags", "other"),
    [
        (SERVER, {"preset": "l4"}, VLLM),
        (SERVER, {"tensor_parallel_size": 2}, VLLM),
        (VLLM, {"server_model": "m"}, SERVER),
        (SERVER, {"ocr_language": "arabic"}, EMBEDDED),
    ],
)
def test_what_is_for_another_engine_is_refused(tmp_path, engine, flags, other):
    with pytest.raises(UsageError, match="has no effect with") as refused:
        check_effect(loaded(tmp_path, {"engine": engine, **flags}), engine)
    assert f"or use `engine={other}`" in refused.value.hint


def test_the_language_of_ocr_has_an_effect_if_ocr_verifies(tmp_path):
    settings = loaded(tmp_path, {"engine": SERVER, "ocr_language": "greek", "verify": "ocr"})
    assert check_effect(settings, SERVER) == ()


def test_several_are_named_together_with_what_chose_the_engine(tmp_path):
    settings = loaded(tmp_path, {"engine": "embedded", "model": "dots.mocr", "guided": True})
    with pytest.raises(UsageError, match="--model, --guided have no effect") as refused:
        check_effect(settings, EMBEDDED)
    assert "which `engine=embedded` chose" in refused.value.args[0]
    stored = Stored({"engine": "embedded"}, {"engine": "llm-ocr run on 2026-11-22 at 22:10 UTC"})
    with pytest.raises(UsageError, match=r"begun \(llm-ocr run on 2026-11-22 at 22:10 UTC\)"):
        check_effect(loaded(tmp_path, {"model": "dots.mocr"}, stored=stored), EMBEDDED)


def test_what_a_variable_or_the_workspace_says_is_not_refused(tmp_path):
    environ = {"MODEL_ID": "me/model", "LLM_OCR_GUIDED": "1", "LLM_OCR_SERVER_KEY": "secret"}
    settings = loaded(tmp_path, {}, environ, {"prompt": "Read."}, model=ExtractSettings)
    assert set(check_effect(settings, EMBEDDED)) == {"MODEL_ID", "LLM_OCR_GUIDED"}


@pytest.mark.parametrize("engine", [HYBRID, SERVER, VLLM])
def test_fallback_beside_hybrid_is_reported_by_its_origin(tmp_path, engine):
    flags = {"engine": "hybrid"}
    assert check_effect(loaded(tmp_path, flags, {"LLM_OCR_FALLBACK": "none"}), engine) == ("LLM_OCR_FALLBACK",)
    with pytest.raises(UsageError, match="--fallback has no effect with the CPU engine and a model, which") as refused:
        check_effect(loaded(tmp_path, {**flags, "fallback": "none"}), engine)
    assert refused.value.hint == "Leave out --fallback, or use `engine=server` or `engine=vllm`."


def test_settings_of_commands_concern_every_engine(tmp_path):
    flags = {"stdout": True, "headers": "keep", "crop": "table", "workers": 2, "text_layer": "never", "max_hours": 1}
    for engine in (EMBEDDED, HYBRID, SERVER, VLLM):
        assert check_effect(loaded(tmp_path, flags), engine) == ()
    assert all(settings_of(LaunchSettings)[name].engines == ALL for name in ("platform", "stage", "sources"))
