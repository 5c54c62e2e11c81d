"""Where no package reads the text of pages, renderer processes return pdfium's lines."""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from test_rendering import rendered

PROGRAM = """
import asyncio, json, sys
from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.plugins import ENGINES

async def main(paper, **options):
    async with Renderer(RenderOptions(workers=1, **options)) as renderer:
        page = await renderer.page(paper, "", 1, page_id="p", document_id="d")
        return (await renderer.content(paper, "", 1, page)).content

contents = [asyncio.run(main(sys.argv[1], text_layer=text_layer)) for text_layer in (True, False)]
lines = [[[line.text, *line.box.centre, line.size] for line in content.lines] for content in contents]
print(json.dumps({"engines": ENGINES.names(), "rasters": [len(one.rasters) for one in contents], "lines": lines,
                  "cpu": "llm_ocr_cpu" in sys.modules}))
"""


@pytest.fixture
def without_packages(tmp_path, repository) -> Path:
    """A folder with the core and all that it needs, but without the metadata that names our packages."""
    folder = tmp_path / "site"
    folder.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "llm_ocr" not in entry.name:
            (folder / entry.name).symlink_to(entry)
    (folder / "llm_ocr").symlink_to(repository / "llm_ocr")
    return folder


def test_pages_have_pdfium_lines_without_an_engine(without_packages, examples):
    paper = str(examples / "paper.pdf")
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-c", PROGRAM, paper],
        env={"PYTHONPATH": str(without_packages)}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["engines"], found["cpu"]) == ([], False)
    (page,) = rendered(paper)
    known = {line.text: line for line in page.content.lines if len(line.text) > 10}  # shorter ones repeat
    for lines, rasters in zip(found["lines"], found["rasters"], strict=True):
        assert rasters == len(page.content.rasters)
        same = [(known[text], x, y, size) for text, x, y, size in lines if text in known]
        assert len(same) > len(known) / 2
        for line, x, y, size in same:
            assert (x, y) == pytest.approx(line.box.centre, abs=line.size)
            assert size == pytest.approx(line.size, rel=1)
