"""What --model, --prompt, --parser, --weights, --chat-template and --mode mean."""

import os
import socket
import subprocess
import sys

import pytest
from running import Told

import llm_ocr
from llm_ocr.config.fields import settings_of
from llm_ocr.config.models import ExtractSettings, RunSettings
from llm_ocr.errors import LlmOcrError, UsageError, WorkspaceMismatch
from llm_ocr.models.parsers.markers import parse_grounding
from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.registry import PROFILES, find_profile
from llm_ocr.stages import Silent, servers
from llm_ocr.stages.execute import execute
from llm_ocr.stages.model_choice import mode_of, model_choice, named_model
from llm_ocr.storage import StoreOptions
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.keys import EXTRACT, stage_keys
from llm_ocr.workspace.stored import remembered
from llm_ocr_cpu.ocr import models
from llm_ocr_simulator import running

QUICK = {"preset": "h100", "speed": 50, "mean_tokens": 300}


FRUGAL = {"render_workers": 1, "ocr_workers": 1}


NEW = {"served_model_name": "maker/new-ocr"}


def asked(**settings):
    return model_choice(ExtractSettings(workspace="w", **settings))


def test_a_profile_is_taken_as_it_is():
    found = asked(model="dots.mocr")
    assert (found.profile, found.name, dict(found.chosen)) == (find_profile("dots.mocr"), "rednote-hilab/dots.mocr", {})


@pytest.mark.parametrize("name", ["maker/new-ocr", "s3://bucket/models/new", "gs://bucket/new"])
def test_any_model_is_taken_with_a_prompt_and_a_parser(name):
    found = asked(model=name, prompt="Read.", parser="grounding")
    assert (found.profile.name, found.name) == (name, name)
    assert set(found.profile.parsers.values()) == {parse_grounding}
    assert found.profile.figure_labels
    assert asked(model=name, prompt="Read.").profile.parsers == {"": parse_plain}
    with pytest.raises(UsageError, match=f"no profile for model '{name}', and `prompt` is missing") as error:
        asked(model=name)
    assert "`parser`" in error.value.hint and len(error.value.hint) < 200


def test_a_folder_is_taken_with_a_prompt(tmp_path):
    assert asked(model=str(tmp_path), prompt="Read.").name == str(tmp_path)


def test_a_copy_of_a_known_model_is_to_be_named_as_its_weights(tmp_path):
    with pytest.raises(UsageError) as error:
        asked(model=str(tmp_path / "DeepSeek-OCR"))
    assert f"`model=deepseek-ocr` and `weights={tmp_path / 'DeepSeek-OCR'}`" in error.value.hint
    found = asked(model="deepseek-ocr", weights=str(tmp_path))
    assert (found.profile.name, found.name) == ("deepseek-ocr", str(tmp_path))


def test_misspelled_model_or_parser_gets_near_names():
    with pytest.raises(UsageError) as error:
        asked(model="lightonocr3", prompt="Read.")
    assert "lightonocr-3" in error.value.hint
    with pytest.raises(UsageError) as error:
        asked(model="maker/new", prompt="Read.", parser="groundng")
    assert "grounding" in error.value.hint


def test_a_parser_of_ones_own_choice_is_part_of_the_key():
    assert asked(model="deepseek-ocr", parser="plain").chosen == {"parsers": {"": "parse_plain"}}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("mine.toml", 'base = "deepseek-ocr"\nmodel = "me/tuned"\n[prompts]\nlayout = "Look."\n'),
        ("mine.yaml", "base: deepseek-ocr\nmodel: me/tuned\nprompts:\n  layout: Look.\n"),
    ],
)
def test_a_profile_is_taken_from_a_file(tmp_path, file, text):
    (tmp_path / file).write_text(text)
    found = asked(model=str(tmp_path / file))
    assert (found.name, found.profile.prompts["layout"]) == ("me/tuned", "Look.")
    assert found.profile.prompts["text"] == find_profile("deepseek-ocr").prompts["text"]
    assert found.chosen["parsers"]["layout"] == "parse_grounding"


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("none.toml", None, "No such file"),
        ("bad.toml", "base = ", "bad.toml"),
        ("bad.yaml", "a: [", "bad.yaml"),
        ("list.yaml", "- a", "the file contains no keys"),
        ("typo.toml", 'base = "deepseek-ocr"\npromts = {}\n', "promts"),
    ],
)
def test_a_file_that_is_no_profile_is_named(tmp_path, file, text, said):
    if text is not None:
        (tmp_path / file).write_text(text)
    with pytest.raises(UsageError, match=said) as error:
        asked(model=str(tmp_path / file))
    assert file in str(error.value)


