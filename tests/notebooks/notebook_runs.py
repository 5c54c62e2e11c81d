"""Runs a notebook from top to bottom in a clean kernel, with other values of its parameters."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode

REPOSITORY = Path(__file__).resolve().parents[2]
NOTEBOOKS = REPOSITORY / "notebooks"
NAMES = tuple(sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")))

#: Platforms are looked at every few seconds; a job of the tests is over in less.
_QUICK = "import llm_ocr.launch.launching as launching\nlaunching.EVERY = 0.5\n"


def read(name: str) -> NotebookNode:
    """A notebook as it is stored."""
    return nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)


def code_of(notebook: NotebookNode) -> str:
    """Return all its code, without the cell that installs the library."""
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code" and cell.id != "install")


def cell_of(notebook: NotebookNode, name: str) -> NotebookNode:
    """The cell with this id."""
    return next(cell for cell in notebook.cells if cell.id == name)


def shown(cell: NotebookNode) -> str:
    """What a cell has shown, as text: what it printed, and Markdown and HTML before plain text."""
    parts = []
    for output in cell.outputs:
        data = output.get("data", {})
        kinds = ("text/markdown", "text/html", "text/plain")
        parts.append(output.get("text") or next((data[kind] for kind in kinds if kind in data), ""))
    return "\n".join(parts)


def with_values(notebook: NotebookNode, values: Mapping[str, Any]) -> NotebookNode:
    """The notebook with a cell behind the one of its parameters that gives them other values."""
    place = next(at for at, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", ()))
    lines = ["# Other values, for a small run", *(f"{name} = {value!r}" for name, value in values.items())]
    cell = nbformat.v4.new_code_cell("\n".join(lines))
    cell.id = "values"
    notebook.cells.insert(place + 1, cell)
    return notebook


def execute(
    notebook: NotebookNode, folder: Path, values: Mapping[str, Any], environment: Mapping[str, str], start: str = ""
) -> NotebookNode:
    """The notebook as it stands after a run in `folder`; raises `CellExecutionError` where a cell fails.

    The kernel has nothing of this process's environment. `start` is code that it runs first.
    """
    home = folder / "home"
    startup = home / ".ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "quick.py").write_text(_QUICK + start)
    work = folder / "work"
    work.mkdir(exist_ok=True)
    notebook = with_values(notebook, values)
    manager = AsyncKernelManager(kernel_name="python3", transport="ipc", connection_file=str(folder / "kernel.json"))
    place = {"metadata": {"path": str(work)}}
    client = NotebookClient(
        notebook,
        km=manager,
        timeout=240,
        kernel_name="python3",
        resources=place,
        record_timing=False,
        coalesce_streams=True,
    )
    own = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "TMPDIR": str(home),
        "IPYTHONDIR": str(home / ".ipython"),
        "PYTHONPATH": str(REPOSITORY),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    }
    return client.execute(cleanup_kc=True, env={**own, **environment})
