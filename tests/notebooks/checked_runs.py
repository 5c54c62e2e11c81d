"""What every notebook must have shown when it has run from top to bottom."""

import re
from pathlib import Path

from nbformat import NotebookNode
from notebook_platforms import PLATFORMS
from notebook_runs import cell_of, execute, read, shown

_PICTURE = re.compile(r"data:image/(?:png|jpeg);base64,[A-Za-z0-9+/=]{1000}")


def executed(name: str, folder: Path) -> NotebookNode:
    """The notebook after a run, with what it shows checked: results are those of the documents, not of a rehearsal."""
    with PLATFORMS[name](folder / "work") as setup:
        notebook = execute(read(name), folder, setup.values, setup.environment, setup.start)
    check(notebook)
    return notebook


def check(notebook: NotebookNode) -> None:
    """Check the outputs of a notebook."""
    shows = {cell.id: shown(cell) for cell in notebook.cells if cell.cell_type == "code"}
    assert "login" in shows["credentials"]
    assert re.search(r"\*\*extract of \d pages|<b>extract of \d pages", shows["estimate"])
    assert "Convert the document to markdown." in shows["prompts"]
    if "launch" in shows:
        assert '"stage": "extract"' in shows["look"]
        for stage in ("extract", "describe", "assemble"):
            assert re.search(rf"^{stage}: .*(1 job: 1|2 jobs: 2) succeeded$", shows[stage], re.MULTILINE), shows[stage]
        assert re.search(r"^extract: (\d+)/\1 pages", shows["extract"], re.MULTILINE)
        assert shows["clean"].strip()
    assert " ok, 1 failed" in shows["jobs"]
    assert re.search(r"^assemble +(\d) of \1 items done", shows["jobs"], re.MULTILINE)
    assert _PICTURE.search(shows["page"]) and "unreadable" in shows["page"]
    assert _PICTURE.search(shows["figures"])
    assert "Reading the Staff" in shows["markdown"] or "Figure" in shows["markdown"]
    assert _PICTURE.search(shows["markdown"])  # its figures
    assert ".md" in shows["files"] and "document_final_markdown" in shows["files"]
    assert "extract" in shows["cost"] and "hf-jobs:l4x1" in shows["cost"]
    assert "| 100,000 |" in shows["cost"]  # pages at the rates of the run


def said(notebook: NotebookNode, cell: str) -> str:
    """What a cell has shown."""
    return shown(cell_of(notebook, cell))
