"""Notebooks as they are stored: made from one template, short, and with the outputs of a run."""

import ast
import json
import re
import tomllib
from typing import Any

import nbformat
import pytest
from checked_runs import check
from make_notebooks import built
from notebook_runs import NAMES, NOTEBOOKS, REPOSITORY, cell_of, code_of, read
from packaging.requirements import Requirement

LONGEST = 150  # lines of code
#: What a notebook may import besides the library.
HELPERS = {"json", "itertools"}
LARGEST = 600_000  # bytes
#: Folders and addresses of the machine that ran the notebook, and keys of the stand-ins.
_OF_THE_RUN = re.compile(
    r"/(?:tmp|work|root|var|home/(?!you\b)\w+)/|(?:127\.0\.0\.1|localhost):\d|AKIA|of[- ]the[- ]tests\b"
    r"|\bhf_(?:owner|fake)"
)


def test_there_is_one_for_this_machine_and_each_platform():
    assert NAMES == ("cloud_run", "hf_jobs", "local", "modal", "sagemaker")


@pytest.mark.parametrize("name", NAMES)
def test_it_is_what_the_template_makes(name):
    notebook, made = read(name), built(name)
    nbformat.validate(notebook)
    again = f"make it again: .venv/bin/python tests/notebooks/make_notebooks.py {name}"
    assert [(one.id, one.source) for one in notebook.cells] == [(one.id, one.source) for one in made.cells], again
    assert notebook.metadata == made.metadata


@pytest.mark.parametrize("name", NAMES)
def test_its_outputs_are_of_a_whole_run(name):
    notebook = read(name)
    check(notebook)
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == [*range(1, len(counts) + 1)]


@pytest.mark.parametrize("name", NAMES)
def test_its_outputs_name_no_machine_and_no_key(name):
    stored = (NOTEBOOKS / f"{name}.ipynb").read_text()
    assert len(stored.encode()) < LARGEST
    assert not _OF_THE_RUN.search(re.sub(r"base64,[A-Za-z0-9+/=]+", "", stored))
    assert not any(one.get("name") == "stderr" for cell in read(name).cells for one in cell.get("outputs", ()))


@pytest.mark.parametrize("name", NAMES)
def test_first_code_cell_installs_the_library_from_checkout(name, monkeypatch):
    notebook = read(name)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert first.id == "install"
    setting, _, pip = first.source.partition("\nif find_spec")
    monkeypatch.chdir(NOTEBOOKS)
    place: dict[str, str] = {}
    exec(setting, place)
    (quoted,) = re.findall(r'^    %pip install --quiet "(.*)"$', pip, re.MULTILINE)
    wanted = Requirement(quoted.format(**place))
    assert wanted.url == REPOSITORY.as_uri() and "git+https://" in setting
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert wanted.name == project["name"]
    assert {"datasets"} <= wanted.extras <= project["optional-dependencies"].keys()  # `to_dataset` needs datasets


@pytest.mark.parametrize("name", NAMES)
def test_it_needs_no_image_of_the_users(name):
    source = "\n".join(cell.source for cell in read(name).cells)
    assert not re.search(r"sha256|DIGEST|docker build|\bimage\": ", source)


@pytest.mark.parametrize("name", NAMES)
def test_it_only_calls_the_library(name):
    code = re.sub(r";$", "", code_of(read(name)), flags=re.MULTILINE)
    assert len([line for line in code.splitlines() if line.strip()]) < LONGEST
    assert not re.search(r"^\s*[!%]", code, re.MULTILINE)  # shells and magics
    tree = ast.parse(code)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {one.partition(".")[0] for one in imported} <= {"llm_ocr", *HELPERS}
    logic = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.While, ast.Try, ast.If)
    assert not [node for node in ast.walk(tree) if isinstance(node, logic)]


@pytest.mark.parametrize("name", NAMES)
def test_the_parameters_are_in_one_cell(name):
    notebook = read(name)
    (cell,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    names = [node.targets[0].id for node in ast.parse(cell.source).body]
    platform = [] if name == "local" else ["PLATFORM"]
    assert names == [*platform, "WORKSPACE", "DOCUMENTS", "DATASET", "SETTINGS"]
    assert '"max_samples": 256' in cell.source
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert "each with its own license" in text  # beside the dataset


@pytest.mark.parametrize("name", sorted({*NAMES} - {"local"}))
def test_its_parameters_plan_the_three_stages(name):
    place: dict[str, Any] = {}
    for cell in ("imports", "parameters", "documents"):
        exec(cell_of(read(name), cell).source.replace("ACCOUNT", "123456789012"), place)
    source = cell_of(read(name), "look").source
    (planned,) = re.findall(r"^extract, describe, assemble = (dry_run\(.*\))$", source, re.MULTILINE)
    stages = eval(planned, place)
    assert [one.plan.spec.stage for one in stages] == ["extract", "describe", "assemble"]
    settings = place["SETTINGS"]
    for one in stages:
        plan, sent = one.plan, json.dumps([request.body for request in one.plan.requests])
        assert plan.requests and plan.platform == name.replace("_", "-")
        assert (plan.spec.workspace, plan.spec.shards) == (place["WORKSPACE"], settings["shards"])
        for own in sorted({"role", "project", "region", "service_account"} & settings.keys()):
            assert settings[own] in sent, own
    assert stages[0].plan.spec.hardware == settings["hardware"]
    assert stages[0].settings["dataset"] == place["DATASET"]["dataset"]


@pytest.mark.parametrize("name", NAMES)
def test_the_folder_that_it_sends_its_reader_to_is_there(name):
    text = "\n".join(cell.source for cell in read(name).cells if cell.cell_type == "markdown")
    paths = re.findall(r"`([a-z-]+/README\.md)`", text)
    assert paths or name == "local"
    for path in paths:
        assert (REPOSITORY / path).is_file(), path
