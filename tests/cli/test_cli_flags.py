"""Flags are made from the settings; what is typed arrives, what is mistyped is named."""

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llm_ocr.cli import main
from llm_ocr.cli.output import with_flags
from llm_ocr.cli.start import Flags, build_parser, parse_flags
from llm_ocr.config import models
from llm_ocr.config.commands import all_commands, find_command
from llm_ocr.config.fields import command_models, settings_of
from llm_ocr.config.loading import load
from llm_ocr.errors import UsageError


def parsed(name: str, *arguments: str) -> Flags:
    command = find_command(name)
    return parse_flags(command, command.settings(), arguments)


def test_sources_and_flags_may_be_mixed():
    flags = parsed("run", "a.pdf", "-w", "W", "b,[c].pdf", "--only", "x", "--only=-y", "--no-page-markers", "d")
    assert flags.values == {
        "sources": ["a.pdf", "b,[c].pdf", "d"],
        "workspace": "W",
        "only": ["x", "-y"],
        "page_markers": False,
    }
    assert flags.written["workspace"] == "-w"


def test_what_was_not_typed_is_not_there():
    assert parsed("run") == Flags({}, {})


@settings(max_examples=20)  # each builds the parser of all flags
@given(st.lists(st.text(min_size=1, max_size=20), max_size=4))
@example(["--", "-w", "--pages=3", "@file", "a b", "-1", "[x],y", ""])
def test_any_name_after_two_dashes_arrives_unchanged(names):
    assert parsed("run", "-w", "W", "--", *names).values.get("sources", []) == names


@settings(max_examples=20)
@given(st.lists(st.text(min_size=1, max_size=20).filter(lambda name: not name.startswith("-")), max_size=4))
@example(["a,b.pdf", "[1].pdf", "a = b", "@list", "日本.pdf", "caf\udce9.pdf", "{x}"])
def test_any_name_without_a_leading_dash_arrives_unchanged(names):
    assert parsed("run", *names).values.get("sources", []) == names
    for name in names:
        assert parsed("run", "--only", name, f"--password-file={name}").values == {
            "only": [name],
            "password_file": name,
        }


@pytest.mark.parametrize("sources", [("a.png", "--pages", "abc"), ("gone.pdf",)])
def test_an_error_of_a_setting_or_a_source_is_the_only_output(llm_ocr, tmp_path, sources):
    (tmp_path / "a.png").touch()
    done = llm_ocr("run", *sources, "-w", "out", "--engine", "embedded")
    assert (done.returncode, done.stdout) == (2, "")
    named = "--pages abc: 'abc' is not a page or a range" if "--pages" in sources else f"{tmp_path}/gone.pdf: not found"
    assert done.stderr.startswith(f"llm-ocr: {named}")
    assert not (tmp_path / "out").exists()


def test_a_switch_can_be_turned_both_ways():
    assert parsed("run", "--page-markers").values == {"page_markers": True}
    assert parsed("run", "--quiet", "--no-quiet").values == {"quiet": False}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["run", "--pagse", "3"], r"unknown flag --pagse; did you mean --pages\?"),
        (["run", "--page", "3"], r"unknown flag --page"),
        (["run", "-report.pdf"], r"(?s)unknown flag -report.pdf.*goes after --"),
        (["repair", "-w", "w", "--page-list", "l"], r"The flag of this setting is --pages-from"),
        (["export", "-w", "w", "--schema", "s"], r"These commands have this flag: fields"),
        (["extract", "-w", "w", "--stdout"], r"(?s)unknown flag --stdout.*These commands have this flag: run"),
        (["status", "-w"], r"--workspace needs a value"),
        (["run", "--only", "-a.pdf"], r"(?s)--only needs a value.*--only=-value"),
        (["status", "-w", "w", "a.pdf"], r"(?s)unexpected argument 'a.pdf'.*llm-ocr run a.pdf"),
        (["init", "a", "b"], r"unexpected argument 'b': only one PATH"),
        (["run", "--quiet=yes"], r"--quiet: ignored explicit argument 'yes'"),
    ],
)
def test_a_mistyped_flag_is_named_with_what_was_meant(typed, said):
    with pytest.raises(UsageError, match=said):
        parsed(*typed)


