"""The CPU engine cuts out what --crop and --figures-from say."""

import pytest
from PIL import Image

import llm_ocr
from llm_ocr.errors import UsageError

FRUGAL = {"engine": "embedded", "render_workers": 1, "ocr_workers": 1, "pages": "1"}


def labels_of(document, workspace, **settings):
    run = llm_ocr.extract(document, workspace=workspace, **FRUGAL, **settings)
    (page,) = run.pages()
    assert all(figure.image.data for figure in page.figures)
    return {figure.label for figure in page.figures}, page


@pytest.fixture(scope="module")
def usual(examples, tmp_path_factory):
    return labels_of(examples / "paper.pdf", tmp_path_factory.mktemp("usual"))


def test_no_figures_are_cut_out_when_none_are_wanted(examples, tmp_path, usual):
    labels, page = labels_of(examples / "paper.pdf", tmp_path, figures_from="none")
    assert (usual[0] != set(), labels) == (True, set())
    assert "![" not in page.markdown
    again = llm_ocr.extract(workspace=tmp_path, render_workers=1, ocr_workers=1)  # remembered
    assert again.status.stages["extract"].finished


def test_only_the_wanted_blocks_are_cut_out(examples, tmp_path, usual):
    labels, page = labels_of(examples / "invoice.png", tmp_path / "w", crop="table")
    assert labels == {"table"}
    assert any(block.kind == "table" for block in page.blocks)
    (wanted,) = usual[0]
    assert labels_of(examples / "paper.pdf", tmp_path / "x", crop=f"{wanted},table")[0] >= {wanted}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"figures_from": "model"}, "the CPU engine has no model"),
        ({"crop": "image,sneal"}, "`crop=sneal`: the CPU engine does not detect such blocks"),
    ],
)
def test_what_the_cpu_engine_cannot_cut_out_is_refused_before_anything_is_written(tmp_path, settings, said):
    Image.new("L", (200, 200), "white").save(tmp_path / "blank.png")
    with pytest.raises(UsageError, match=said):
        llm_ocr.extract(tmp_path / "blank.png", workspace=tmp_path / "w", **FRUGAL, **settings)
    assert not (tmp_path / "w").exists()
