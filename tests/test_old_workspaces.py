"""Workspaces that earlier versions wrote stay readable, and work goes on in them.

`fixtures/workspace-format-1`: two pages of the example paper, one a unit, all three stages done.
"""

import io
import json
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image

import llm_ocr
from llm_ocr.cli import main
from llm_ocr.errors import WorkspaceMismatch
from llm_ocr.types import Counts, Status

FIXTURES = Path(__file__).resolve().parent / "fixtures"
NAMES = sorted(path.name for path in FIXTURES.glob("workspace-format-*"))


@pytest.fixture(params=NAMES)
def old(request, tmp_path) -> Path:
    """A copy: nothing may write into the fixture itself."""
    return Path(shutil.copytree(FIXTURES / request.param, tmp_path / "old"))


def test_there_is_one_of_each_format_and_they_are_small():
    assert NAMES == ["workspace-format-1"]
    for name in NAMES:
        files = [path for path in (FIXTURES / name).rglob("*") if path.is_file()]
        assert sum(path.stat().st_size for path in files) < 400_000
        assert json.loads((FIXTURES / name / "run.json").read_text())["format"] == int(name.rpartition("-")[2])


def test_its_status_is_what_it_was(old):
    status = llm_ocr.open(str(old)).status
    assert status.pages == Counts(2, 2)
    assert status.figures == Counts(3, 3)
    assert status.finished
    assert {name: (stage.done, stage.total) for name, stage in status.stages.items()} == {
        "extract": (2, 2),
        "describe": (2, 2),
        "assemble": (1, 1),
    }


def test_its_pages_are_read_with_layout_figures_and_images(old):
    first, second = llm_ocr.open(str(old)).pages()
    assert [(page.page_number, page.status, page.text_source) for page in (first, second)] == [
        (1, Status.OK, "text-layer"),
        (2, Status.OK, "text-layer"),
    ]
    assert "We therefore turned the question round." in first.markdown
    assert "Two simpler rules serve as a yardstick." in second.markdown
    assert len(first.figures) == 1
    assert [figure.caption.partition(":")[0] for figure in second.figures] == ["Figure 2", "Figure 3"]
    for page in (first, second):
        assert page.image is not None
        assert Image.open(io.BytesIO(page.image.data)).size == (page.image.width, page.image.height)
        assert all(0 <= block.box.x0 <= block.box.x1 <= 1 for block in page.blocks)
        assert page.invisible_chars == 0  # not counted then


def test_its_documents_are_read_and_assembled_with_other_options(old):
    run = llm_ocr.open(str(old))
    (document,) = run.documents()
    assert document.path == "documents/paper.pdf.md"
    assert "<!-- page 2 -->" in document.markdown
    dataset = run.to_dataset()
    assert dataset["page_number"] == [1, 2]
    assert [len(figures) for figures in dataset["extracted_figures"]] == [1, 2]
    assert all(max(row["source_image"].size) == 380 for row in dataset)
    run = llm_ocr.assemble(workspace=old, page_markers=False)
    (document,) = run.documents()
    assert "<!-- page" not in document.markdown
    assert "Two simpler rules serve as a yardstick." in document.markdown
    assert run.status.finished


def test_its_descriptions_are_assembled_in_the_current_form(old):
    """Describe's rows of the fixture repeat the caption and list the tick marks of charts."""
    run = llm_ocr.assemble(workspace=old)
    (document,) = run.documents()
    alts = re.findall(r"!\[(.*)\]\(paper\.pdf\.figures/", document.markdown)
    assert [alt[:10] for alt in alts] == ["Figure 1: ", "Figure 2: ", "Figure 3: "]
    assert re.findall(r"^Figure \d: ", document.markdown, re.MULTILINE) == ["Figure 1: ", "Figure 2: ", "Figure 3: "]
    assert "Upper Tarn; Mill Weir" not in document.markdown
    about = [json.loads(one) for row in run.to_dataset()["extracted_figures_metadata"] for one in row]
    assert [one["description"] for one in about] == [None, None, None]
    assert "Upper Tarn\nMill Weir" in json.loads(about[1]["data"])["inside"]


def test_its_figures_can_be_described_once_more(old):
    shutil.rmtree(old / "describe")
    run = llm_ocr.describe(workspace=old, engine="embedded")
    assert run.status.figures == Counts(3, 3)


def test_pages_of_another_result_version_are_not_planned_again(old):
    """A generation that this version cannot extract would keep the workspace from being assembled and exported."""
    before = sorted(path.name for path in (old / "plan").iterdir())
    with pytest.raises(WorkspaceMismatch, match="extracted by another version of llm-ocr") as caught:
        llm_ocr.retry_failed(workspace=old)
    assert "another `workspace`" in caught.value.hint
    assert sorted(path.name for path in (old / "plan").iterdir()) == before
    assert llm_ocr.open(str(old)).status.finished


def test_a_demo_of_another_version_says_how_to_run_it(old, capsys):
    assert main(["demo", "-w", str(old)]) == 1
    assert f"Remove {old} of the earlier demo, or choose another folder with --workspace." in capsys.readouterr().err


def test_new_pages_are_refused_before_they_are_planned(old):
    """As above: with a generation that nothing reads, the finished pages could not be assembled any more."""
    before = sorted(path.name for path in (old / "plan").iterdir())
    source = FIXTURES.parents[1] / "examples" / "invoice.png"
    for command in ("run", "plan", "extract"):
        with pytest.raises(WorkspaceMismatch, match=r"by another version of llm-ocr.*reader.result_version: 1 -> "):
            getattr(llm_ocr, command)(source, workspace=old, engine="embedded")
    with pytest.raises(WorkspaceMismatch, match="extracted by another version of llm-ocr") as caught:
        llm_ocr.extract(workspace=old)
    message = str(caught.value)
    assert "settings of the workspace" not in message
    assert all(way in message for way in ("Assemble, and exports", "another `workspace`", "the version that"))
    assert sorted(path.name for path in (old / "plan").iterdir()) == before
    assert llm_ocr.assemble(workspace=old, page_markers=False).status.finished
