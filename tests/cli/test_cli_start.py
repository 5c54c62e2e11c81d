"""How the program starts: quickly, from any of its names, with settings from everywhere."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from llm_ocr.cli import _with_stage, main
from llm_ocr.config.commands import all_commands
from llm_ocr.workspace import Workspace

HEAVY = {
    *("numpy", "pyarrow", "pandas", "boto3", "datasets", "onnxruntime", "rapidocr", "cv2", "PIL", "pypdfium2"),
    *("rich", "torch"),
}


def test_help_and_status_import_nothing_heavy(tmp_path):
    Workspace.open(str(tmp_path / "w"), create=True).close()
    typed = (["--help"], ["--version"], ["run", "--help"], ["status", "--show-settings"], ["status", "-w", "w"])
    program = f"""
import sys
from llm_ocr.cli import main
for arguments in {typed!r}:
    print(main(arguments), *sys.modules, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=True)
    stages = {"aiohttp", "llm_ocr.engines.pool", "llm_ocr.stages.execute"}
    heavy = (HEAVY | {"pydantic"}, HEAVY, HEAVY, HEAVY, HEAVY - {"rich"} | stages)
    for arguments, unwanted, line in zip(typed, heavy, done.stderr.splitlines(), strict=True):
        code, *modules = line.split()
        assert (code, unwanted & {*modules}) == ("0", set()), arguments


