"""A workspace's bucket may be written by others: what it holds chooses no program, code, weights, server, or file."""

import hashlib
import json
import shlex

import pytest

import llm_ocr
from llm_ocr.cli.output import with_flags
from llm_ocr.config.fields import settings_of
from llm_ocr.config.loading import settings_from
from llm_ocr.config.models import AssembleSettings, DescribeSettings, ExtractSettings, WorkerSettings
from llm_ocr.errors import LlmOcrError, UsageError, WorkspaceError
from llm_ocr.launch import STAGES
from llm_ocr.serverless.inputs import InputError, StageRequest, read_input
from llm_ocr.serverless.stage_job import permitted
from llm_ocr.serverless.variables import OF_MACHINE
from llm_ocr.storage import StoreOptions
from llm_ocr.workspace.stored import launch_reference, launched, remembered

#: All that a workspace may choose. Whoever adds to it has to show that no value can name programs, code, weights,
#: servers, credentials, or paths outside of the workspace.
ALLOWED = {
    *("engine", "text_layer", "image_size", "image_format", "renderer", "pages_per_unit", "model", "parser", "mode"),
    *("prompt", "max_tokens", "temperature", "crop", "figures_from", "fallback", "batch_id", "sample", "seed"),
    *("filter_language", "filter_forms", "filter_spam", "filter_blank"),
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
    (folder / place).write_text(json.dumps({"format": 1, "created_by": "x", PLACES[place]: stored}))
    if launch is not None:
        file = folder / "launches" / LAUNCH / "launch.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"id": LAUNCH, "settings": dict.fromkeys(STAGES, launch)}))
        return str(folder), file.read_bytes()
    return str(folder), b""


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", EVERY)
def test_of_what_a_workspace_remembers_only_harmless_settings_are_applied(tmp_path, name, place):
    url, _ = made(tmp_path / "w", {name: value_of(name)}, place=place)
    for model in COMMANDS.values():
        try:
            found = remembered(model(workspace=url), StoreOptions())
        except UsageError:
            assert name in ("weights", "revision", "chat_template")
        else:
            assert found == ({name: value_of(name)} if name in ALLOWED else {})


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


@pytest.mark.parametrize("name", EVERY)
def test_a_launch_gives_what_was_launched_and_without_its_hash_only_harmless_settings(tmp_path, name):
    url, data = made(tmp_path / "w", {}, {name: value_of(name)})
    given = {name: value_of(name)}
    assert launched(url, StoreOptions(), launch_reference(LAUNCH, data), "extract") == given
    with pytest.raises(WorkspaceError, match="differs from the launched file"):
        launched(url, StoreOptions(), launch_reference(LAUNCH, data + b" "), "extract")
    if name in ALLOWED:
        assert launched(url, StoreOptions(), LAUNCH, "extract") == given
    else:
        with pytest.raises(WorkspaceError, match=rf"launch\.json sets {name}, which a workspace must not choose"):
            launched(url, StoreOptions(), LAUNCH, "extract")


@pytest.mark.parametrize(("name", "value"), STRANGE.items())
def test_without_the_hash_a_launch_names_only_known_models_and_parsers(tmp_path, name, value):
    url, _ = made(tmp_path / "w", {}, {name: value})
    with pytest.raises(WorkspaceError, match=f"sets {name}"):
        launched(url, StoreOptions(), LAUNCH, "extract")


@pytest.mark.parametrize("reference", ["../../x", f"{LAUNCH}@", f"{LAUNCH}@abc", f"{LAUNCH}@{'g' * 64}", "a/b"])
def test_a_reference_that_is_none_is_wrong_usage(tmp_path, reference):
    url, _ = made(tmp_path / "w", {}, {})
    with pytest.raises(UsageError, match="`launch="):
        launched(url, StoreOptions(), reference, "extract")


def asking(workspace, **more):
    return read_input({"input": {"stage": "extract", "workspace": str(workspace), **more}})


@pytest.mark.parametrize("name", sorted({*settings_of(WorkerSettings)} - {"workspace", "launch"}))
def test_a_request_chooses_no_setting_of_the_endpoint(tmp_path, name):
    request = {"stage": "extract", "workspace": str(tmp_path), name: "attacker/x"}
    settings = WorkerSettings(allowed_workspaces=(str(tmp_path),))
    with pytest.raises(InputError, match=rf"^{name}: "):
        permitted(read_input({"input": request}), settings)


@pytest.mark.parametrize(
    ("workspace", "allowed", "own", "passes"),
    [
        ("s3://b/run", (), "-", False),
        ("s3://b/run", (), "s3://b/run", True),
        ("s3://b/run/2", (), "s3://b/run", True),
        ("s3://b/run2", (), "s3://b/run", False),
        ("s3://b/run/../x", ("s3://b/run",), "-", False),
        ("s3://b/run//x", ("s3://b/run",), "-", False),
        ("s3://b/x/y", ("s3://b",), "-", True),
        ("s3://b/x", ("s3://a", "s3://b/"), "s3://c", True),
        ("s3://c/x", ("s3://a", "s3://b/"), "s3://c", False),
        ("s3://bb/x", ("s3://b",), "-", False),
        ("gs://b/x", ("s3://b",), "-", False),
        ("hf://datasets/a/b@main", ("hf://datasets/a/b",), "-", False),
        ("/data/run/../../etc", ("/data",), "-", False),
        ("file:///data/run", ("/data",), "-", True),
        ("run", ("s3://b",), "-", False),
    ],
)
def test_a_request_names_only_workspaces_that_the_endpoint_allows(workspace, allowed, own, passes):
    settings = WorkerSettings(allowed_workspaces=allowed, workspace=own)
    if passes:
        assert permitted(asking(workspace), settings).workspace == workspace
        return
    with pytest.raises(InputError, match=r"^workspace: the endpoint does not allow") as caught:
        permitted(asking(workspace), settings)
    assert "LLM_OCR_ALLOWED_WORKSPACES" in caught.value.hint


def test_the_server_of_the_workspace_is_the_endpoints(tmp_path):
    settings = WorkerSettings(allowed_workspaces=("s3://b",), workspace_endpoint="https://mine")
    for more in ({}, {"workspace_endpoint": "https://mine"}, {"workspace_region": "eu-west-1"}):
        found: StageRequest = permitted(asking("s3://b/run", **more), settings)
        assert found.environment["LLM_OCR_WORKSPACE_ENDPOINT"] == "https://mine"
    with pytest.raises(InputError, match=r"^workspace_endpoint: "):
        permitted(asking("s3://b/run", workspace_endpoint="https://attacker"), settings)
    with pytest.raises(InputError, match=r"^workspace_region: "):
        permitted(asking("s3://b/run", workspace_region="x.attacker.com/"), settings)


@pytest.mark.parametrize("name", sorted(OF_MACHINE))
def test_programs_and_folders_of_the_endpoint_are_not_the_launchs_to_choose(tmp_path, name):
    url, data = made(tmp_path / "w", {}, {name: value_of(name)})
    with pytest.raises(InputError, match=rf"^launch: sets {name}"):
        permitted(asking(url, launch=launch_reference(LAUNCH, data)), WorkerSettings(allowed_workspaces=(url,)))


def test_a_launch_that_was_written_by_another_is_refused(tmp_path):
    url, _ = made(tmp_path / "w", {}, {"engine": "vllm", "vllm_arg": ["--trust-remote-code"]})
    for reference in (LAUNCH, f"{LAUNCH}@{hashlib.sha256(b'').hexdigest()}"):
        with pytest.raises(LlmOcrError, match=r"launch\.json"):
            permitted(asking(url, launch=reference), WorkerSettings(allowed_workspaces=(url,)))
