"""A bad value is never taken silently: the error says which one, as the user wrote it, and what is allowed."""

from pathlib import Path

import pytest

from llm_ocr.config.fields import settings_of
from llm_ocr.config.loading import load, read_config, shown_values
from llm_ocr.config.models import DescribeSettings, ExtractSettings, RunSettings
from llm_ocr.errors import UsageError
from llm_ocr.stages.rendering import passwords
from llm_ocr.stages.servers import server_key
from llm_ocr.workspace.retry import NamedPages


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"environ": {"MAX_SAMPLES": "1k"}}, "MAX_SAMPLES=1k: must be a whole number, 1 or more"),
        ({"environ": {"LLM_OCR_MAX_SAMPLES": "0"}}, "LLM_OCR_MAX_SAMPLES=0: must be a whole number, 1 or more"),
        ({"dotenv": "MAX_SAMPLES=-1"}, "MAX_SAMPLES=-1 in .env: must be a whole number, 1 or more"),
        ({"flags": {"max_samples": "1k"}}, "--max-samples 1k: must be a whole number"),
        ({"flags": {"workspace": ""}, "written": {"workspace": "-w"}}, "-w '': must not be empty"),
        ({"config": 'max_samples = "1k"'}, "max_samples = 1k in "),
        ({"config": "max_samples = [1]"}, "max_samples = [1] in "),
        ({"config": "only = [5]"}, "only = 5 in "),
        ({"flags": {"engine": "embeded"}}, "auto, vllm, server, embedded, hybrid; did you mean embedded?"),
        ({"flags": {"max_failed_rate": "1.5"}}, "--max-failed-rate 1.5: must be a number from 0 to 1"),
        ({"flags": {"page_timeout": "nan"}}, "--page-timeout nan: must be a number above 0"),
        ({"flags": {"image_size": "20000"}}, "must be a whole number from 64 to 10000"),
        ({"environ": {"LLM_OCR_QUIET": "maybe"}}, "LLM_OCR_QUIET=maybe: must be true or false"),
        ({"environ": {"LOG_LEVEL": "loud"}}, "LOG_LEVEL=loud: must be one of debug, info, warning, error"),
        ({"environ": {"LLM_OCR_ONLY": '["a.pdf",'}}, "LLM_OCR_ONLY is not a valid JSON list"),
        ({"stored": {"image_size": 1}}, "image_size = 1 in the workspace: must be"),
    ],
)
def test_a_bad_value_is_named_as_written_with_what_is_allowed(loaded, given, said):
    with pytest.raises(UsageError) as caught:
        loaded(**given)
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


def test_all_bad_values_are_said_at_once(loaded):
    with pytest.raises(UsageError) as caught:
        loaded(flags={"max_samples": "x"}, environ={"LLM_OCR_OCR_MEMORY": "1"})
    assert "--max-samples x" in str(caught.value)
    assert "LLM_OCR_OCR_MEMORY=1" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"config": 'password = [{a = "hunter2"}]'}, "password"),
        ({"environ": {"LLM_OCR_PASSWORD": '["hunter2",'}}, "LLM_OCR_PASSWORD"),
        ({"config": 'server_key = ["hunter2"]'}, "server_key"),
        ({"flags": {"server_key": ["hunter2"]}}, "--server-key"),
    ],
)
def test_a_secret_is_never_in_an_error(loaded, given, named):
    with pytest.raises(UsageError) as caught:
        loaded(**given)
    assert "hunter2" not in f"{caught.value} {caught.value.hint}"
    assert named in str(caught.value)


def test_a_secret_is_not_in_the_error_for_a_broken_file(loaded):
    for text, suffix in (("password: ['hunter2'\nx: [", ".yaml"), ('password = ["hunter2"\nx', ".toml")):
        with pytest.raises(UsageError, match=f"conf{suffix} is not valid") as caught:
            loaded(config=text, suffix=suffix)
        assert "hunter2" not in str(caught.value)


def test_unknown_key_in_file_is_an_error_with_the_nearest_name(loaded):
    with pytest.raises(UsageError, match=r"unknown key 'max_sample' in .*conf\.toml; did you mean max_samples\?"):
        loaded(config="max_sample = 4")


