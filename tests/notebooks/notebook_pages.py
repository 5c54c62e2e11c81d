"""Makes the pages of the notebooks in docs: each is run as the tests run it, and its page holds what that showed.

.venv/bin/python tests/notebooks/notebook_pages.py [NAME...]
"""

import base64
import hashlib
import io
import logging
import re
import sys
import tempfile
from pathlib import Path

from nbformat import NotebookNode
from notebook_platforms import PLATFORMS
from notebook_runs import NAMES, NOTEBOOKS, REPOSITORY, execute
from PIL import Image

PAGES = REPOSITORY / "docs" / "notebooks"
_WIDEST = 620  # pixels of a picture
_PICTURE = re.compile(r"data:image/(?:png|jpeg|webp);base64,([A-Za-z0-9+/=]+)")
_NOTE = """<p class="note">This page shows <code>notebooks/{name}.ipynb</code> after a run of the tests: {where},
and the engine for CPUs in place of a model. What was read is real; times and costs say nothing of GPUs.</p>"""
_STAND_IN = "the platform's real client, a stand-in for the platform whose jobs are processes of one machine"
_HERE = "the stages in the process of the notebook"
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
pre { font: 13px/1.4 ui-monospace, monospace; overflow-x: auto; margin: 0; }
table { border-collapse: collapse; font-size: 14px; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { border: 1px solid #ddd; padding: .2rem .6rem; text-align: left; }
img { max-width: 100%; border: 1px solid #ddd; }
blockquote, .note { background: #f6f4ee; border-left: 4px solid #c9b98a; margin: 1rem 0; padding: .5rem 1rem; }
.highlight { background: #f5f5f5; padding: .6rem .8rem; border-radius: 4px; margin: 1rem 0 .3rem; }
.output_subarea { padding: .2rem .8rem; max-height: 40rem; overflow: auto; border-left: 3px solid #e4e4e4; }
.prompt, .anchor-link { display: none; }
"""


def digest(name: str) -> str:
    """Of a notebook as it is stored; its page names it."""
    return hashlib.sha256((NOTEBOOKS / f"{name}.ipynb").read_bytes()).hexdigest()


def make(name: str) -> None:
    """Run a notebook and write its page."""
    with tempfile.TemporaryDirectory(prefix="notebook-") as folder:
        place = Path(folder)
        with PLATFORMS[name](place / "work") as setup:
            notebook = execute(name, place, setup.values, setup.environment, setup.start)
        page = _page(name, notebook).replace(str(place / "work"), "/home/you").replace(str(place / "home"), "/home/you")
    PAGES.mkdir(parents=True, exist_ok=True)
    (PAGES / f"{name}.html").write_text(page.replace(str(REPOSITORY), "/home/you/llm-ocr"))


def _page(name: str, notebook: NotebookNode) -> str:
    from nbconvert import HTMLExporter
    from nbconvert.preprocessors import CoalesceStreamsPreprocessor
    from pygments.formatters import HtmlFormatter

    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    exporter = HTMLExporter(template_name="basic", preprocessors=[CoalesceStreamsPreprocessor(enabled=True)])
    body, _ = exporter.from_notebook_node(notebook)
    style = _STYLE + HtmlFormatter().get_style_defs(".highlight")
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="notebook" content="{digest(name)}">
<title>{name}.ipynb</title><style>{style}</style></head><body>
{_NOTE.format(name=name, where=_HERE if name == "local" else _STAND_IN)}
{_PICTURE.sub(_smaller, body)}
</body></html>
"""


def _smaller(found: re.Match[str]) -> str:
    picture = Image.open(io.BytesIO(base64.b64decode(found[1]))).convert("RGB")
    picture.thumbnail((_WIDEST, 4 * _WIDEST))
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=70, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(out.getvalue()).decode()}"


if __name__ == "__main__":
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # of moto: each request
    for one in sys.argv[1:] or NAMES:
        make(one)
