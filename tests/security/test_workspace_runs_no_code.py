"""A workspace's bucket may be written by others: what it holds chooses no program, code, weights, server, or file."""

import json
import shlex

import pytest

import llm_ocr
from llm_ocr.cli.output import with_flags
from llm_ocr.config.fields import settings_of
from llm_ocr.config.loading import settings_from
from llm_ocr.config.models import AssembleSettings, DescribeSettings, ExtractSettings
from llm_ocr.errors import UsageError, WorkspaceError
from llm_ocr.launch import STAGES
from llm_ocr.storage import StoreOptions
from llm_ocr.workspace.stored import launch_reference, launched, remembered

#: All that a workspace may choose. Whoever adds to it has to show that no value can name programs, code, weights,
#: servers, credentials, or paths outside of the workspace.
ALLOWED = {
    *("engine", "text_layer", "image_size", "image_format", "renderer", "pages_per_unit", "model", "parser", "mode"),
    *("prompt", "max_tokens", "temperature", "crop", "figures_from", "fallback", "batch_id", "sample", "seed"),
    *("model_share", "model_threshold"),
    *("filter_language", "filter_forms", "filter_spam", "filter_blank", "invisible_text"),
}
COMMANDS = {"extract": ExtractSettings, "describe": DescribeSettings, "assemble": AssembleSettings}
EVERY = sorted({name for model in COMMANDS.values() for name in settings_of(model)})
LAUNCH = "20260101-000000-abcd"
#: Values that name nothing of the library's.
STRANGE = {"model": "attacker/model", "parser": "attacker.module:parse"}


def value_of(name):
    """A value that the setting can have."""
    setting = next(settings_of(model)[name] for model in COMMANDS.values() if name in settings_of(model))
    usual = {"model": "dots.mocr", "parser": "plain", "describe_mode": "parse", "detector_device": "cuda"}
    if name in usual:
        return usual[name]
    if setting.choices:
        return setting.choices[-1]
    value = {bool: True, int: 500, float: 0.5}.get(setting.kind, "attacker/x")
    return [value] if setting.many else value


#: Where a workspace holds settings -> their name in that file.
PLACES = {"run.json": "settings", "plan/settings.json": "settings", "extract/key.json": "remembered"}


def made(folder, stored, launch=None, place="run.json"):
    """A workspace that somebody else has written."""
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"format": 1, "created_by": "x", "settings": {}}))
    (folder / place).parent.mkdir(exist_ok=True)
    key = {"key": "0123456789ab", "settings": {}} if place == "extract/key.json" else {}
    (folder / place).write_text(json.dumps({"format": 1, "created_by": "x", **key, PLACES[place]: stored}))
    if launch is not None:
        file = folder / "launches" / LAUNCH / "launch.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"id": LAUNCH, "settings": dict.fromkeys(STAGES, launch)}))
        return str(folder), file.read_bytes()
    return str(folder), b""


@pytest.mark.parametrize("place", PLACES)
def test_only_harmless_settings_of_a_workspace_are_applied(tmp_path, place):
    url, _ = made(tmp_path / "w", {name: value_of(name) for name in EVERY}, place=place)
    repeated = {name: value_of(name) for name in ("weights", "revision", "chat_template")}
    for model in COMMANDS.values():
        given = {name: value for name, value in repeated.items() if name in settings_of(model)}
        found = remembered(model(workspace=url, **given), StoreOptions())
        assert found == {name: value_of(name) for name in ALLOWED}


@pytest.mark.parametrize(
    ("name", "value"),
    [("weights", "attacker/model"), ("revision", "refs/pr/1"), ("chat_template", "/tmp/x y"), *STRANGE.items()],
)
@pytest.mark.parametrize("place", PLACES)
def test_what_a_workspace_may_not_choose_is_to_be_repeated(tmp_path, name, value, place):
    url, _ = made(tmp_path / "w", {"engine": "vllm", name: value}, place=place)
    with pytest.raises(UsageError) as caught:
        llm_ocr.extract(workspace=url)
    setting = f"`{name}={shlex.quote(value)}`"
    assert setting in str(caught.value.args[0]) and setting in caught.value.hint
    assert f"--{name.replace('_', '-')} {shlex.quote(value)}" in with_flags(caught.value.hint)
    for keywords in ({name: value}, {name: "other"}, {"engine": "embedded"}):
        assert name not in remembered(ExtractSettings(workspace=url, **keywords), StoreOptions())
    assert remembered(AssembleSettings(workspace=url), StoreOptions()) == {"engine": "vllm"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("engine", "shell"), ("image_size", "big"), ("image_size", 10**9), ("temperature", -1), ("crop", {"a": 1}),
     ("max_tokens", 0), ("prompt", 7), ("pages_per_unit", "x"), ("renderer", "/bin/sh"), ("fallback", None)],
)  # fmt: skip
def test_stored_values_are_checked_as_given_ones_are(tmp_path, name, value):
    url, _ = made(tmp_path / "w", {name: value})
    stored = remembered(ExtractSettings(workspace=url), StoreOptions())
    with pytest.raises(UsageError, match=rf"^{name} = .* in the workspace: must "):
        settings_from(ExtractSettings, "extract", {"workspace": url}, stored)


def test_launch_without_its_hash_gives_only_harmless_settings(tmp_path):
    given = {name: value_of(name) for name in EVERY}
    url, data = made(tmp_path / "every", {}, given)
    assert launched(url, StoreOptions(), launch_reference(LAUNCH, data), "extract") == given
    with pytest.raises(WorkspaceError, match="differs from the launched file"):
        launched(url, StoreOptions(), launch_reference(LAUNCH, data + b" "), "extract")
    harmless = {name: value for name, value in given.items() if name in ALLOWED}
    url, _ = made(tmp_path / "harmless", {}, harmless)
    assert launched(url, StoreOptions(), LAUNCH, "extract") == harmless
    for name in given.keys() - ALLOWED:
        url, _ = made(tmp_path / name, {}, {name: given[name]})
        with pytest.raises(WorkspaceError, match=rf"launch\.json sets {name}, which a workspace must not choose"):
            launched(url, StoreOptions(), LAUNCH, "extract")


@pytest.mark.parametrize(("name", "value"), STRANGE.items())
def test_launch_without_hash_names_known_models_and_parsers_only(tmp_path, name, value):
    url, _ = made(tmp_path / "w", {}, {name: value})
    with pytest.raises(WorkspaceError, match=f"sets {name}"):
        launched(url, StoreOptions(), LAUNCH, "extract")


@pytest.mark.parametrize("reference", ["../../x", f"{LAUNCH}@", f"{LAUNCH}@abc", f"{LAUNCH}@{'g' * 64}", "a/b"])
def test_a_reference_that_is_none_is_wrong_usage(tmp_path, reference):
    url, _ = made(tmp_path / "w", {}, {})
    with pytest.raises(UsageError, match="`launch="):
        launched(url, StoreOptions(), reference, "extract")