def test_unknown_llm_ocr_variable_is_a_warning_with_nearest_name(loaded):
    result = loaded(environ={"LLM_OCR_MAX_SAMPELS": "4", "LLM_OCR_REQUIRE": "poppler"})
    assert result.warnings == ("unknown variable LLM_OCR_MAX_SAMPELS is ignored; did you mean LLM_OCR_MAX_SAMPLES?",)


KEYS = {
    "weights": "s3://AKIA:hun/ter2@bucket/model",
    "workspace": "gs://key:hunter2@bucket/run",
    "workspace_endpoint": "https://me:hunter2@host:9000",
    "server_url": "http://me:hunter2@host:8000/v1",
    "sources": "https://hunter2@host/a.pdf",
    "dataset": "hf://me:hunter2@datasets/a/b",
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_in_urls_are_masked_wherever_settings_are_shown(loaded, name):
    for given in (
        {"flags": {"workspace": "w", name: KEYS[name]}},
        {"environ": {f"LLM_OCR_{name.upper()}": KEYS[name]}},
    ):
        shown = shown_values(loaded(**given).settings)[name]
        assert "//********@" in shown and "hun" not in shown
    with pytest.raises(UsageError) as caught:
        loaded(environ={f"LLM_OCR_{name.upper()}": KEYS[name] + "\0"})
    assert "hun" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://host:8000/v1/a@b", "s3://bucket/a@b", "hf://datasets/a/b@main", "https://[::1]:80/a@b", "a@b"]
)
def test_what_is_no_key_is_shown_as_it_is(loaded, url):
    assert shown_values(loaded(flags={"weights": url}).settings)["weights"] == url


def test_settings_can_be_shown_without_a_workspace(loaded):
    assert loaded(DescribeSettings, lenient=True).settings.origins["workspace"] == "missing"


def test_a_shard_outside_of_the_count_is_refused(loaded):
    with pytest.raises(UsageError, match="--shard-count 2: must be greater than shard_index, which is 2"):
        loaded(ExtractSettings, flags={"workspace": "w", "shard_index": "2", "shard_count": "2"})


def test_missing_or_unsupported_configuration_file_is_named(loaded, tmp_path):
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(UsageError, match=f"the configuration file {path} cannot be read"):
            load(RunSettings, {}, config=path, environ={}, dotenv=Path("/nowhere/.env"))
    with pytest.raises(UsageError, match=r"Accepted: .toml, .yaml, .yml"):
        loaded(config="a=1", suffix=".ini")


def test_a_file_that_holds_no_names_is_refused(loaded):
    with pytest.raises(UsageError, match="must contain names and values"):
        loaded(config="- a\n- b\n", suffix=".yml")


@pytest.mark.parametrize("name", [name for name, setting in settings_of(RunSettings).items() if setting.secret])
def test_a_secret_as_a_flag_is_warned_about_and_never_shown(loaded, name):
    result = loaded(flags={name: ["hunter2"] if settings_of(RunSettings)[name].many else "hunter2"})
    assert "other users of this machine can see it" in result.warnings[0]
    for shown in (repr(result), str(result.settings), result.settings.model_dump_json(), shown_values(result.settings)):
        assert "hunter2" not in str(shown)


def test_files_with_a_byte_order_mark_are_read(tmp_path):
    def file(name, text):
        (tmp_path / name).write_text(text, encoding="utf-8-sig")  # as Windows' editors do
        return tmp_path / name

    assert passwords((), file("secrets.txt", "first\nsecond\n")) == ("first", "second")
    assert server_key(None, file("key.txt", "k-1\n")) == "k-1"
    assert read_config(file("a.toml", "pages_per_unit = 3\n")) == {"pages_per_unit": 3}
    assert list(NamedPages.read(file("pages.txt", "d-p00001\n")).lines) == ["d-p00001"]


@pytest.mark.parametrize(("read", "setting"), [(passwords, "password_file"), (server_key, "server_key_file")])
def test_secrets_in_another_encoding_name_their_file(tmp_path, read, setting):
    (tmp_path / "secrets.txt").write_bytes("pässwörd\n".encode("latin-1"))
    with pytest.raises(UsageError, match=rf"`{setting}=.*secrets.txt`: not UTF-8 text"):
        read(() if read is passwords else None, tmp_path / "secrets.txt")