@pytest.mark.slow
def test_rows_are_written_without_pandas(workspace):
    """pyarrow imports it before its first array: half a second of each command."""
    pytest.importorskip("pandas")
    code = f"""
import sys
from llm_ocr.cli import main
sys.argv[1:] = ["assemble", "-w", {str(workspace)!r}, "--no-page-markers"]
main()
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"pyarrow", "pandas"} & set(done.stdout.split()) == {"pyarrow"}


def test_general_help_names_every_command_and_needs_no_settings(llm_ocr):
    done = llm_ocr("--help")
    assert done.returncode == 0
    for command in all_commands():
        assert f"\n  {command.name} " in done.stdout
    assert llm_ocr("help").stdout == done.stdout


def test_help_of_a_command_by_both_ways(llm_ocr):
    assert llm_ocr("help", "clean").stdout == llm_ocr("clean", "--help").stdout != ""
    assert llm_ocr("help", "cleen").returncode == 2


def test_stages_as_a_module_are_the_same_program(llm_ocr):
    done = llm_ocr("extract", "--show-settings", "-w", "W", module=".stages")
    assert (done.returncode, done.stdout) == (0, llm_ocr("extract", "--show-settings", "-w", "W").stdout)


def test_environment_variables_alone_are_enough(llm_ocr, called):
    env = {"LLM_OCR_SOURCES": "a,b.pdf\nc.pdf", "OUTPUT_DIR": "out", "MAX_SAMPLES": "0", "PIPELINE_STAGE": "extract"}
    done = llm_ocr(stub={}, env=env, process=True)
    assert done.returncode == 0, done.stderr
    got = called()
    assert (got["command"], got["sources"], got["workspace"]) == ("extract", ["a,b.pdf", "c.pdf"], "out")
    assert got["max_samples"] is None
    assert "warning" not in done.stderr


@pytest.mark.parametrize(
    ("typed", "command"),
    [(["-w", "W"], "assemble"), (["describe", "-w", "W"], "describe")],
)
def test_flags_may_follow_the_stage_of_the_environment(monkeypatch, typed, command):
    monkeypatch.setenv("PIPELINE_STAGE", "Assemble")
    assert _with_stage(typed) == [command, "-w", "W"]


@pytest.mark.slow
def test_predecessor_runner_runs_the_stage_and_fails_with_it(tmp_path):
    """Its job scripts call `main()`, drop the value, and then note a success."""
    runner = "from llm_ocr.cli import main; main(); open('success', 'w')"
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2])}

    def run(**more):
        command = [sys.executable, "-c", runner]
        return subprocess.run(command, env={**env, **more}, cwd=tmp_path, capture_output=True, text=True)

    done = run(PIPELINE_STAGE="assemble", LLM_OCR_WORKSPACE="nowhere")
    assert (done.returncode, "no workspace" in done.stderr) == (1, True), done.stderr
    helped = run()
    assert (helped.returncode, helped.stderr.startswith("Usage: llm-ocr COMMAND")) == (2, True)
    assert not (tmp_path / "success").exists()


def test_cli_package_runs_as_a_program_like_the_predecessor(llm_ocr):
    assert llm_ocr("--version", module=".cli").stdout == llm_ocr("--version").stdout != ""
    done = llm_ocr(module=".cli", env={"PIPELINE_STAGE": "ocr"})
    assert done.returncode == 2
    assert "PIPELINE_STAGE=ocr: must be one of extract, describe, assemble" in done.stderr


def test_a_bad_value_ends_with_2_and_names_variable_and_value(llm_ocr, tmp_path):
    done = llm_ocr("run", "a.pdf", env={"MAX_SAMPLES": "1k"})
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []
    assert done.stderr == "llm-ocr: MAX_SAMPLES=1k: must be a whole number, 1 or more\n"


def test_a_flag_before_the_command_is_explained(llm_ocr):
    done = llm_ocr("-w", "x", "run")
    assert (done.returncode, "Put the command first" in done.stderr) == (2, True)


def test_show_settings_prints_values_and_origins_masks_secrets(llm_ocr, tmp_path):
    (tmp_path / ".env").write_text("LLM_OCR_PASSWORD=hunter2\nLLM_OCR_PAGES=1-3\n")
    (tmp_path / "c.toml").write_text('engine = "embedded"\npages = "9"\n')
    done = llm_ocr(
        "run", "a.pdf", "--config", "c.toml", "--max-failed-rate", "0.5", "--show-settings", env={"MAX_SAMPLES": "7"}
    )
    assert (done.returncode, done.stderr) == (0, "")
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in done.stdout.splitlines()}
    assert rows["pages"] == ["1-3", ".env LLM_OCR_PAGES"]
    assert rows["password"] == ["********", ".env LLM_OCR_PASSWORD"]
    assert rows["max_samples"] == ["7", "environment MAX_SAMPLES"]
    assert rows["engine"] == ["embedded", "file c.toml"]
    assert rows["max_failed_rate"] == ["0.5", "flag --max-failed-rate"]
    assert rows["quiet"] == ["false", "default"]
    assert "hunter2" not in done.stdout


@pytest.mark.parametrize("command", all_commands(), ids=lambda command: command.name)
def test_every_command_shows_its_settings_without_a_workspace(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    needed = ["slurm", "extract"] if command.name == "launch" else []
    assert main([command.name, *needed, "--show-settings"]) == 0
    shown = capsys.readouterr()
    assert "default" in shown.out and shown.err == ""
    assert list(tmp_path.iterdir()) == []


def test_warnings_about_variables_come_once_at_start(llm_ocr):
    done = llm_ocr("run", "a.pdf", stub={}, env={"EXTRACT_BATCH_SIZE": "4", "JOB_CODE_REPO": "m", "LLM_OCR_PAGS": "1"})
    assert done.returncode == 0
    assert [line for line in done.stderr.splitlines() if "warning" in line] == [
        "llm-ocr: warning: unknown variable LLM_OCR_PAGS is ignored; did you mean LLM_OCR_PAGES?",
        "llm-ocr: warning: ignored variables: EXTRACT_BATCH_SIZE, JOB_CODE_REPO (see docs/migrating.md)",
    ]


def test_init_writes_a_file_that_run_takes(llm_ocr, tmp_path, called):
    assert llm_ocr("init").returncode == 0
    path = tmp_path / "llm-ocr.toml"
    assert tomllib.loads(path.read_text()) == {}
    assert llm_ocr("run", "a.pdf", "--config", "llm-ocr.toml", stub={}).returncode == 0
    untouched = called()
    shown = [line.removeprefix("# ") if line.startswith("# ") and " = " in line else line for line in lines(path)]
    path.write_text("\n".join(shown))
    assert set(tomllib.loads(path.read_text())) == set(untouched) - {"command"}
    assert llm_ocr("run", "a.pdf", "--config", "llm-ocr.toml", stub={}).returncode == 0
    assert called() == untouched


def test_init_does_not_replace_a_file_unless_told(llm_ocr, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("pages = '1'\n")
    done = llm_ocr("init", "mine.toml")
    assert (done.returncode, path.read_text()) == (2, "pages = '1'\n")
    assert "Replace it with --force" in done.stderr
    assert llm_ocr("init", "mine.toml", "--force").returncode == 0
    assert "max_samples" in path.read_text()
    assert llm_ocr("init", "no/such/folder.toml").returncode == 1


def test_the_log_goes_to_a_file_as_json(llm_ocr, tmp_path):
    done = llm_ocr(
        "run", "a.pdf", "--log-file", "log", "--log-format", "json", "--log-level", "debug", stub={"raises": "bug"}
    )
    assert done.returncode == 1
    record = json.loads((tmp_path / "log").read_text())
    assert (record["level"], record["logger"]) == ("debug", "llm_ocr")
    assert "RuntimeError: first line" in record["exception"]
    assert "Traceback" not in done.stderr


def test_a_log_file_that_cannot_be_written_is_wrong_usage(llm_ocr):
    done = llm_ocr("run", "a.pdf", "--log-file", "no/such/log", stub={})
    assert done.returncode == 2
    assert "--log-file no/such/log cannot be written: No such file or directory" in done.stderr


def lines(path: Path) -> list[str]:
    """Lines that are settings or their explanations; the head of the file is left out."""
    return path.read_text().splitlines()[4:]
