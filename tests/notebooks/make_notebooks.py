"""Make the notebooks from template.md and parts.toml, with the outputs of a run on the tests' stand-ins.

.venv/bin/python tests/notebooks/make_notebooks.py [NAME...]
"""

import base64
import io
import json
import logging
import re
import sys
import tempfile
import tomllib
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from notebook_platforms import PLATFORMS
from notebook_runs import NOTEBOOKS, REPOSITORY, execute
from PIL import Image

_HERE = Path(__file__).parent
_CODE = re.compile(r"^```python (\w+)\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
_WIDEST = 620  # pixels of a picture
_PICTURE = re.compile(r"data:image/(?:png|jpeg|webp);base64,([A-Za-z0-9+/=]+)")
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def built(name: str) -> NotebookNode:
    """Return a notebook without outputs."""
    parts = tomllib.loads((_HERE / "parts.toml").read_text())
    own = {**parts["every"], **parts["platforms"][name]}
    text = (_HERE / "template.md").read_text()
    while places := set(re.findall(r"<<(\w+)>>", text)):  # parts have places, too
        for place in places:
            text = text.replace(f"<<{place}>>", own[place])
    cells, end = [], 0
    for found in _CODE.finditer(text):
        if prose := text[end : found.start()].strip():
            cells.append(nbformat.v4.new_markdown_cell(prose, id=f"{found[1]}-text"))
        tags = {"tags": ["parameters"]} if found[1] == "parameters" else {}
        cells.append(nbformat.v4.new_code_cell(found[2], id=found[1], metadata=tags))
        end = found.end()
    if prose := text[end:].strip():
        cells.append(nbformat.v4.new_markdown_cell(prose, id="end-text"))
    return nbformat.v4.new_notebook(
        cells=cells, metadata={"kernelspec": _KERNEL, "language_info": {"name": "python"}}, nbformat_minor=5
    )


def make(name: str) -> None:
    """Run a notebook and store it with its outputs."""
    with tempfile.TemporaryDirectory(prefix="notebook-") as folder:
        place = Path(folder)
        with PLATFORMS[name](place / "work") as setup:
            notebook = built(name)
            metadata = nbformat.from_dict(dict(notebook.metadata))
            notebook = execute(notebook, place, setup.values, setup.environment, setup.start)
        notebook.metadata = metadata  # the kernel adds its version
        notebook.cells = [cell for cell in notebook.cells if cell.id != "values"]
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        for number, cell in enumerate(code, 1):
            kept = [one for one in cell.outputs if one.get("name") != "stderr"]
            cell.outputs = [nbformat.from_dict(_shareable(one, place, number)) for one in kept]
            cell.execution_count = number
    nbformat.write(notebook, NOTEBOOKS / f"{name}.ipynb")


def _shareable(output: NotebookNode, place: Path, number: int) -> dict[str, object]:
    """Return an output without names of this machine, with smaller pictures."""
    text = json.dumps({**output, "execution_count": number} if "execution_count" in output else output)
    text = _PICTURE.sub(_smaller, text)
    for path in (place / "work", place / "home"):
        text = text.replace(str(path), "/home/you")
    text = text.replace(str(REPOSITORY), "/home/you/llm-ocr")
    text = re.sub(r"http://(127\.0\.0\.1|localhost):\d+", "https://platform.example", text)
    shareable: dict[str, object] = json.loads(text)
    return shareable


def _smaller(found: re.Match[str]) -> str:
    picture = Image.open(io.BytesIO(base64.b64decode(found[1]))).convert("RGB")
    picture.thumbnail((_WIDEST, 4 * _WIDEST))
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=70, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(out.getvalue()).decode()}"


if __name__ == "__main__":
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # of moto: each request
    for one in sys.argv[1:] or PLATFORMS:
        make(one)
