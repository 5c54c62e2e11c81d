"""The documentation: commands parse, Python runs, outputs and messages are real, and the reference is complete."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import llm_ocr
from llm_ocr import errors
from llm_ocr.cli.start import parse_flags
from llm_ocr.config import models
from llm_ocr.config.commands import all_commands, find_command
from llm_ocr.config.fields import every_setting
from llm_ocr.config.loading import load
from llm_ocr.models.registry import all_profiles, profile_from
from llm_ocr.results import quality, routing
from llm_ocr.results.dataset import FEATURES
from llm_ocr.types import Reason

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").glob("**/*.md"))
#: The changelog also names flags that no longer exist.
OTHERS = sorted({*ROOT.glob("*.md"), *ROOT.glob("[a-z]*/README.md")} - {ROOT / "CHANGELOG.md"})
SHELL = ("sh", "bash", "shell", "console", "text", "")
#: Words of examples that only a shell or a user can replace.
_STANDS_FOR = re.compile(r"^N$|\$|\b[A-Z][A-Z_]{2,}\b|…|\.\.\.")


def blocks(page: Path, language: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"^( *)```([^\n]*)\n(.*?)^\1```", text, re.MULTILINE | re.DOTALL)
    return [body for _, title, body in found if title.strip() == language]


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words after `llm-ocr` of each command in a shell block, also inside of loops and pipes."""
    for line in text.replace("\\\n", " ").splitlines():
        line = re.split(r"\s{3,}(?=\S)", line.strip().removeprefix("$ "))[0]  # a remark beside the command
        try:
            lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            words = list(lexer)
        except ValueError:  # output, or prose
            continue
        while words:
            ends = [at for at, word in enumerate(words) if set(word) <= set("();<>|&")]
            part, words = words[: ends[0]] if ends else words, words[ends[0] + 1 :] if ends else []
            names = [at for at, word in enumerate(part) if word == "llm-ocr" or word.endswith("/bin/llm-ocr")]
            if names and len(part) > names[0] + 1:
                yield part[names[0] + 1 :]


def checked(model: type[Any], flags: dict[str, Any], *, lenient: bool = False) -> None:
    """Raise `UsageError` if a value is not allowed; `lenient` permits missing values."""
    load(model, flags, config=None, environ={}, dotenv=Path("no file"), lenient=lenient)


