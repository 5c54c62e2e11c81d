"""Rows of the predecessor's datasets that are not as it writes them: each is counted as what it is, none ends a run."""

import predecessor_datasets as made
import pytest
from predecessor_datasets import documents, folder_input

import llm_ocr
from llm_ocr.types import PageRecord


def pages(run: llm_ocr.Run) -> dict[str, PageRecord]:
    return {page.document_id: page for page in run.pages()}


BAD = {
    "no image": ({"source_image": None}, "degraded", "unreadable"),
    "an image that is none": ({"source_image": {"bytes": b"no image", "path": None}}, "degraded", "unreadable"),
    "no Markdown": ({"document_markdown": None}, "degraded", "empty answer"),
    "neither": ({"source_image": None, "document_markdown": ""}, "failed", "unreadable"),
    "damaged metadata": ({"extracted_figures_metadata": ['{"figure_id": ']}, "degraded", "malformed answer"),
    "no metadata": ({"extracted_figures_metadata": None}, "degraded", "malformed answer"),
    "more metadata than figures": ({"extracted_figures": []}, "degraded", "malformed answer"),
    "a figure that is none": ({"extracted_figures": [{"bytes": b"x", "path": None}]}, "degraded", "unreadable"),
    "no box": (
        {"extracted_figures_metadata": [made.metadata(1, bounding_box_pixels={"x1": "a"})]},
        "degraded",
        "malformed answer",
    ),
    "a box outside the page": (
        {
            "extracted_figures_metadata": [
                made.metadata(1, bounding_box_pixels={"x1": 900, "y1": -5, "x2": -10, "y2": 100})
            ]
        },
        "ok",
        None,
    ),
}


#: Those of which there is no figure to keep.
WITHOUT_FIGURE = {"more metadata than figures", "a figure that is none"}


@pytest.mark.parametrize("case", BAD)
def test_a_row_that_is_not_whole_is_counted_as_what_it_is(tmp_path, case):
    columns, status, reason = BAD[case]
    source = folder_input(tmp_path, [made.row(0, "Known."), made.row(1, **columns), made.row(2, "Known, too.")])
    run = llm_ocr.assemble(workspace=tmp_path / "w", input=source)
    found = pages(run)
    bad = found["sample_00001"]
    assert (bad.status, bad.reason) == (status, reason)
    assert bool(bad.detail) is (status != "ok")
    assert [found[name].status for name in ("sample_00000", "sample_00002")] == ["ok", "ok"]
    counts = run.status.pages
    assert counts.expected == counts.ok + counts.degraded + counts.failed == 3
    assert len(bad.figures) == (0 if case in WITHOUT_FIGURE else 1)
    for figure in bad.figures:
        assert 0 <= figure.box.x0 <= figure.box.x1 <= 1
        assert 0 <= figure.box.y0 <= figure.box.y1 <= 1
    assert len(run.to_dataset()) == 3


def test_a_file_that_a_row_only_names_is_not_opened(tmp_path):
    secret = tmp_path / "secret.png"
    made.page_image(7).save(secret)
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = made.parquet([made.row(0, "Known.")], tmp_path / "run")
    (file,) = source.iterdir()
    table = pq.read_table(file)
    column = pa.array([{"bytes": None, "path": str(secret)}], table.schema.field("source_image").type)
    pq.write_table(table.set_column(table.schema.get_field_index("source_image"), "source_image", column), file)
    page = pages(llm_ocr.assemble(workspace=tmp_path / "w", input=source))["sample_00000"]
    assert (page.image, page.status) == (None, "degraded")


def test_two_rows_of_one_name_are_two_pages(tmp_path):
    rows = [made.row(0, "First."), made.row(0, "Second."), made.row(1, "Third.", sample_id=None)]
    texts = documents(llm_ocr.assemble(workspace=tmp_path / "w", input=folder_input(tmp_path, rows)))
    assert "First." in texts["sample_00000"]
    assert "Second." in texts["sample_00000-2"]
    assert "Third." in texts["row_00002"]


def test_links_of_its_older_form_lead_to_the_figures(tmp_path):
    name = made.figure_name(0)
    old = made.row(0, "A chart.", document_markdown=f"![Figure {name}](figures/{name}.png)\n\n![other](x.png)")
    text = documents(llm_ocr.assemble(workspace=tmp_path / "w", input=folder_input(tmp_path, [old])))["sample_00000"]
    assert "![sample_00000-p00001-f01: A chart.](sample_00000.figures/sample_00000-p00001-f01.png)" in text
    assert "![other](x.png)" in text