def test_a_chat_template_goes_to_our_own_server_and_into_the_key(tmp_path):
    file = tmp_path / "chat.jinja"
    file.write_text("{{ messages }}")
    first = asked(chat_template=str(file))
    assert first.profile.server_args[-2:] == ("--chat-template", str(file))
    file.write_text("{{ messages[0] }}")
    assert asked(chat_template=str(file)).chosen != first.chosen
    with pytest.raises(UsageError, match="`chat_template="):
        asked(chat_template=str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("model", "given", "meant"),
    [
        ("deepseek-ocr", "layout-all", "layout"),
        ("deepseek-ocr", "ocr", "text"),
        ("dots.mocr", "layout-only", "layout-only"),
        ("lightonocr-2-1b", "ocr", "markdown"),
        ("deepseek-ocr", "layout", "layout"),
        ("deepseek-ocr", "sonnet", "sonnet"),
        ("deepseek-ocr", None, None),
    ],
)
def test_the_names_of_modes_that_others_use_are_accepted(model, given, meant):
    assert mode_of(find_profile(model), given) == meant


def test_a_model_that_describes_may_be_any():
    assert named_model("maker/any", own_prompt=True).profile.prompts["describe"]


def test_the_help_names_models_that_exist():
    help_text = settings_of(ExtractSettings)["model"].description
    for name in help_text.partition(": ")[2].partition(" ...")[0].split(", "):
        assert find_profile(name) in PROFILES
    modes = settings_of(ExtractSettings)["mode"].description
    assert "layout-all" in modes and "ocr" in modes


# --- behind a running server -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_any_model_reads_pages_with_its_prompt_and_parser(small_examples, tmp_path):
    with running(**QUICK, **NEW) as server:
        run = llm_ocr.extract(
            small_examples / "invoice.png",
            workspace=tmp_path / "w",
            server_url=server.url,
            model="maker/new-ocr",
            prompt="<|grounding|>Read this.",
            parser="grounding",
            render_workers=1,
        )
        sent = server.log()["requests"]
    assert run.status.pages.ok == 1
    assert run.status.model == "maker/new-ocr"
    assert len(sent) == 1
    page = next(run.pages())
    assert page.engine == "maker/new-ocr"
    assert any(block.box.area < 1 for block in page.blocks)
    key = stage_keys(Workspace.open(str(tmp_path / "w")), EXTRACT)[-1]
    assert key.settings["reader"]["parsers"] == {"": "parse_grounding"}


@pytest.mark.slow
def test_server_with_another_model_is_refused_unless_it_is_named(small_examples, tmp_path):
    read = {"sources": small_examples / "invoice.png", "workspace": tmp_path / "w", "render_workers": 1}
    with running(**QUICK, served_model_name="my-own-name") as server:
        with pytest.raises(LlmOcrError, match=r"serves my-own-name instead of deepseek-ocr") as error:
            llm_ocr.extract(server_url=server.url, **read)
        assert "`server_model=my-own-name`" in error.value.hint
        assert not server.log()["requests"]
        run = llm_ocr.extract(server_url=server.url, server_model="my-own-name", **read)
    assert run.status.pages.ok == 1


def test_a_chat_template_is_refused_for_servers_of_others(small_examples, tmp_path):
    file = tmp_path / "chat.jinja"
    file.write_text("x")
    with pytest.raises(UsageError, match="`chat_template` applies only to a server that llm-ocr starts"):
        llm_ocr.extract(
            small_examples / "invoice.png",
            workspace=tmp_path / "w",
            server_url="http://127.0.0.1:9",
            chat_template=str(file),
        )


def test_a_notice_is_said_once(small_examples, tmp_path):
    told = Told()
    with running(**QUICK, served_model_name="chandra") as server:
        llm_ocr.extract(
            small_examples / "paper.pdf",
            workspace=tmp_path / "w",
            server_url=server.url,
            server_model="chandra",
            model="chandra-2",
            max_page_attempts=1,
            render_workers=1,
            progress=told,
        )
    notice = find_profile("chandra-2").notice
    assert notice and told.lines.count(notice) == 1


@pytest.mark.slow
def test_a_first_try_with_a_wrong_model_binds_nothing(small_examples, tmp_path):
    with running(**QUICK) as server:
        with pytest.raises(LlmOcrError, match="serves deepseek-ocr"):
            llm_ocr.extract(small_examples / "fax.tiff", workspace=tmp_path, server_url=server.url, model="dots.mocr")
        assert not list((tmp_path / "extract").rglob("*.json"))
        run = llm_ocr.extract(workspace=tmp_path, server_url=server.url, model="deepseek-ocr")
    assert run.status.pages.failed == 0
    assert run.status.model == "deepseek-ai/DeepSeek-OCR"


def test_a_first_try_without_vllm_does_not_choose_the_engine(small_examples, tmp_path):
    missing = {"engine": "vllm", "vllm_command": "no-such-program", "offline": True}
    with pytest.raises(LlmOcrError, match="no-such-program"):
        llm_ocr.run(small_examples / "fax.tiff", workspace=tmp_path, **missing)
    assert llm_ocr.run(small_examples / "fax.tiff", workspace=tmp_path, **FRUGAL).status.finished
    assert remembered(ExtractSettings(workspace=str(tmp_path)), StoreOptions())["engine"] == "embedded"