def test_what_is_missing_is_named_as_it_is_typed():
    with pytest.raises(UsageError) as caught:
        load(models.LaunchSettings, {}, config=None, environ={}, dotenv=Path("none"))
    assert with_flags(str(caught.value)).splitlines() == [
        "no workspace given: use --workspace URL or LLM_OCR_WORKSPACE",
        "no platform given: write PLATFORM after the command, or set LLM_OCR_PLATFORM",
        "no stage given: write STAGE after the command, or set LLM_OCR_STAGE",
    ]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("Set `server_model`.", "Set --server-model."),
        ("Set `server_model=NAME`, or `layout_first=never`", "Set --server-model NAME, or --layout-first never"),
        ("`allow_private_addresses`, `page_markers=False`", "--allow-private-addresses, --no-page-markers"),
        ("`dry_run=True`", "--dry-run"),
        ("`vllm_arg=--max-num-seqs=8`", "--vllm-arg=--max-num-seqs=8"),
        ("`json_output`, `describe_key=KEY`", "--json, --describe KEY"),
        ("`sources`, `sources=scans/`, `stage=extract`", "SOURCE, scans/, --stage extract"),
        ("`vllm serve`, `nobody=knows`, `Pages`, ``pages``, ```pages```", None),
        ("a lone ` before `pages", None),
    ],
)
def test_settings_in_messages_are_shown_as_they_are_typed(written, shown):
    assert with_flags(written) == (shown or written)


def test_every_setting_has_a_form_to_type():
    for model in command_models().values():
        for setting in settings_of(model).values():
            typed = with_flags(f"`{setting.name}`")
            assert typed in (setting.flag, setting.metavar), setting.name


@pytest.mark.parametrize(
    ("typed", "said"),
    [("runn", "llm-ocr run"), ("retry", "retry-failed"), ("a.pdf", "llm-ocr run a.pdf"), ("x", "Commands: run, plan")],
)
def test_a_mistyped_command_is_named_with_what_was_meant(typed, said):
    with pytest.raises(UsageError, match=said):
        find_command(typed)


@pytest.mark.parametrize("command", all_commands(), ids=lambda command: command.name)
def test_help_teaches_every_setting_its_choices_and_its_default(command):
    model = command.settings()
    text = " ".join(build_parser(command, model, for_help=True).format_help().split())
    for setting in settings_of(model).values():
        flags = {setting.flag, "--no-" + setting.flag.removeprefix("--")}  # of a switch, the one that changes it
        assert setting.metavar in text if setting.positional else flags & set(text.replace(",", " ").split())
        for choice in setting.choices:
            assert choice in text
        if isinstance(setting.default, int | float) and not isinstance(setting.default, bool):
            assert f"(default: {setting.default:g})" in text
    assert len(command.examples) >= 2
    for typed, _ in command.examples:
        program, name, *arguments = typed.split()
        assert typed in text and program == "llm-ocr"
        parsed(name, *arguments)


@pytest.mark.parametrize("command", all_commands(), ids=lambda command: command.name)
def test_help_is_short_and_names_the_help_of_all_settings(command, capsys):
    assert main([command.name, "--help"]) == 0
    short = capsys.readouterr().out
    assert main([command.name, "--help-all"]) == 0
    whole = capsys.readouterr().out
    model = command.settings()
    assert len(short.splitlines()) <= 60
    if command.common:
        assert f"All {len(settings_of(model))} settings: llm-ocr {command.name} --help-all" in short
        assert len(whole.splitlines()) > len(short.splitlines())
    else:
        assert len(settings_of(model)) < 15 and short == whole


def test_output_means_workspace_where_no_setting_has_this_name():
    assert parsed("run", "a.pdf", "-o", "out").values["workspace"] == "out"
    assert parsed("extract", "a.pdf", "--output", "out").values["workspace"] == "out"
    assert parsed("view", "-w", "out", "-o", "site").values["output"] == "site"
