"""Notebooks as they are stored: short, without output, of one shape, and rendered in docs as they stand."""

import ast
import re
import tomllib

import nbformat
import pytest
from notebook_pages import PAGES, digest
from notebook_runs import NAMES, NOTEBOOKS, REPOSITORY, cell_of, code_of, read
from packaging.requirements import Requirement

LONGEST = 150  # lines of code
SECTIONS = ["Parameters", "Credentials", "Documents", "Estimate", "Launch", "Watch", "Results", "Cost"]
#: What a notebook may import besides the library.
HELPERS = {"json", "itertools"}
LARGEST = 600_000  # bytes of a page in docs


def test_there_is_one_for_this_machine_and_each_platform():
    assert NAMES == ("cloud_run", "hf_jobs", "local", "modal", "sagemaker")


@pytest.mark.parametrize("name", NAMES)
def test_it_is_valid_and_has_no_output(name):
    notebook = read(name)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells)
    assert set(notebook.metadata) <= {"kernelspec", "language_info"}


@pytest.mark.parametrize("name", NAMES)
def test_the_first_code_cell_installs_the_library_from_the_checkout(name, monkeypatch):
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
def test_all_have_the_same_sections_and_cells(name):
    notebook, first = read(name), read("hf_jobs")
    headings = [line for cell in notebook.cells for line in cell.source.splitlines() if line.startswith("## ")]
    sections = [*SECTIONS[:4], "Run", *SECTIONS[6:]] if name == "local" else SECTIONS
    assert headings == ["## What you need", *(f"## {one}" for one in sections), "## Clean up"]
    same = ["credentials", "documents", "estimate", "page", "markdown", "samples", "failures", "cost"]
    if name != "local":  # it has no jobs
        assert [cell.id for cell in notebook.cells] == [cell.id for cell in first.cells]
        same += ["look", "launch", "watch", "clean"]
    for one in same:
        assert cell_of(notebook, one).source == cell_of(first, one).source


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


@pytest.mark.parametrize("name", NAMES)
def test_the_folder_that_it_sends_its_reader_to_is_there(name):
    text = "\n".join(cell.source for cell in read(name).cells if cell.cell_type == "markdown")
    paths = re.findall(r"`([a-z-]+/README\.md)`", text)
    assert paths or name == "local"
    for path in paths:
        assert (REPOSITORY / path).is_file(), path


@pytest.mark.parametrize("name", NAMES)
def test_its_page_in_docs_is_of_the_notebook_as_it_stands(name):
    page = (PAGES / f"{name}.html").read_text()
    again = f"make it again: .venv/bin/python tests/notebooks/notebook_pages.py {name}"
    assert f'<meta name="notebook" content="{digest(name)}">' in page, again
    assert len(page.encode()) < LARGEST
    assert not re.search(r"/(tmp|work|root|home/(?!you\b)\w+)/", page)
    assert str(REPOSITORY) not in page
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?https?://(?!huggingface\.co/datasets/)", page)  # nothing is fetched
