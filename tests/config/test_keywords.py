"""The keywords of the Python API as type checkers see them: current, and really checked."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import make_keywords
import pytest

import llm_ocr
from llm_ocr.config import keywords, models
from llm_ocr.config.loading import settings_from
from llm_ocr.session import OF_RUNS

PARAMETERS = {"sources", "workspace", "output", "platform", "stage", "schema"}
RIGHT = """
from pathlib import Path
import llm_ocr

llm_ocr.run("a.pdf", workspace=Path("w"), pages="1-3", image_size=800, model=Path("weights"), server_url=["http://a"])
llm_ocr.extract(["a.pdf", Path("b.pdf")], workspace="w", password="secret", max_hours=2, config=Path("c.toml"))
llm_ocr.export(workspace="w", output=Path("o"), format="markdown")
llm_ocr.estimate(page_count=10, stage="extract", hardware="hf-jobs:l4x1")
llm_ocr.submit("slurm", "extract", "a.pdf", workspace="w", time_limit="90m", detach=True)
llm_ocr.Session(progress=None, engine="embedded", max_hours=2, image_size=800)
"""
ERROR_LINE = re.compile(r"script\.py:(\d+):.*error:")
WRONG = (
    'llm_ocr.run("a.pdf", workspace="w", pagse="1-3")',
    'llm_ocr.plan("a.pdf", workspace="w", server_url="http://a")',
    'llm_ocr.export(workspace="w", output="o", format="mrkdown")',
    'llm_ocr.describe(workspace="w", follow="yes")',
    'llm_ocr.submit("slurm", "extract", workspace="w", shards="two")',
    'llm_ocr.open("w", reigon="eu")',
    'llm_ocr.Session(engin="embedded")',
    'llm_ocr.Session(engine="cpu")',
    'llm_ocr.Session(pages="1-3")',
)


def test_the_generated_module_is_current():
    assert make_keywords.FILE.read_text() == make_keywords.source(), "run: python tests/config/make_keywords.py"


@pytest.mark.parametrize("name", make_keywords.CALLS)
def test_a_call_takes_every_setting_of_its_command(name):
    model, left_out, function = make_keywords.CALLS[name]
    taken = set(getattr(keywords, name).__annotations__) - {"config"}
    assert taken == set(model.model_fields) - {"sources", "workspace"} - left_out
    own = {name.removeprefix("fields_") for name in left_out - OF_RUNS}
    assert own - {"max_hours", "max_cost"} <= PARAMETERS & set(inspect.signature(getattr(llm_ocr, function)).parameters)
    assert f"Unpack[{name}]" in str(inspect.signature(getattr(llm_ocr, function)))
    assert f"{keywords.__name__}.{name}" in getattr(llm_ocr, function).__doc__


@pytest.mark.parametrize("name", make_keywords.CALLS)
def test_the_help_of_a_call_names_every_setting_with_its_meaning(name):
    function = make_keywords.CALLS[name][2]
    lines = (inspect.getdoc(getattr(llm_ocr, function)) or "").partition("Settings:\n")[2].splitlines()
    told = dict(line.strip().split(": ", 1) for line in lines if re.match(r" {8}\w+: ", line))
    assert set(getattr(keywords, name).__annotations__) - {"config"} == set(told)
    assert all(told.values()) and "--server" not in "".join(lines)


def test_paths_and_single_values_are_accepted_as_typed(tmp_path):
    chosen = settings_from(
        models.RunSettings,
        "run",
        {"model": Path("weights"), "server_url": "http://a", "log_file": "l", "password": "p", "crop": "image,table"},
    )
    assert (chosen.model, chosen.server_url, chosen.log_file) == ("weights", ("http://a",), Path("l"))
    assert (len(chosen.password), chosen.crop) == (1, ("image", "table"))


@pytest.mark.slow
def test_pyright_accepts_right_and_refuses_wrong_keywords(tmp_path):
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')  # pyright's own default
    assert wrong_lines(tmp_path, ["basedpyright", f"--project={tmp_path}", f"--pythonpath={sys.executable}"]) == WRONG


@pytest.mark.slow
def test_mypy_accepts_right_and_refuses_wrong_keywords(tmp_path):
    options = ["--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}", "--follow-imports=silent"]
    assert wrong_lines(tmp_path, ["mypy", *options, "--ignore-missing-imports", str(tmp_path / "script.py")]) == WRONG


def wrong_lines(folder: Path, checker: list[str]) -> tuple[str, ...]:
    """Return the lines of a script of right and wrong calls in which a type checker finds errors."""
    script = folder / "script.py"
    script.write_text(RIGHT + "\n".join(WRONG) + "\n")
    command = [sys.executable, "-m", *checker]
    found = subprocess.run(command, cwd=Path(llm_ocr.__file__).parent.parent, capture_output=True, text=True)
    assert not found.stderr, found.stderr
    lines = script.read_text().splitlines()
    return tuple(lines[int(number) - 1] for number in sorted({*ERROR_LINE.findall(found.stdout)}, key=int))
