"""Promises about the repository itself: modules, names, messages, and tests."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import llm_ocr
from llm_ocr.config.fields import command_models, settings_of


def modules(repository: Path) -> list[Path]:
    folders = (repository / "llm_ocr", *(repository / "packages").glob("*/llm_ocr_*"))
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def test_every_module_says_what_it_is_for(repository):
    texts = {path: path.read_text() for path in modules(repository)}
    bare = [path for path, text in texts.items() if text.strip() and not text.startswith(('"""', 'r"""'))]
    assert bare == []


def test_package_and_project_file_have_the_same_version(repository):
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    assert project.get("version", llm_ocr.__version__) == llm_ocr.__version__
    assert version("llm-ocr") == llm_ocr.__version__


def test_the_licence_is_there_and_named(repository):
    assert "Apache License" in (repository / "LICENSE").read_text()[:400]
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"


def test_the_packages_are_marked_as_typed(repository):
    assert (repository / "llm_ocr" / "py.typed").is_file()
    assert (repository / "packages/outputs/llm_ocr_outputs/py.typed").is_file()
    assert (repository / "packages/cpu/llm_ocr_cpu/py.typed").is_file()


def test_one_module_alone_reads_the_environment(repository):
    readers = re.compile(r"\bos\.environ\b|\bos\.getenv\b|\bos\.environb\b|from os import .*\b(?:environ|getenv)\b")
    simulator = repository / "packages" / "simulator"  # a program of its own
    others = (path for path in modules(repository) if not path.is_relative_to(simulator))
    found = {path.relative_to(repository).as_posix() for path in others if readers.search(path.read_text())}
    # The second one runs before the library is installed.
    assert found == {"llm_ocr/config/environment.py", "llm_ocr/launch/bootstrap.py"}


#: Modules that print or send flags.
FLAGS_THERE = ("cli/", "config/", "launch/", "engines/vllm/", "models/")  # the last two have vLLM's
FLAGS_THERE += (
    "llm_ocr_ocrmypdf/",  # a plugin of another command line
    "llm_ocr_simulator/",
    "llm_ocr_platforms/modal/",
    "llm_ocr_platforms/slurm/",
    "llm_ocr_platforms/kubernetes/",
)
#: Arguments of other programs by file, and names in style sheets.
OF_OTHERS = {
    "llm_ocr_platforms/runpod/__init__.py": {"--test_input", "--rp_serve_api"},
    "llm_ocr_platforms/runpod/variables.py": {"--max-num-seqs", "--max-num-batched-tokens"},
    "llm_ocr_outputs/commands.py": {"--compare", "--output"},  # examples in the help of `view` and `report`
    "engines/client/endpoint.py": {"--metrics", "--enable-metrics"},  # of llama.cpp and SGLang
    "engines/vlm/retry.py": {"--reasoning-parser"},
    "llm_ocr_outputs/exports/olmocr_bench.py": {"--dir", "--candidate"},
    "llm_ocr_azure/errors.py": {"--name"},  # of az
    "llm_ocr_cpu/parts.py": {"--no-deps", "--force-reinstall"},  # of pip
    "plugins.py": {"--engine", "--format", "--help", "--version"},  # what its groups extend
    "llm_ocr_outputs/report/sections.py": {"--password-file"},  # of the command that the report shows
    "sandbox/confinement.py": {"--target"},
    "scheduling/shards.py": {"--array", "--num-jobs"},
    "stages/model_choice.py": {"--chat-template", "--logits-processors"},
    "stages/servers.py": {"--chat-template"},
    "stages/start_checks.py": {"--quantization", "--recommend"},  # the last of `llm-ocr models`
    "storage/gcs/errors.py": {"--location", "--project"},
    "storage/s3/client.py": {"--x-s3"},
    "storage/s3/errors.py": {"--profile", "--endpoint-url"},  # of aws
    "workspace/verdict.py": {"--gpu-memory-utilization", "--max-num-seqs", "--renderer-num-workers"},
}
STYLE = re.compile(r"--(?:c\d|back|card|ink|soft|rule|ok|degraded|failed|left|c)\b")


def test_messages_outside_the_command_line_name_no_flags(repository):
    core, packages = repository / "llm_ocr", (repository / "packages").glob("*/llm_ocr_*")
    named = {path.relative_to(core).as_posix(): path for path in core.rglob("*.py")}
    named |= {path.relative_to(one.parent).as_posix(): path for one in packages for path in one.rglob("*.py")}
    found = {}
    for name, path in sorted(named.items()):
        if name.startswith(FLAGS_THERE):
            continue
        text = STYLE.sub("", path.read_text()) if name == "llm_ocr_outputs/report/__init__.py" else path.read_text()
        flags = set(re.findall(r"--[a-z][a-z0-9_-]+", text)) - {"--help"} - OF_OTHERS.get(name, set())
        if flags:
            found[name] = flags
    assert found == {}


def test_settings_with_a_value_in_messages_exist(repository):
    """The command line shows a known setting as its flag, and leaves a misspelled one as it is."""
    known = {name for model in command_models().values() for name in settings_of(model)} | {"max_num_seqs"}  # of vLLM
    named = re.compile(r"`([a-z][a-z0-9_]*)=[^`\n]*`")
    found = {
        (path.name, name)
        for path in modules(repository)
        if not path.is_relative_to(repository / "llm_ocr/cli")
        for name in named.findall(path.read_text())
        if name not in known and "_" in name
    }
    assert found == set()


def test_no_file_names_a_folder_of_a_developers_machine(repository):
    texts = [path for pattern in ("*.md", "docs/**/*.md", "benchmarks/**/*.*") for path in repository.glob(pattern)]
    written = [path for path in texts if path.suffix in (".md", ".py", ".json", ".toml", ".tsv")]
    for path in (*written, *modules(repository)):
        assert not re.search(r"/(?:home|Users|root|work)/\w+", path.read_text()), path


def test_benchmarks_import_what_the_library_has(repository):
    lacking = []
    for path in (repository / "benchmarks").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("llm_ocr"):
                names = [name.name for name in node.names]
                module = __import__(node.module or "", fromlist=names)  # imports modules among the names, too
                lacking += [f"{path}: {name}" for name in names if not hasattr(module, name)]
    assert lacking == []


def test_names_of_tests_have_at_most_sixty_characters(repository):
    files = [*(repository / "tests").rglob("*.py"), *(repository / "packages").rglob("*.py")]
    names = {name for path in files for name in re.findall(r"\bdef (test_\w+)", path.read_text())}
    assert sorted(name for name in names if len(name) > 60) == []


def test_nothing_is_left_to_do_in_the_code(repository):
    marks = re.compile(r"\b(?:TODO|FIXME|XXX)\b|# type: ignore(?!\[)|except Exception:\s*\n\s*pass")
    assert [path for path in modules(repository) if marks.search(path.read_text())] == []


def test_missing_tool_skips_the_test_or_fails_it_if_required(require, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("LLM_OCR_REQUIRE", "chromium")
    with pytest.raises(pytest.skip.Exception, match="poppler is not installed"):
        require("poppler")
    monkeypatch.setenv("LLM_OCR_REQUIRE", "chromium, poppler")
    with pytest.raises(pytest.fail.Exception, match="LLM_OCR_REQUIRE names it"):
        require("poppler")


FAILS = """
import multiprocessing, subprocess, sys, time