def documented(page: Path) -> Iterator[tuple[list[str], bool]]:
    """Yield the words of each command of a page, and whether the command is complete: code spans may lack settings."""
    for language in SHELL:
        yield from ((words, True) for block in blocks(page, language) for words in commands(block))
    prose = re.sub(r"^( *)```.*?^\1```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    yield from ((words, False) for span in re.findall(r"`(llm-ocr [^`]+)`", prose) for words in commands(span))


SHELL_PAGES = [page for page in (*OTHERS, *PAGES) if any(documented(page))]


@pytest.mark.parametrize("page", SHELL_PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_each_command_has_flags_and_values_that_exist(page):
    for (name, *arguments), complete in documented(page):
        if name.startswith("-") or _STANDS_FOR.search(name):
            continue
        command = find_command(name)
        if not {"--help", "--help-all"}.isdisjoint(arguments):
            continue
        model = command.settings()
        flags = parse_flags(command, model, arguments)
        given = {key: value for key, value in flags.values.items() if not _STANDS_FOR.search(str(value))}
        if complete:
            checked(model, given, lenient=given != flags.values)


def test_the_readme_shows_every_command():
    shown = {words[0] for words, _ in documented(ROOT / "README.md")}
    assert {command.name for command in all_commands()} - shown == {"demo"}
    assert "make demo" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_counts_the_profiles():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    profiles = len(all_profiles())
    assert f"{profiles - 1} other profiles" in text
    assert f"| {profiles} profiles on vLLM" in text


def test_a_wrong_flag_or_value_in_a_shell_block_is_found():
    found = list(commands("if llm-ocr run a.pdf | grep x; then $ llm-ocr status -w out --json   # remark\nfi"))
    assert found == [["run", "a.pdf"], ["status", "-w", "out", "--json"]]
    model = models.ExportSettings
    with pytest.raises(llm_ocr.UsageError, match="mrkdown"):
        checked(model, {"workspace": "out", "output": "o", "format": "mrkdown"})


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.stem)
def test_python_in_the_documentation_compiles(page):
    for block in blocks(page, "python"):
        compile(block, str(page), "exec", flags=0x2000)  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, as in notebooks


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


def run_python(code: str, folder: Path) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, check=True, timeout=240, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_the_guide_to_stages_runs_as_written(checkout):
    (code,) = blocks(ROOT / "docs/guides/extending.md", "python")
    run_python(code, checkout)
    assert "THE ARLEN RISES" in (checkout / "out/documents/paper.pdf.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_guide_to_python_runs_as_written(checkout):
    for code in blocks(ROOT / "docs/guides/python.md", "python"):
        run_python(code, checkout)
    assert (checkout / "report.html").stat().st_size > 10_000


def shape(line: str) -> str:
    """Return a line of output without its numbers, which differ between machines."""
    return re.sub(r"\d[\d.,:]*", "0", line.strip())


@pytest.mark.slow
def test_the_tutorial_prints_what_it_shows(checkout):
    tutorial = ROOT / "docs/tutorial.md"
    paths = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for block in blocks(tutorial, "console"):
        command, *shown = block.removeprefix("$ ").splitlines()
        done = subprocess.run(
            shlex.split(command), cwd=checkout, env=paths, check=True, timeout=300, capture_output=True, text=True
        )
        printed = [shape(line) for line in (done.stderr + done.stdout).splitlines()]
        for line in filter(None, map(shape, shown)):
            if line == "...":
                continue
            assert any(one.startswith(line.removesuffix(" ...")) for one in printed), (command, line, printed)
    (code,) = blocks(tutorial, "python")
    printed, shown = run_python(code, checkout), blocks(tutorial, "text")[-1]
    assert list(map(shape, printed.splitlines())) == list(map(shape, shown.splitlines()))


def test_profile_files_in_the_documentation_are_valid():
    found = [block for page in PAGES for block in blocks(page, "toml")]
    assert found and all(profile_from(tomllib.loads(block), "a guide").model for block in found)


def test_messages_in_the_troubleshooting_exist():
    modules = (*(ROOT / "llm_ocr").rglob("*.py"), *(ROOT / "packages").glob("*/llm_ocr_*/**/*.py"))
    package = "\n".join(path.read_text(encoding="utf-8") for path in modules)
    rows = [line for line in (ROOT / "docs/troubleshooting.md").read_text().splitlines() if line.startswith("| `")]
    messages = [row.split("`")[1] for row in rows]
    assert len(messages) >= 40 and [message for message in messages if message not in package] == []


def test_every_reason_of_a_page_is_explained():
    text = (ROOT / "docs/guides/failures.md").read_text(encoding="utf-8")
    assert [reason.value for reason in Reason if f"`{reason.value}`" not in text] == []


def test_the_explanation_of_quality_has_its_parts_and_limits():
    text = (ROOT / "docs/explanation/quality.md").read_text(encoding="utf-8")
    assert [part for part in quality._SCALES if f"`{part}`" not in text] == []
    assert f"below {quality.LOW}" in text and f"below {quality.LOW_OF_MODEL}" in text


def _share(fault):
    """Return the share of a fault that was found; "-" for a fault that no page of a column can have."""
    return "-" if fault is None else f"{fault['found']:.0%}".replace("%", " %")


