"""Packages add commands, engines, and export formats: what they promise, and what a broken package leaves intact."""

import importlib
import inspect
import json
import shutil
import sys
import textwrap

import pytest
from running import cli, own_process

import llm_ocr
from llm_ocr import plugins
from llm_ocr.config import fields
from llm_ocr.config.commands import CORE, all_commands, find_command
from llm_ocr.errors import UsageError

COUNTING = '''
"""Count pages."""
from pydantic import Field
from llm_ocr import UsageError, open
from llm_ocr.config.groups import OwnWorkspaceSettings
from llm_ocr.plugins import Command

COUNT = Command(
    "count-pages", "Count the pages of a run", "counting:Settings", "counting:count", "count-pages [-w FOLDER]",
    (("llm-ocr count-pages -w out", "Print the number"),),
)

class Settings(OwnWorkspaceSettings):
    """Settings of the command."""

    counted_status: str = Field("ok", description="Status of the pages to count")

def count(settings, progress):
    if settings.counted_status not in ("ok", "failed"):
        raise UsageError(f"`counted_status={settings.counted_status}`: must be ok or failed")
    pages = [page for page in open(settings.workspace).pages(images=False) if page.status == settings.counted_status]
    return f"{len(pages)} pages"
'''

LETTERS = '''
"""Read each page as its number."""
from llm_ocr.types import Attempt, Block, BlockKind, Box, Status

class Letters:
    name, workers, result_version, page_text = "letters", 1, 1, ""

    def page_reader(self, options):
        return self

    def identity(self):
        return {"engine": self.name, "result_version": self.result_version}

    async def read(self, page, on_dispatched):
        on_dispatched()
        block = Block(BlockKind.TEXT, Box(0, 0, 1, 1), f"Page {page.number} by letters")
        return Attempt(self.name, "ocr", Status.OK, (block,))

    async def close(self):
        pass

ENGINE = Letters()
'''


class Installation:
    """Folder of packages that stands before those of the environment, and the program that finds them."""

    def __init__(self, folder):
        self.folder = folder
        self.packages = folder / "packages"
        self.packages.mkdir()

    def add(self, name, entry_points, module, text):
        """Install a distribution of one module."""
        metadata = self.packages / f"{name.replace('-', '_')}-1.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (metadata / "entry_points.txt").write_text(entry_points)
        path = self.packages / f"{module.replace('.', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        forget_packages()

    def run(self, *arguments, **variables):
        """Run the console program in this process."""
        return cli(*arguments, cwd=self.folder, env=variables)

    def run_alone(self, *arguments):
        """Run the console program in a process of its own."""
        return own_process(*arguments, cwd=self.folder, env={"PYTHONPATH": str(self.packages)})


def forget_packages():
    """Forget which packages are installed, and what they add."""
    importlib.invalidate_caches()
    for known in (plugins._entries_on, plugins._search, fields.settings_of, fields._models_of, fields._settings_of):
        known.cache_clear()


@pytest.fixture
def installed(tmp_path, repository, monkeypatch):
    """Return an installation beside an assembled workspace of two pages, `w`."""
    shutil.copytree(repository / "tests/fixtures/workspace-format-1", tmp_path / "w")
    installation = Installation(tmp_path)
    monkeypatch.syspath_prepend(installation.packages)
    yield installation
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(installation.packages)):
            del sys.modules[name]
    monkeypatch.undo()
    forget_packages()


@pytest.fixture
def counting(installed):
    installed.add("counting", "[llm_ocr.commands]\ncount-pages = counting:COUNT\n", "counting", COUNTING)
    return installed


@pytest.fixture
def documented(installed):
    """The format in the documentation of the border, installed as written there."""
    entry = next(line for line in plugins.__doc__.splitlines() if line.strip().startswith("word-counts = "))
    # Python 3.13 removes the indentation of docstrings, and older ones do not.
    example = inspect.cleandoc(plugins.Export.__doc__).partition("Example:\n")[2].partition("\nUses:")[0]
    points = f"[llm_ocr.exports]\n{entry.strip().replace(chr(34), '')}\n"
    installed.add("word-counting", points, "my_package.counts", textwrap.dedent(example))
    return installed