def test_fails(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    child.start()
    print("pids", process.pid, child.pid)
    assert False

def test_passes():
    pass
"""


def run_pytest(repository, folder, content, *options):
    """Run these tests with the project's conftest."""
    (folder / "test_it.py").write_text(content)
    # In a folder of its own, because pytest deletes the older folders of all its runs: up to minutes of work.
    options = ("-p", "conftest", "-p", "no:cacheprovider", "--basetemp", str(folder / "temporary"), *options)
    command = [sys.executable, "-m", "pytest", *options, "test_it.py"]
    found = ":".join(str(repository / name) for name in (".", "tests/api", "tests/documents"))
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": found}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)


SLOW = """
import pytest, time
from conftest import _loop_seconds

def busy():
    end = time.process_time() + 6 * _loop_seconds()
    while time.process_time() < end:
        pass

def test_busy():
    busy()

@pytest.mark.slow
def test_marked():
    busy()

def test_waits():
    time.sleep(0.5)
"""


@pytest.mark.slow
def test_unmarked_tests_that_compute_for_long_are_listed(repository, tmp_path):
    run = run_pytest(repository, tmp_path, SLOW, "--most-loops", "2")
    assert "3 passed" in run.stdout, run.stdout + run.stderr
    listed = [line.partition(": ")[0] for line in run.stdout.splitlines() if "loops of processor time" in line]
    assert listed == ["test_it.py::test_busy"]


def test_a_test_that_fails_leaves_no_process_behind(repository, tmp_path):
    run = run_pytest(repository, tmp_path, FAILS)
    assert "1 failed, 1 passed" in run.stdout, run.stdout + run.stderr
    found = re.search(r"^pids (\d+) (\d+)$", run.stdout, re.MULTILINE)
    assert found is not None
    listed = subprocess.run(["ps", "-o", "stat=", "-p", ",".join(found.groups())], capture_output=True, text=True)
    assert [line for line in listed.stdout.split() if not line.startswith("Z")] == []