def test_ledger_page_has_the_table_of_its_benchmark():
    text = (ROOT / "docs/explanation/ledger.md").read_text(encoding="utf-8")
    results = json.loads((ROOT / "benchmarks/results/losses.json").read_text(encoding="utf-8"))
    columns = [
        results["columns"][name]
        for name in (
            *("digital, layer", "documents, layer", "scan, OCR", "digital, ink, boxes", "scan, ink, boxes"),
            *("digital, ink, no boxes", "scan, ink, no boxes"),
        )
    ]
    for fault in columns[0]["faults"]:
        assert f"| {fault} | " + " | ".join(_share(column["faults"].get(fault)) for column in columns) in text
    alarms = " | ".join(f"{column['false alarms']:.1%}" for column in columns).replace("%", " %")
    assert f"| good answers (false alarms) | {alarms} |" in text
    assert results["page invented on a blank leaf"]["found"] == 1


def test_verifying_page_has_the_figures_of_its_benchmark():
    text = " ".join((ROOT / "docs/explanation/verifying.md").read_text(encoding="utf-8").split())
    results = json.loads((ROOT / "benchmarks/results/losses.json").read_text(encoding="utf-8"))["columns"]["scan, OCR"]
    found = {name: f"{100 * fault['found']:.0f} % of the" for name, fault in results["faults"].items()}
    assert f"{found['sentence invented']} invented sentences, {found['number changed']} changed numbers" in text
    assert f"{found['line omitted, 80 characters']} lost lines of 80 characters" in text
    assert f"{found['column omitted']} lost columns, and {found['table omitted']} lost tables" in text
    alarms = round(results["false alarms"] * results["good answers"])
    assert f"It blames {alarms} of {results['good answers']} good answers" in text


def test_routing_page_has_the_table_of_its_benchmark():
    text = (ROOT / "docs/explanation/routing.md").read_text(encoding="utf-8")
    results = json.loads((ROOT / "benchmarks/results/routing.json").read_text(encoding="utf-8"))
    for row in (*results["by share"], results["at the threshold"]):
        errors = " | ".join(f"{100 * row[name]:.2f} %" for name in ("router", "random", "ideal"))
        assert f"{errors} | {100 * row['gain of all']:.0f} %" in text
    assert f"From {routing.THRESHOLD} on" in text


def test_every_exit_code_is_explained():
    text = (ROOT / "docs/reference/exit-codes.md").read_text(encoding="utf-8")
    raised = {one.exit_code for one in vars(errors).values() if isinstance(one, type) and hasattr(one, "exit_code")}
    assert set(map(int, re.findall(r"^\| (\d) \|", text, re.MULTILINE))) == raised | {0, 3}


def test_links_of_the_readme_lead_to_files():
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(links) > 10 and [link for link in links if not (ROOT / link).exists()] == []


@pytest.fixture(scope="module")
def reference():
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import reference
    finally:
        sys.path.remove(str(ROOT / "docs"))
    return reference


def test_the_reference_has_every_setting_and_command(reference):
    settings = re.findall(r"^## (\w+)$", reference.settings_page(), re.MULTILINE)
    assert settings == sorted(every_setting())
    assert re.findall(r"^## ([\w-]+)$", reference.commands_page(), re.MULTILINE) == [one.name for one in all_commands()]


def test_the_reference_explains_every_column_and_field(reference):
    assert list(reference.COLUMNS) == list(FEATURES)
    rows = [line for line in reference.json_page().splitlines() if line.startswith("| `")]
    assert len(rows) > 80 and [row for row in rows if row.endswith("|  |")] == []


def test_the_reference_has_every_public_name(reference):
    groups = reference.public_names()
    assert sorted(name for names in groups.values() for name in names) == sorted(llm_ocr.__all__)
    assert all(groups.values())


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site/reference/settings.html").stat().st_size > 100_000
    python = (tmp_path / "site/reference/python.html").read_text(encoding="utf-8")
    assert [name for name in llm_ocr.__all__ if f"{name}</span>" not in python and f".{name}" not in python] == []


def test_commands_of_recorded_results_exist():
    recorded = [json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "benchmarks/results").glob("*.json")]
    commands = [result["command"] for result in recorded if isinstance(result, dict) and "command" in result]
    programs = {word for command in commands for word in command.split() if word.endswith(".py")}
    assert len(programs) > 10 and [program for program in programs if not (ROOT / program).exists()] == []
