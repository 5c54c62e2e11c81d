"""What every notebook must have shown when it has run from top to bottom."""

import re
from collections.abc import Mapping
from pathlib import Path

from nbformat import NotebookNode
from notebook_platforms import PLATFORMS
from notebook_runs import cell_of, execute, shown

_PICTURE = re.compile(r"data:image/(?:png|jpeg);base64,[A-Za-z0-9+/=]{1000}")


def executed(name: str, folder: Path) -> NotebookNode:
    """The notebook after a run, with what it shows checked: results are those of the documents, not of a rehearsal."""
    with PLATFORMS[name](folder / "work") as setup:
        notebook = execute(name, folder, setup.values, setup.environment, setup.start)
    shows = {cell.id: shown(cell) for cell in notebook.cells if cell.cell_type == "code"}
    assert "login" in shows["credentials"]
    assert re.search(r"\*\*extract of \d pages|<b>extract of \d pages", shows["estimate"])
    if name != "local":
        _check_jobs(shows)
    state = shows["status" if name == "local" else "jobs"]
    assert " ok, 1 failed" in state
    assert re.search(r"^assemble +(\d) of \1 items done", state, re.MULTILINE)
    assert _PICTURE.search(shows["page"])
    assert "Reading the Staff" in shows["markdown"] or "Figure" in shows["markdown"]
    assert _PICTURE.search(shows["markdown"])  # its figures
    assert "unreadable" in shows["failures"]
    assert "extract" in shows["cost"] and "hf-jobs:l4x1" in shows["cost"]
    return notebook


def _check_jobs(shows: Mapping[str, str]) -> None:
    """Check the cells that only notebooks of platforms have."""
    assert '"stage": "extract"' in shows["look"]
    for stage in ("extract", "describe", "assemble"):
        assert re.search(rf"^{stage}: .*(1 job: 1|2 jobs: 2) succeeded$", shows["watch"], re.MULTILINE)
    assert re.search(r"^extract: (\d+)/\1 pages", shows["watch"], re.MULTILINE)
    assert shows["clean"].strip()


def said(notebook: NotebookNode, cell: str) -> str:
    """What a cell has shown."""
    return shown(cell_of(notebook, cell))