def test_named_server_replaces_planned_engine_not_used_one(small_examples, tmp_path):
    llm_ocr.plan(small_examples / "fax.tiff", workspace=tmp_path, engine="embedded")
    with running(**QUICK) as server:
        assert llm_ocr.extract(workspace=tmp_path, server_url=server.url).status.stages["extract"].finished
    with pytest.raises(WorkspaceMismatch, match=r"the model .* by llm-ocr extract on .* UTC, .* the CPU engine"):
        llm_ocr.extract(workspace=tmp_path, engine="embedded", **FRUGAL)


def test_a_model_is_refused_where_auto_means_the_cpu_engine(small_examples, tmp_path, monkeypatch):
    monkeypatch.setattr(servers, "gpus", lambda: ())
    with pytest.raises(
        UsageError, match=r"`model` has no effect with the CPU engine, which .*auto.* chose because no G"
    ):
        llm_ocr.run(small_examples / "fax.tiff", workspace=tmp_path / "w", model="dots.mocr")
    with pytest.raises(UsageError, match="`anchor_text` has no effect"):
        llm_ocr.plan(small_examples / "fax.tiff", workspace=tmp_path / "w", engine="embedded", anchor_text=100)
    with pytest.raises(UsageError, match="cannot parse figures"):
        llm_ocr.run(small_examples / "fax.tiff", workspace=tmp_path / "w", engine="embedded", describe_mode="parse")
    assert not (tmp_path / "w").exists()


def test_a_place_for_text_in_a_prompt_needs_the_text(small_examples, tmp_path):
    url = "http://127.0.0.1:9"
    with pytest.raises(UsageError, match=r"`prompt` contains {text}") as refused:
        llm_ocr.run(small_examples / "fax.tiff", workspace=tmp_path / "w", server_url=url, prompt="Read: {text}")
    assert "`anchor_text=4000`" in refused.value.hint
    assert not (tmp_path / "w").exists()


COMMIT = "0123456789abcdef0123456789abcdef01234567"


ASK = """
import sys
from pathlib import Path
from llm_ocr.stages.model_choice import newest_commit
print(newest_commit("owner/model", offline=False, cache=Path(sys.argv[1])))
"""


@pytest.mark.slow
@pytest.mark.parametrize("fetched", [None, COMMIT], ids=["nothing", "a commit"])
def test_without_a_network_the_last_fetched_commit_counts_if_any(tmp_path, fetched):
    if fetched:
        refs = tmp_path / "models--owner--model" / "refs"
        refs.mkdir(parents=True)
        (refs / "main").write_text(fetched)
    with socket.socket() as unanswered:  # a process of its own: the client reads the Hub's address when it is imported
        unanswered.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unanswered.getsockname()[1]}"
        away = {**os.environ, "HF_ENDPOINT": address, "HF_HUB_DISABLE_TELEMETRY": "1"}
        command = [sys.executable, "-c", ASK, str(tmp_path)]
        ended = subprocess.run(command, env=away, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == str(fetched)
    assert "newest commit of owner/model is unknown" in ended.stderr


class Said(Exception):
    """Ends the run with what it said first."""


class Stopping(Silent):
    def say(self, message: str) -> None:
        raise Said(message)


@pytest.mark.parametrize(("installed", "says"), [(True, "text layer and OCR"), (False, "OCR is not installed; pip")])
def test_a_run_says_first_whether_it_can_read_scans(installed, says, examples, tmp_path, monkeypatch):
    monkeypatch.setattr(models, "find_models", lambda: object() if installed else None)
    settings = RunSettings(sources=(str(examples / "paper.pdf"),), engine="embedded", workspace=str(tmp_path / "w"))
    with pytest.raises(Said, match=says):
        execute("run", settings, Stopping())


def test_server_of_a_known_model_chooses_the_profile(small_examples, tmp_path):
    told = Told()
    with running(**QUICK, served_model_name="dots.mocr") as server:
        read = {"server_url": server.url, "workspace": tmp_path / "w", **FRUGAL}
        run = llm_ocr.extract(small_examples / "invoice.png", progress=told, **read)
        assert run.status.model == "rednote-hilab/dots.mocr"
        assert f"Model: dots.mocr, which {server.url} serves" in told.lines
        assert llm_ocr.extract(small_examples / "paper.pdf", **read).status.pages.failed == 0
    with running(**QUICK) as server, pytest.raises(WorkspaceMismatch) as error:
        llm_ocr.extract(workspace=tmp_path / "w", server_url=server.url, model="deepseek-ocr", **FRUGAL)
    assert "the model rednote-hilab/dots.mocr" in error.value.args[0]
    assert "would read with the model deepseek-ai/DeepSeek-OCR" in error.value.args[0]
    assert len(error.value.args[0]) < 300


@pytest.mark.slow
def test_any_name_of_a_server_is_a_model_with_a_prompt(small_examples, tmp_path):
    with running(**QUICK, served_model_name="my-finetune") as server:
        run = llm_ocr.extract(
            small_examples / "invoice.png",
            workspace=tmp_path / "w",
            server_url=server.url,
            model="my-finetune",
            prompt="Read.",
            **FRUGAL,
        )
    assert (run.status.model, run.status.pages.failed) == ("my-finetune", 0)