def test_documented_format_exports_as_written(documented):
    done = documented.run("export", "-w", "w", "--format", "word-counts", "--output", "o")
    assert done.returncode == 0, done.stderr
    (file,) = (documented.folder / "o").glob("*.json")
    counted = json.loads(file.read_text())
    assert (counted["source"].rpartition("/")[2], counted["words"] > 100) == ("paper.pdf", True)
    assert done.stdout.splitlines()[-1] == f"Open it: cat {documented.folder}/o/*.json"


def test_format_is_accepted_by_variables_and_python(documented):
    assert documented.run("export", "-w", "w", "--output", "a", LLM_OCR_FORMAT="word-counts").returncode == 0
    llm_ocr.export(workspace=documented.folder / "w", output=documented.folder / "b", format="word-counts")
    assert [len(list((documented.folder / name).glob("*.json"))) for name in "ab"] == [1, 1]


def test_format_is_a_choice_in_help_and_errors(documented):
    every = (*plugins.EXPORTS.names(),)
    assert "word-counts" in every and len(every) > 12
    assert f"--format {{{','.join(every)}}}" in documented.run("export", "--help").stdout
    wrong = documented.run("export", "-w", "w", "--output", "o", "--format", "word-count")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    said = f"--format word-count: must be one of {', '.join(every)}; did you mean word-counts?"
    assert wrong.stderr == f"llm-ocr: {said}\n"


def test_command_of_a_package_prints_its_result(counting):
    done = counting.run("count-pages", "-w", "w")
    assert (done.returncode, done.stdout, done.stderr) == (0, "2 pages\n", "")
    assert counting.run("count-pages", "-w", "w", LLM_OCR_COUNTED_STATUS="failed").stdout == "0 pages\n"
    failed = counting.run("count-pages", "-w", "w", "--counted-status", "no")
    assert (failed.returncode, failed.stderr) == (2, "llm-ocr: --counted-status no: must be ok or failed\n")


def test_command_of_a_package_has_help_and_settings(counting):
    listed = counting.run("--help").stdout.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert listed[-1].split(maxsplit=1) == ["count-pages", "Count the pages of a run"]
    assert "--counted-status TEXT" in counting.run("help", "count-pages").stdout
    shown = counting.run("count-pages", "--show-settings", LLM_OCR_COUNTED_STATUS="failed").stdout
    assert "environment LLM_OCR_COUNTED_STATUS" in shown
    assert "unknown flag --counted-status" in (wrong := counting.run("status", "--counted-status", "ok").stderr)
    assert "These commands have this flag: count-pages" in wrong
    assert "count-pages" in counting.run("completion", "bash").stdout


def test_engine_of_a_package_reads_pages(installed, examples):
    installed.add("letters", "[llm_ocr.engines]\nletters = letters:ENGINE\n", "letters", LETTERS)
    paper = str(examples / "paper.pdf")
    done = installed.run_alone("extract", paper, "-w", "read", "--engine", "letters", "--render-workers", "1")
    assert done.returncode == 0, done.stderr
    pages = list(llm_ocr.open(installed.folder / "read").pages(images=False))
    assert [page.engine for page in pages] == ["letters"] * len(pages)
    assert pages[0].markdown.strip() == "Page 1 by letters"
    wrong = installed.run("extract", paper, "-w", "other", "--engine", "letter")
    choices = "auto, vllm, server, embedded, hybrid, letters"
    assert (wrong.returncode, wrong.stderr) == (
        2, f"llm-ocr: --engine letter: must be one of {choices}; did you mean letters?\n"
    )  # fmt: skip
    refused = installed.run("extract", paper, "-w", "other", "--engine", "letters", "--model", "glm-ocr")
    assert "--model has no effect with the engine letters" in refused.stderr
    assert "--engine {auto,vllm,server,embedded,hybrid,letters}" in installed.run("extract", "--help").stdout


