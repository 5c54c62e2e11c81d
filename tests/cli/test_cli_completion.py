"""Completion scripts, loaded by real shells."""

import shutil
import subprocess

import pytest

_BASH = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
$(complete -p llm-ocr | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
printf '%s\\n' "${COMPREPLY[@]}"
"""
_TYPED = [
    (("ru",), "run"),
    (("run", "--engi"), "--engine"),
    (("run", "--engine", "em"), "embedded"),
    (("run", "--model", "deepseek-ocr-"), "deepseek-ocr-2"),
    (("export", "--format", "dol"), "dolma"),
    (("run", "sca"), "scans"),
    (("launch", "slu"), "slurm"),
    (("launch", "slurm", "desc"), "describe"),
    (("run", "-w", "out", "--std"), "--stdout"),
]


@pytest.fixture
def script(llm_ocr, tmp_path, request):
    done = llm_ocr("completion", request.param)
    assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "scans").mkdir()
    file = tmp_path / f"completion.{request.param}"
    file.write_text(done.stdout, encoding="utf-8")
    return file


@pytest.mark.parametrize("script", ["bash"], indirect=True)
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is missing on this machine")
def test_bash_completes_commands_flags_values_and_files(script):
    for typed, offered in _TYPED:
        words = ["bash", "--norc", "-c", _BASH, "bash", str(script), "llm-ocr", *typed]
        done = subprocess.run(words, capture_output=True, text=True, cwd=script.parent, timeout=240)
        assert offered in done.stdout.splitlines(), (typed, done.stderr)


@pytest.mark.parametrize("script", ["fish"], indirect=True)
@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is missing on this machine")
def test_fish_completes_the_same(script):
    environment = {"HOME": str(script.parent), "PATH": "/usr/bin:/bin"}
    for typed, offered in _TYPED:
        words = ["fish", "--no-config", "-c", f"source {script}; complete -C 'llm-ocr {' '.join(typed)}'"]
        done = subprocess.run(words, capture_output=True, text=True, cwd=script.parent, env=environment, timeout=240)
        assert offered in [line.split("\t")[0].rstrip("/") for line in done.stdout.splitlines()], (typed, done.stderr)


@pytest.mark.parametrize("script", ["zsh"], indirect=True)
@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is missing on this machine")
def test_zsh_accepts_the_script(script):
    asked = f"autoload -Uz compinit && compinit -u -D && source {script} && whence -w _shtab_llm_ocr"
    done = subprocess.run(["zsh", "-f", "-c", asked], capture_output=True, text=True, cwd=script.parent, timeout=240)
    assert "_shtab_llm_ocr: function" in done.stdout, done.stderr
