"""No message, script or document suggests to install the library from a package index: its name there is not ours."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from llm_ocr.errors import MissingExtra, install_command

#: Files that users read or run.
KINDS = {".py", ".md", ".ipynb", ".html", ".toml", ".yaml", ".yml", ".json", ".txt", ".sh", ".cfg", ".Dockerfile", ""}
#: The changelog quotes earlier versions; tests use what a user with an index of their own may give.
ELSEWHERE = re.compile(r"CHANGELOG\.md|tests/")
#: `llm-ocr[extra]` and `llm-ocr==1.0` without ` @ SOURCE`, and installers that are given the bare name.
FROM_AN_INDEX = re.compile(
    r"""(?x) \b llm[-_]ocr \[ [a-z][\w, -]* \] (?! \s@\s)
    | \b llm[-_]ocr \s* [=~<>]= \s* (?: [0-9] | VERSION)
    | (?: pip3?\s+install | pipx\s+(?:install|run) | uv\s+(?:add|sync) | uv\s+(?:pip|tool)\s+install | --with
      | uvx (?! \s+--from\s+"[^"]*\s@\s) )
      (?= [\s=] ) (?: [^\n`|;&]* [\s"'=\\] )? llm[-_]ocr (?= ["'\s`\\),.;:] | $ ) (?! ["'\\]* \s@\s )"""
)


def suggestions(text: str) -> list[str]:
    """The lines that suggest such a source."""
    return [line for line in text.splitlines() if "llm" in line and FROM_AN_INDEX.search(line)]


def files(repository: Path) -> list[Path]:
    """The files of the repository that Git tracks or would, generated and large data files left out."""
    words = ["git", "-C", str(repository), "ls-files", "--cached", "--others", "--exclude-standard"]
    run = subprocess.run(words, capture_output=True, text=True)
    if run.returncode:
        pytest.skip("this is no Git checkout")
    names = {name for name in run.stdout.splitlines() if not ELSEWHERE.match(name)}
    return [path for name in sorted(names) if (path := repository / name).suffix in KINDS and path.is_file()]


def test_nothing_in_the_repository_suggests_a_package_index(repository):
    found = {}
    for path in files(repository):
        if lines := suggestions(path.read_text(errors="replace")):
            found[path.relative_to(repository).as_posix()] = [line.strip()[:160] for line in lines]
    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        *("pip install llm-ocr", 'pip install "llm-ocr"', 'hint="pip install --upgrade llm-ocr"'),
        *("`pip install 'llm-ocr[embedded]'`", 'Install it: pip install "llm-ocr[cloud-run]"'),
        *('# dependencies = ["llm-ocr[vllm]==0.1.0"]', '# dependencies = ["llm-ocr==0.1.0"]'),
        *("| `--wheel llm-ocr==VERSION` |", "uv add llm-ocr", "uv pip install llm-ocr"),
        *("uv run --with llm-ocr script.py", "%pip install -q llm-ocr"),
    ],
)
def test_a_suggestion_is_recognized(line):
    assert suggestions(line)


@pytest.mark.parametrize(
    "line",
    [
        'pip install -e ".[embedded]"',
        'pip install "llm-ocr[embedded] @ git+https://example.org/llm-ocr@main"',
        'hf jobs uv run --with "llm-ocr @ git+https://example.org/llm-ocr" script.py',
        'uvx --from "llm-ocr[embedded] @ git+https://example.org/llm-ocr" llm-ocr run report.pdf',
        "pip install /mnt/llm_ocr-0.1.0-py3-none-any.whl",
        "llm-ocr launch hf-jobs extract",
        'pip install "boto3>=1.36"',
    ],
)
def test_a_source_of_the_users_own_is_not(line):
    assert not suggestions(line)


def test_command_for_an_extra_names_its_packages_and_bounds(repository):
    extras = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra in extras.keys() - {"dev"}:
        named = {Requirement(text) for text in re.findall(r'"(.*?)"', install_command(extra))}
        needed = {one for one in map(Requirement, extras[extra]) if one.marker is None or one.marker.evaluate()}
        if needed:  # not every system has packages of every extra
            assert {str(one) for one in named} == {str(one).partition(";")[0] for one in needed}, extra


def test_the_command_for_a_needed_package_names_its_bounds():
    assert install_command("pyarrow") == 'pip install "pyarrow>=18"'


def test_a_missing_extra_says_what_to_install():
    assert MissingExtra("s3:// needs boto3", install="s3").hint == 'Install it: pip install "boto3>=1.36"'
    assert MissingExtra("no", hint="Use the same version.").hint == "Use the same version."


def test_a_checkout_that_was_not_installed_names_itself(repository, tmp_path):
    """On PYTHONPATH the library has no metadata."""
    (tmp_path / "llm_ocr").symlink_to(repository / "llm_ocr")
    code = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; import importlib.metadata as metadata\n"
        "def none(name): raise metadata.PackageNotFoundError(name)\n"
        "metadata.requires = none\n"
        "from llm_ocr.errors import install_command; print(install_command('s3'))"
    )
    run = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == 'pip install -e ".[s3]" in the checkout of the library'