def test_version_names_packages_and_what_they_add(counting):
    first, *packages = counting.run("--version").stdout.splitlines()
    assert first == f"llm-ocr {llm_ocr.__version__}"
    assert "command count-pages (counting)" in packages
    assert any(line.startswith("commands report, view; export formats alto, chunks, dataset") for line in packages)


BROKEN = {
    "import": "import a_module_that_nobody_has",
    "syntax": "this is not Python",
    "object": "COUNT = export = 1",
    "model": COUNTING.replace("counting:Settings", "counting:Setting"),
    "function": COUNTING.replace("counting:count", "count:count"),
}


@pytest.mark.parametrize("how", ["import", *(pytest.param(how, marks=pytest.mark.slow) for how in [*BROKEN][1:])])
def test_broken_package_fails_its_own_command_alone(installed, how):
    points = "[llm_ocr.commands]\ncount-pages = counting:COUNT\n[llm_ocr.exports]\nbroken = counting:export\n"
    installed.add("counting-tools", points, "counting", BROKEN[how])
    done = installed.run("count-pages", "-w", "w")
    assert (done.returncode, done.stdout) == (1, "")
    assert "count-pages" in done.stderr and "count" in done.stderr and "Traceback" not in done.stderr
    for others in (["--help"], ["--version"], ["status", "-w", "w", "--config", "c.toml"], ["completion", "zsh"]):
        (installed.folder / "c.toml").write_text("quiet = true\n")
        assert installed.run(*others).returncode == 0, others
    if how in ("import", "syntax", "object"):
        [line] = [line for line in installed.run("--help").stdout.splitlines() if line.startswith("  count-pages ")]
        reason = "is no `Command`" if how == "object" else "of counting-tools cannot be imported from counting:COUNT"
        assert line.split(maxsplit=1)[1].startswith("not available: the ") and reason in line
    if how in ("import", "syntax"):
        assert "the command 'count-pages' of counting-tools cannot be imported from counting:COUNT" in done.stderr
        export = installed.run("export", "-w", "w", "--output", "o", "--format", "broken")
        assert "the export format 'broken' of counting-tools cannot be imported" in export.stderr
        assert (export.returncode, "pip uninstall counting-tools" in export.stderr) == (1, True)


def test_name_of_two_packages_is_refused(counting, documented):
    counting.add("tallies", "[llm_ocr.commands]\ncount-pages = tallies:COUNT\n", "tallies", "COUNT = None")
    counting.add("words", "[llm_ocr.exports]\nword-counts = words:export\n", "words", "export = None")
    done = counting.run("count-pages", "-w", "w")
    assert (done.returncode, done.stderr) == (
        2,
        "llm-ocr: counting and tallies provide the command 'count-pages'\n"
        "Uninstall one of them: pip uninstall PACKAGE\n",
    )
    done = counting.run("export", "-w", "w", "--output", "o", "--format", "word-counts")
    assert (done.returncode, "word-counting and words provide the export format" in done.stderr) == (2, True)
    assert "not available: counting and tallies provide" in counting.run("--help").stdout


def test_command_of_the_core_cannot_be_replaced(installed):
    text = COUNTING.replace("count-pages", "status")
    installed.add("counting", "[llm_ocr.commands]\nstatus = counting:COUNT\n", "counting", text)
    assert installed.run("--help").stdout.count("\n  status ") == 1
    assert installed.run("status", "-w", "w", "--json").stdout.startswith("{")


def test_without_packages_their_commands_are_unknown(monkeypatch, tmp_path, request):
    request.addfinalizer(fields.settings_of.cache_clear)  # choices that were asked for without packages
    monkeypatch.setattr(plugins, "_entries_on", lambda path, group: {})
    assert all_commands() == CORE
    with pytest.raises(UsageError, match="unknown command 'view'"):
        find_command("view")
    with pytest.raises(UsageError, match="no command is installed"):
        llm_ocr.view(workspace=tmp_path / "w", output=tmp_path / "site")
